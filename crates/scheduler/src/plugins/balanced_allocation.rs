//! Nodes are liked on which cpu and memory would be used up at the same rate.

use crate::{
    framework::{BEST, Event, NodeScore, Plugin},
    pod::{PodInfo, Shape},
    resources::Resources,
    snapshot::NodeInfo,
};

pub struct BalancedAllocation;

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        "NodeResourcesBalancedAllocation"
    }

    fn helps(&self, _event: &Event<'_>, _pod: &PodInfo) -> bool {
        false
    }
}

impl NodeScore for BalancedAllocation {
    /// A pod that asks for nothing changes no balance.
    fn applies(&self, shape: &Shape) -> bool {
        shape.requests.said.milli_cpu != 0 || shape.requests.said.memory != 0
    }

    /// How much better the pod makes the balance of the node.
    fn score(&self, shape: &Shape, node: &NodeInfo) -> i64 {
        let mut with = node.requested.clone();
        with.add(&shape.requests.said);
        let better = balance(&with, &node.allocatable) - balance(&node.requested, &node.allocatable);
        BEST / 2 + (BEST / 2 + better) / 2
    }
}

/// [`BEST`] if the same part of everything is taken; less, the more the parts differ.
fn balance(taken: &Resources, has: &Resources) -> i64 {
    let part = |taken: i64, has: i64| (has > 0).then(|| (taken as f64 / has as f64).min(1.0));
    let deviation = match (part(taken.milli_cpu, has.milli_cpu), part(taken.memory, has.memory)) {
        (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
        _ => 0.0,
    };
    ((1.0 - deviation) * BEST as f64) as i64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{asking, cluster, node, pod};

    #[test]
    fn what_evens_out_is_better() {
        let there = pod("there", asking(json!({"cpu": "1"})));
        let snapshot = cluster([node("uneven", json!({})), node("empty", json!({}))], [(there, "uneven")]);
        let score = |name: &str, requests| {
            let node = snapshot.node(snapshot.slot(name).expect("a node"));
            BalancedAllocation.score(&pod("new", asking(requests)).shape, node)
        };
        // Nothing changes, or everything becomes even.
        assert_eq!(score("empty", json!({"cpu": "1", "memory": "2Gi"})), 75);
        assert_eq!(score("uneven", json!({"memory": "2Gi"})), 87);
        assert_eq!(score("uneven", json!({"cpu": "1"})), 62);
        assert!(!BalancedAllocation.applies(&pod("silent", json!({})).shape));
    }
}
