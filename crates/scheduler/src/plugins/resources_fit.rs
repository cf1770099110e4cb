//! A node must have what a pod asks for, and room for one more pod; the emptiest is liked best.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Node;

use crate::{
    framework::{BEST, Event, NodeFilter, NodeScore, Plugin, Rejection},
    pod::{PodInfo, Shape},
    snapshot::{NodeInfo, capacity},
};

pub struct NodeResourcesFit;

const NAME: &str = "NodeResourcesFit";

impl Plugin for NodeResourcesFit {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        match event {
            Event::NodeAdded(node) => would_fit(pod, node),
            Event::NodeChanged { old, new, what } => {
                what.allocatable && would_fit(pod, new) && offers_more(pod, old, new)
            }
            Event::PodChanged { old, new } => {
                let wanted = &pod.shape.requests.said;
                old.shape.requests.said.more_of(wanted, &new.shape.requests.said)
            }
            Event::PodRemoved(_) => true,
            _ => false,
        }
    }

    fn hears(&self, event: &Event<'_>) -> bool {
        event.is_about_a_node() || matches!(event, Event::PodChanged { .. } | Event::PodRemoved(_))
    }
}

/// Whether a pod fits on a node without any other pod.
fn would_fit(pod: &PodInfo, node: &Node) -> bool {
    let mut empty = NodeInfo::default();
    (empty.allocatable, empty.most_pods) = capacity(node.status.as_ref());
    NodeResourcesFit.filter(&pod.shape, &empty).is_ok()
}

fn offers_more(pod: &PodInfo, old: &Node, new: &Node) -> bool {
    let ((old, old_pods), (new, new_pods)) = (capacity(old.status.as_ref()), capacity(new.status.as_ref()));
    new_pods > old_pods || new.more_of(&pod.shape.requests.said, &old)
}

impl NodeFilter for NodeResourcesFit {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection> {
        let mut rejection = Rejection { plugin: NAME, unresolvable: false, reasons: Vec::new() };
        if node.pods().len() + 1 > node.most_pods {
            rejection.reasons.push("Too many pods".into());
        }
        let (wanted, has, taken) = (&shape.requests.said, &node.allocatable, &node.requested);
        let mut check = |reason: Cow<'static, str>, wanted: i64, has: i64, taken: i64| {
            if wanted > 0 && wanted > has - taken {
                rejection.reasons.push(reason);
                rejection.unresolvable |= wanted > has;
            }
        };
        check("Insufficient cpu".into(), wanted.milli_cpu, has.milli_cpu, taken.milli_cpu);
        check("Insufficient memory".into(), wanted.memory, has.memory, taken.memory);
        let storage = (wanted.ephemeral_storage, has.ephemeral_storage, taken.ephemeral_storage);
        check("Insufficient ephemeral-storage".into(), storage.0, storage.1, storage.2);
        for (name, amount) in wanted.others() {
            check(format!("Insufficient {name}").into(), amount, has.other(name), taken.other(name));
        }
        if rejection.reasons.is_empty() { Ok(()) } else { Err(rejection) }
    }
}

impl NodeScore for NodeResourcesFit {
    /// The part that would be left free, on average of cpu and memory.
    fn score(&self, shape: &Shape, node: &NodeInfo) -> i64 {
        let (more, has, taken) = (&shape.requests.assumed, &node.allocatable, &node.assumed);
        let pairs = [(taken.milli_cpu + more.milli_cpu, has.milli_cpu), (taken.memory + more.memory, has.memory)];
        let offered = pairs.iter().filter(|(_, has)| *has > 0);
        let count = offered.clone().count() as i64;
        let free: i64 = offered.map(|(taken, has)| if taken > has { 0 } else { (has - taken) * BEST / has }).sum();
        if count == 0 { 0 } else { free / count }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{asking, cluster, node, pod};

    /// What is said of a node on which a pod asks for half of everything.
    fn judged(requests: Value) -> Result<(), (bool, Vec<String>)> {
        let half = asking(json!({"cpu": "1", "memory": "2Gi", "example.com/gpu": "1"}));
        let has = json!({"status": {"allocatable": {"ephemeral-storage": "1Gi", "example.com/gpu": "2", "pods": "2"}}});
        let snapshot = cluster([node("one", has)], [(pod("there", half), "one")]);
        let slot = snapshot.slot("one").expect("a node");
        let judged = NodeResourcesFit.filter(&pod("new", asking(requests)).shape, snapshot.node(slot));
        judged.map_err(|why| (why.unresolvable, why.reasons.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn everything_asked_for_must_be_there() {
        let short = |unresolvable: bool, reasons: &[&str]| {
            Err((unresolvable, reasons.iter().map(|reason| (*reason).to_owned()).collect::<Vec<_>>()))
        };
        let cases = [
            (json!({}), Ok(())),
            (json!({"cpu": "1", "memory": "2Gi", "example.com/gpu": "1", "ephemeral-storage": "1Gi"}), Ok(())),
            (json!({"cpu": "1001m"}), short(false, &["Insufficient cpu"])),
            (json!({"cpu": "3"}), short(true, &["Insufficient cpu"])),
            (json!({"cpu": "1500m", "memory": "3Gi"}), short(false, &["Insufficient cpu", "Insufficient memory"])),
            (json!({"ephemeral-storage": "2Gi"}), short(true, &["Insufficient ephemeral-storage"])),
            (json!({"example.com/gpu": "2"}), short(false, &["Insufficient example.com/gpu"])),
            (json!({"example.com/other": "1"}), short(true, &["Insufficient example.com/other"])),
        ];
        for (requests, expected) in cases {
            assert_eq!(judged(requests.clone()), expected, "{requests}");
        }
    }

    #[test]
    fn a_node_takes_only_so_many_pods() {
        let snapshot =
            cluster([node("one", json!({"status": {"allocatable": {"pods": "1"}}}))], [(pod("a", json!({})), "one")]);
        let judged = NodeResourcesFit.filter(&pod("b", json!({})).shape, snapshot.node(0));
        assert_eq!(judged, Err(Rejection::for_now(NAME, "Too many pods")));
    }

    #[test]
    fn the_emptier_the_better() {
        let snapshot = cluster(
            [node("full", json!({})), node("empty", json!({})), node("bare", json!({"status": {"allocatable": null}}))],
            [(pod("there", asking(json!({"cpu": "1", "memory": "1Gi"}))), "full")],
        );
        let new = pod("new", asking(json!({"cpu": "500m", "memory": "1Gi"})));
        let score =
            |name: &str| NodeResourcesFit.score(&new.shape, snapshot.node(snapshot.slot(name).expect("a node")));
        assert_eq!((score("empty"), score("full"), score("bare")), (75, 37, 0));
    }

    #[test]
    fn only_events_that_could_help_wake() {
        let big = pod("big", asking(json!({"cpu": "3"})));
        let (small, large) = (node("n", json!({})), node("n", json!({"status": {"allocatable": {"cpu": "4"}}})));
        assert!(!NodeResourcesFit.helps(&Event::NodeAdded(&small), &big));
        assert!(NodeResourcesFit.helps(&Event::NodeAdded(&large), &big));
        let what = crate::framework::NodeChange::between(&small, &large);
        assert!(NodeResourcesFit.helps(&Event::NodeChanged { old: &small, new: &large, what }, &big));
        assert!(!NodeResourcesFit.helps(&Event::NodeChanged { old: &large, new: &large, what }, &big));
        let (before, after) = (pod("x", asking(json!({"cpu": "2"}))), pod("x", asking(json!({"cpu": "1"}))));
        assert!(NodeResourcesFit.helps(&Event::PodChanged { old: &before, new: &after }, &big));
        assert!(!NodeResourcesFit.helps(&Event::PodChanged { old: &after, new: &before }, &big));
        assert!(!NodeResourcesFit.helps(&Event::PodAdded(&before), &big));
    }
}
