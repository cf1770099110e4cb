//! Every plugin there is, in Kubernetes' order and with its weights. Reading this file shows the whole profile.

mod balanced_allocation;
mod default_binder;
mod default_preemption;
mod image_locality;
mod inter_pod_affinity;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod priority_sort;
mod resources_fit;
mod scheduling_gates;
pub mod taint_toleration;
mod topology_spread;
mod volume_binding;

use std::sync::Arc;

use controller_runtime::{Informers, Key};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    policy::v1::PodDisruptionBudget,
};
use kube::Client;

use crate::framework::{BEST, Bind, Framework};
use topology_spread::Together;

/// Looks an object up.
type Lookup<K> = Box<dyn Fn(&Key) -> Option<Arc<K>> + Send + Sync>;

/// What plugins reach for beyond nodes and pods.
pub struct Lookups {
    pub bind: Arc<dyn Bind>,
    pub together: Together,
    pub claim: Lookup<PersistentVolumeClaim>,
    pub volume: Lookup<PersistentVolume>,
    pub budgets: Box<dyn Fn() -> Vec<Arc<PodDisruptionBudget>> + Send + Sync>,
}

impl Lookups {
    pub fn new(client: Client, informers: &Informers) -> Self {
        let (claims, volumes, budgets) = (informers.of(), informers.of(), informers.of());
        Self {
            bind: Arc::new(default_binder::DefaultBinder { client }),
            together: topology_spread::together(informers),
            claim: Box::new(move |key| claims.get(key)),
            volume: Box::new(move |key| volumes.get(key)),
            budgets: Box::new(move || budgets.all()),
        }
    }
}

/// The plugins of the profile `default-scheduler`.
pub fn all(lookups: Lookups) -> Framework {
    let Lookups { bind, together, claim, volume, budgets } = lookups;
    let gates = Arc::new(scheduling_gates::SchedulingGates);
    let unschedulable = Arc::new(node_unschedulable::NodeUnschedulable);
    let name = Arc::new(node_name::NodeName);
    let taints = Arc::new(taint_toleration::TaintToleration);
    let affinity = Arc::new(node_affinity::NodeAffinity);
    let ports = Arc::new(node_ports::NodePorts);
    let fit = Arc::new(resources_fit::NodeResourcesFit);
    let volumes = Arc::new(volume_binding::VolumeBinding { claim, volume });
    let spread = Arc::new(topology_spread::TopologySpread { together });
    let pods = Arc::new(inter_pod_affinity::InterPodAffinity);
    let preemption = Arc::new(default_preemption::DefaultPreemption { budgets });
    let balanced = Arc::new(balanced_allocation::BalancedAllocation);
    let images = Arc::new(image_locality::ImageLocality);
    Framework {
        pre_enqueue: vec![gates.clone()],
        queue_sort: Arc::new(priority_sort::PrioritySort),
        node_filters: vec![unschedulable.clone(), taints.clone(), affinity.clone(), ports.clone(), fit.clone()],
        pre_filters: vec![name.clone(), affinity.clone(), volumes.clone(), spread.clone(), pods.clone()],
        post_filters: vec![preemption],
        node_scores: vec![(3, taints.clone()), (2, affinity.clone()), (1, fit.clone()), (1, balanced)],
        pre_scores: vec![(2, spread.clone()), (2, pods.clone()), (1, images)],
        reserve: vec![],
        permit: vec![],
        pre_bind: vec![],
        bind,
        post_bind: vec![],
        rejecters: vec![gates, unschedulable, name, taints, affinity, ports, fit, volumes, spread, pods],
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
