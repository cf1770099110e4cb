//! A node that takes no new pods takes only those that tolerate it.

use crate::{
    framework::{Event, NodeFilter, Plugin, Rejection},
    plugins::taint_toleration::tolerates,
    pod::{PodInfo, Shape},
    snapshot::NodeInfo,
};

pub struct NodeUnschedulable;

const NAME: &str = "NodeUnschedulable";
const TAINT: &str = "node.kubernetes.io/unschedulable";

impl Plugin for NodeUnschedulable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, _pod: &PodInfo) -> bool {
        let is_open = |node: &k8s_openapi::api::core::v1::Node| {
            node.spec.as_ref().is_none_or(|spec| spec.unschedulable != Some(true))
        };
        match event {
            Event::NodeAdded(node) => is_open(node),
            Event::NodeChanged { old, new, what } => what.taints && !is_open(old) && is_open(new),
            _ => false,
        }
    }

    fn hears(&self, event: &Event<'_>) -> bool {
        event.is_about_a_node()
    }
}

impl NodeFilter for NodeUnschedulable {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection> {
        let tolerated = || shape.tolerations.iter().any(|toleration| tolerates(toleration, TAINT, "", "NoSchedule"));
        if !node.is_unschedulable() || tolerated() {
            return Ok(());
        }
        Err(Rejection::for_good(NAME, "node(s) were unschedulable"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{cluster, node, pod};

    #[test]
    fn a_closed_node_takes_who_tolerates_it() {
        let snapshot = cluster([node("one", json!({"spec": {"unschedulable": true}}))], []);
        let judged = |changes| NodeUnschedulable.filter(&pod("web", changes).shape, snapshot.node(0));
        assert_eq!(judged(json!({})), Err(Rejection::for_good(NAME, "node(s) were unschedulable")));
        let toleration = json!([{"key": TAINT, "operator": "Exists", "effect": "NoSchedule"}]);
        assert_eq!(judged(json!({"spec": {"tolerations": toleration}})), Ok(()));
    }
}
