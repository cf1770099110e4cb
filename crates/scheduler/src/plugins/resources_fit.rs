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
}

/// Whether a pod fits on a node without any other pod.
fn would_fit(pod: &PodInfo, node: &Node) -> bool {
    let mut empty = NodeInfo::default();
    empty.set(Some(node.clone().into()));
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
