//! Nodes that a pod's node selector and node affinity allow, and those it would like.

use k8s_openapi::api::core::v1::Node;

use super::normalize;
use crate::{
    framework::{Event, NodeFilter, NodeScore, Plugin, PreFilter, PreFiltered, Rejection},
    pod::{PodInfo, Shape},
    selection::Labels,
    snapshot::{NodeInfo, Snapshot},
};

pub struct NodeAffinity;

const NAME: &str = "NodeAffinity";

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        let none = Labels::new();
        let allows = |node: &Node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            pod.shape.nodes.allows_labelled(name, node.metadata.labels.as_ref().unwrap_or(&none))
        };
        match event {
            Event::NodeAdded(node) => allows(node),
            Event::NodeChanged { old, new, what } => what.labels && !allows(old) && allows(new),
            _ => false,
        }
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, _snapshot: &'a Snapshot) -> PreFiltered<'a> {
        match pod.shape.nodes.named() {
            None => PreFiltered::Skip,
            Some(names) if names.is_empty() => {
                PreFiltered::Reject(Rejection::for_good(NAME, "pod affinity terms conflict"))
            }
            Some(names) => PreFiltered::Only(names),
        }
    }
}

impl NodeFilter for NodeAffinity {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection> {
        if shape.nodes.allows(node) {
            return Ok(());
        }
        Err(Rejection::for_good(NAME, "node(s) didn't match Pod's node affinity/selector"))
    }
}

impl NodeScore for NodeAffinity {
    fn applies(&self, shape: &Shape) -> bool {
        !shape.nodes.preferred.is_empty()
    }

    fn score(&self, shape: &Shape, node: &NodeInfo) -> i64 {
        shape.nodes.liking(node)
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, false);
    }
}
