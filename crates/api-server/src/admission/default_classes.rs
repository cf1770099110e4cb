//! DefaultStorageClass and DefaultIngressClass: who names no class gets the default one, of several the newest.

use std::{cmp::Reverse, sync::Arc};

use async_trait::async_trait;
use object_model::{meta::Meta, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, Plugin, Request};
use crate::watch_cache::WatchCache;

/// Which objects get which class, and how both say it.
struct Rule {
    name: &'static str,
    group: &'static str,
    resource: &'static str,
    /// The field of the specification that names the class.
    field: &'static str,
    /// An annotation that names it as well, from the time before the field.
    annotation: &'static str,
    /// The annotations of a class that is the default.
    marks: &'static [&'static str],
}

pub struct DefaultClass {
    rule: Rule,
    classes: Lookup,
}

impl DefaultClass {
    pub fn of_storage(cache: &Arc<WatchCache>) -> Self {
        let rule = Rule {
            name: "DefaultStorageClass",
            group: "",
            resource: "persistentvolumeclaims",
            field: "storageClassName",
            annotation: "volume.beta.kubernetes.io/storage-class",
            marks: &["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"],
        };
        Self { rule, classes: Lookup::new(cache, "storage.k8s.io", "storageclasses", "StorageClass") }
    }

    pub fn of_ingress(cache: &Arc<WatchCache>) -> Self {
        let rule = Rule {
            name: "DefaultIngressClass",
            group: "networking.k8s.io",
            resource: "ingresses",
            field: "ingressClassName",
            annotation: "kubernetes.io/ingress.class",
            marks: &["ingressclass.kubernetes.io/is-default-class"],
        };
        Self { rule, classes: Lookup::new(cache, "networking.k8s.io", "ingressclasses", "IngressClass") }
    }

    /// The newest class that is marked as the default; of several at once the first by name.
    fn default(&self) -> Option<String> {
        let mut found = Vec::new();
        self.classes.each(|class| {
            let meta = Meta::of(&class);
            if self.rule.marks.iter().any(|mark| meta.annotation(mark) == Some("true")) {
                found.push((Reverse(meta.creation_timestamp()), meta.name().to_owned()));
            }
        });
        found.into_iter().min().map(|(_, name)| name)
    }
}

#[async_trait]
impl Plugin for DefaultClass {
    fn name(&self) -> &'static str {
        self.rule.name
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.creates(self.rule.group, self.rule.resource)
    }

    async fn mutate(&self, _: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let named = object.at(&["spec", self.rule.field]).is_some_and(|class| !class.is_null());
        if named || Meta::of(object).annotation(self.rule.annotation).is_some() {
            return Ok(());
        }
        if let (Some(class), Some(spec)) = (self.default(), object.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.insert(self.rule.field.into(), class.into());
        }
        Ok(())
    }
}
