//! RuntimeClass: a pod costs what its runtime costs, and goes where its runtime is.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde_json::{Value, json};

use super::{Attributes, Lookup, Plugin, Request, pod_resources::amounts, tolerations};
use crate::watch_cache::WatchCache;

const DIFFERS: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

pub struct RuntimeClass {
    classes: Lookup,
}

impl RuntimeClass {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { classes: Lookup::new(cache, "node.k8s.io", "runtimeclasses", "RuntimeClass") }
    }

    /// The class that a pod names, which must be there.
    async fn class(&self, attributes: &Attributes<'_>, pod: &Value) -> Result<Option<Value>, Status> {
        let Some(name) = pod.at(&["spec", "runtimeClassName"]).and_then(Value::as_str) else { return Ok(None) };
        match self.classes.get(name).await? {
            Some(class) => Ok(Some(class)),
            None => Err(attributes.forbidden(pod, format!("pod rejected: RuntimeClass {name:?} not found"))),
        }
    }
}

#[async_trait]
impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.creates("", "pods")
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Some(class) = self.class(attributes, object).await? else { return Ok(()) };
        if let Some(overhead) = class.field("overhead") {
            let (fixed, given) = (overhead.field("podFixed"), object.at(&["spec", "overhead"]));
            if !amounts(given).is_empty() && amounts(given) != amounts(fixed) {
                return Err(attributes.forbidden(object, DIFFERS));
            }
            if let (Some(fixed), Some(spec)) = (fixed.cloned(), object.get_mut("spec").and_then(Value::as_object_mut)) {
                spec.insert("overhead".into(), fixed);
            }
        }
        match class.field("scheduling").map(|scheduling| schedule(object, scheduling)) {
            Some(Err(conflict)) => Err(attributes.forbidden(object, conflict)),
            _ => Ok(()),
        }
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let class = self.class(attributes, object).await?;
        let given = object.at(&["spec", "overhead"]);
        match class.as_ref().and_then(|class| class.field("overhead")) {
            Some(overhead) if amounts(overhead.field("podFixed")) != amounts(given) => {
                Err(attributes.forbidden(object, DIFFERS))
            }
            None if given.is_some_and(|given| !given.is_null()) => Err(attributes.forbidden(
                object,
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

/// Adds the node selector and the tolerations of the class.
fn schedule(pod: &mut Value, scheduling: &Value) -> Result<(), String> {
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
    for (key, wanted) in scheduling.entries("nodeSelector") {
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        let wanted = wanted.as_str().unwrap_or_default();
        if selector.has(key) && selector.text(key) != wanted {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {wanted}; pod.spec.nodeSelector[{key}] = {}",
                selector.text(key)
            ));
        }
        selector[key] = wanted.into();
    }
    let merged = tolerations::merge(spec.items("tolerations"), scheduling.items("tolerations"));
    if !merged.is_empty() {
        spec.insert("tolerations".into(), merged.into());
    }
    Ok(())
}
