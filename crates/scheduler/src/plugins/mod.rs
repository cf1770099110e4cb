//! Every plugin there is, in Kubernetes' order and with its weights. Reading this file shows the whole profile.

mod balanced_allocation;
mod default_binder;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod priority_sort;
mod resources_fit;
mod scheduling_gates;
pub mod taint_toleration;

use std::sync::Arc;

use kube::Client;

use crate::framework::{BEST, Framework};

/// The plugins of the profile `default-scheduler`.
pub fn all(client: Client) -> Framework {
    let gates = Arc::new(scheduling_gates::SchedulingGates);
    let unschedulable = Arc::new(node_unschedulable::NodeUnschedulable);
    let name = Arc::new(node_name::NodeName);
    let taints = Arc::new(taint_toleration::TaintToleration);
    let affinity = Arc::new(node_affinity::NodeAffinity);
    let ports = Arc::new(node_ports::NodePorts);
    let fit = Arc::new(resources_fit::NodeResourcesFit);
    let balanced = Arc::new(balanced_allocation::BalancedAllocation);
    Framework {
        pre_enqueue: vec![gates.clone()],
        queue_sort: Arc::new(priority_sort::PrioritySort),
        node_filters: vec![unschedulable.clone(), taints.clone(), affinity.clone(), ports.clone(), fit.clone()],
        pre_filters: vec![name.clone(), affinity.clone()],
        post_filters: vec![],
        node_scores: vec![(3, taints.clone()), (2, affinity.clone()), (1, fit.clone()), (1, balanced)],
        pre_scores: vec![],
        reserve: vec![],
        permit: vec![],
        pre_bind: vec![],
        bind: Arc::new(default_binder::DefaultBinder { client }),
        post_bind: vec![],
        rejecters: vec![gates, unschedulable, name, taints, affinity, ports, fit],
    }
}

/// Brings scores to 0 to [`BEST`] by the best of them, or the other way around.
fn normalize(scores: &mut [i64], reverse: bool) {
    let most = scores.iter().copied().max().unwrap_or(0).max(0);
    for score in scores {
        let part = if most == 0 { 0 } else { BEST * *score / most };
        *score = if reverse { BEST - part } else { part };
    }
}
