//! Priority: a pod's priority comes from its class, and there is one default class at the most.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::Meta, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, Operation, Plugin, Request};
use crate::watch_cache::WatchCache;

pub struct Priority {
    classes: Lookup,
}

/// What a class gives to a pod.
struct Class {
    name: String,
    value: i64,
    preemption: String,
}

impl Priority {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { classes: Lookup::new(cache, "scheduling.k8s.io", "priorityclasses", "PriorityClass") }
    }

    /// The class that pods without one get: the default class with the lowest value, if there are several.
    fn default_class(&self) -> Option<Class> {
        let mut found: Option<Class> = None;
        self.classes.each(|class| {
            let value = class.int("value").unwrap_or_default();
            if class.flag("globalDefault") == Some(true) && found.as_ref().is_none_or(|f| value < f.value) {
                found = Some(Class::of(&class));
            }
        });
        found
    }

    async fn mutate_new(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let wanted = object.text_at(&["spec", "priorityClassName"]).to_owned();
        let class = if wanted.is_empty() {
            self.default_class().unwrap_or(Class {
                name: String::new(),
                value: 0,
                preemption: "PreemptLowerPriority".to_owned(),
            })
        } else {
            match self.classes.get(&wanted).await? {
                Some(class) => Class::of(&class),
                None => {
                    let why = format!("no PriorityClass with name {wanted} was found");
                    return Err(attributes.forbidden(object, why));
                }
            }
        };
        let spec = object.get("spec").cloned().unwrap_or_default();
        if let Some(given) = spec.int("priority").filter(|given| *given != class.value) {
            let why = format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
                 computed {} from the given PriorityClass name",
                class.value
            );
            return Err(attributes.forbidden(object, why));
        }
        let given = spec.text("preemptionPolicy");
        if !given.is_empty() && given != class.preemption {
            let why = format!(
                "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
                 controller computed {} from the given PriorityClass name",
                class.preemption
            );
            return Err(attributes.forbidden(object, why));
        }
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            if !class.name.is_empty() {
                spec.insert("priorityClassName".into(), class.name.into());
            }
            spec.insert("priority".into(), class.value.into());
            spec.insert("preemptionPolicy".into(), class.preemption.into());
        }
        Ok(())
    }
}

impl Class {
    fn of(class: &Value) -> Self {
        let preemption = match class.text("preemptionPolicy") {
            "" => "PreemptLowerPriority",
            given => given,
        };
        Self {
            name: Meta::of(class).name().to_owned(),
            value: class.int("value").unwrap_or_default(),
            preemption: preemption.to_owned(),
        }
    }
}

#[async_trait]
impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "pods", "") || request.writes("scheduling.k8s.io", "priorityclasses", "")
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        if attributes.is(Operation::Create, "", "pods") {
            return self.mutate_new(attributes, object).await;
        }
        if attributes.is(Operation::Update, "", "pods")
            && let (Some(old), Some(spec)) = (attributes.old, object.get_mut("spec").and_then(Value::as_object_mut))
        {
            for field in ["priority", "preemptionPolicy"] {
                if let (None, Some(was)) = (spec.get(field), old.at(&["spec", field])) {
                    spec.insert(field.into(), was.clone());
                }
            }
        }
        Ok(())
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        if &*attributes.target.resource.plural != "priorityclasses" || object.flag("globalDefault") != Some(true) {
            return Ok(());
        }
        let itself = |class: &Class| attributes.operation == Operation::Update && class.name == Meta::of(object).name();
        match self.default_class().filter(|class| !itself(class)) {
            Some(class) => Err(attributes.forbidden(
                object,
                format!("PriorityClass {} is already marked as default. Only one default can exist", class.name),
            )),
            None => Ok(()),
        }
    }
}
