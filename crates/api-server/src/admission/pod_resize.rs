//! PodResizeValidator: a running pod does not grow beyond what its node has.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::Meta, quantity::Quantity, status::Status, value::Fields};
use serde_json::Value;

use super::{
    Attributes, Lookup, Plugin, Request, because,
    pod_resources::{Counting, Of, amounts, of_pod},
};
use crate::watch_cache::WatchCache;

const COUNTING: Counting = Counting { status: false, overhead: true, huge_pages: true };

pub struct PodResizeValidator {
    nodes: Lookup,
}

impl PodResizeValidator {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { nodes: Lookup::new(cache, "", "nodes", "Node") }
    }
}

#[async_trait]
impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.updates("", "pods", "resize")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let name = object.text_at(&["spec", "nodeName"]);
        let unchanged = attributes.old.is_some_and(|old| Meta::of(old).generation() == Meta::of(object).generation());
        if name.is_empty() || unchanged {
            return Ok(());
        }
        let Some(node) = self.nodes.resource.get(name).map(|entry| entry.object(self.nodes.kind)) else {
            return Err(attributes.forbidden(object, format!("node {name:?} not found")));
        };
        let system = Meta::of(&node).label("kubernetes.io/os").unwrap_or("linux");
        if system != "linux" {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
            return Err(because(attributes.forbidden(object, why), "UnsupportedPlatform", String::new(), ""));
        }
        match too_much(object, &node) {
            Some(why) => Err(because(attributes.forbidden(object, why), "NodeCapacity", String::new(), "")),
            None => Ok(()),
        }
    }
}

/// What the pod asks for and the node cannot ever give.
fn too_much(pod: &Value, node: &Value) -> Option<String> {
    let (requests, has) = (of_pod(pod, Of::Requests, COUNTING), amounts(node.at(&["status", "allocatable"])));
    let pair = |name| {
        let [wanted, has] = [&requests, &has].map(|all| all.get(name).copied().unwrap_or(Quantity::ZERO));
        (wanted > has).then_some((wanted, has))
    };
    let cpu = pair("cpu")
        .map(|(wanted, has)| format!("cpu, requested: {}, allocatable: {}", wanted.milli_value(), has.milli_value()));
    let memory = pair("memory")
        .map(|(wanted, has)| format!("memory, requested: {}, allocatable: {}", wanted.value(), has.value()));
    let parts: Vec<String> = cpu.into_iter().chain(memory).collect();
    (!parts.is_empty()).then(|| format!("node didn't have enough allocatable resources: {}", parts.join("; ")))
}
