//! NodeDeclaredFeatureValidator: a running pod changes only in ways that its node says it can follow.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::Meta, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, Plugin, Request};
use crate::watch_cache::WatchCache;

pub struct NodeDeclaredFeatureValidator {
    nodes: Lookup,
}

impl NodeDeclaredFeatureValidator {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { nodes: Lookup::new(cache, "", "nodes", "Node") }
    }
}

#[async_trait]
impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.updates("", "pods", "") || request.updates("", "pods", "resize")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let node = object.text_at(&["spec", "nodeName"]);
        let Some(old) = attributes.old.filter(|old| Meta::of(old).generation() != Meta::of(object).generation()) else {
            return Ok(());
        };
        let needed = needed(old, object);
        if node.is_empty() || needed.is_empty() {
            return Ok(());
        }
        let Some(found) = self.nodes.resource.get(node).map(|entry| entry.object(self.nodes.kind)) else {
            return Err(attributes.forbidden(object, format!("node {node:?} not found")));
        };
        let declared = found.field("status").map(|status| status.items("declaredFeatures")).unwrap_or_default();
        let missing: Vec<&str> =
            needed.into_iter().filter(|name| !declared.iter().any(|known| known == name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let why = format!("pod update requires features {missing} which are not available on node {node:?}");
        Err(attributes.forbidden(object, why))
    }
}

/// The features that a change needs, in the order in which Kubernetes names them.
fn needed(old: &Value, new: &Value) -> Vec<&'static str> {
    let resources = |pod: &Value| pod.at(&["spec", "resources"]).cloned().unwrap_or_default();
    let inits = |pod: &Value| pod.field("spec").map(|s| s.items("initContainers").to_vec()).unwrap_or_default();
    let mut needed = Vec::new();
    if resources(old) != resources(new) {
        needed.push("InPlacePodLevelResourcesVerticalScaling");
    }
    let resized = |(old, new): (&Value, &Value)| {
        old.text("restartPolicy") != "Always" && old.field("resources") != new.field("resources")
    };
    if inits(old).iter().zip(&inits(new)).any(resized) {
        needed.push("InPlacePodVerticalScalingInitContainers");
    }
    needed
}
