//! PodTopologyLabels: a pod has the zone and the region of its node as labels, from the moment it is bound.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::MetaMut, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, Operation, Plugin, Request};
use crate::watch_cache::WatchCache;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

pub struct PodTopologyLabels {
    nodes: Lookup,
}

impl PodTopologyLabels {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { nodes: Lookup::new(cache, "", "nodes", "Node") }
    }
}

#[async_trait]
impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.operation == Operation::Create
            && (request.is_of("", "pods", "") || request.is_of("", "pods", "binding"))
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let node = match attributes.target.subresource {
            "" => object.text_at(&["spec", "nodeName"]),
            // The labels of a binding become those of the pod.
            _ if object.text_at(&["target", "kind"]) == "Node" => object.text_at(&["target", "name"]),
            _ => "",
        };
        // A node that is not there is for others to complain about.
        let Some(node) = self.nodes.resource.get(node) else { return Ok(()) };
        let Some(fields) = object.as_object_mut() else { return Ok(()) };
        for label in LABELS {
            if let Some(value) = node.label(label) {
                MetaMut::of(fields).set_label(label, value);
            }
        }
        Ok(())
    }
}
