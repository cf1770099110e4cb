//! What a pod's status is: a pure function of the pod, the runtime's state and the probes' results.
//!
//! | module | what |
//! |---|---|
//! | `containers` | the state of each container, now and before |
//! | `phase` | Pending, Running, Succeeded, Failed |
//! | `conditions` | Initialized, Ready, ContainersReady, PodReadyToStartContainers, PodScheduled |
//! | [`writer`] | tells the API, only what differs |
//!
//! Reasons and messages are Kubernetes'. A phase that is final stays.

mod conditions;
mod containers;
mod phase;
#[cfg(test)]
mod tests;
pub mod writer;

use std::{collections::HashMap, net::IpAddr};

use k8s_openapi::{
    api::core::v1::{HostIP, Pod, PodIP, PodStatus},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    pods::{
        containers::{is_final, is_on_host_network},
        observed::Observed,
    },
    probes::Results,
};

/// Why a container waits, or a pod has failed: a word and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    pub reason: String,
    pub message: String,
}

impl Reason {
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// All that a status is made from.
pub struct Facts<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    /// As it was told last; at first what the API has.
    pub previous: &'a PodStatus,
    /// Why containers could not be started, by name.
    pub waiting: &'a HashMap<String, Reason>,
    /// A container that runs already and is not shown to, since its hook has not ended.
    pub starting: Option<&'a str>,
    pub probed: &'a Results,
    /// The scheme of container ids.
    pub runtime_name: &'a str,
    pub host_ips: &'a [IpAddr],
    /// Containers that do not have yet what they were granted.
    pub resizing: &'a [String],
    /// Why the node does not grant what the pod asks for.
    pub resize_pending: Option<&'a Reason>,
    /// The node has given the pod up.
    pub failed: Option<&'a Reason>,
    /// Why the node has ended the pod through no fault of its own.
    pub disrupted: Option<&'a str>,
    /// No container will be started again.
    pub ending: bool,
    /// Nothing of the pod is left.
    pub ended: bool,
    pub now: Time,
}

pub fn pod_status(facts: &Facts) -> PodStatus {
    let (pod, previous) = (facts.pod, facts.previous);
    let mut status = PodStatus {
        observed_generation: pod.metadata.generation,
        start_time: previous.start_time.clone().or_else(|| Some(facts.now.clone())),
        // What others tell stays.
        nominated_node_name: previous.nominated_node_name.clone(),
        qos_class: previous.qos_class.clone(),
        resize: previous.resize.clone(),
        resource_claim_statuses: previous.resource_claim_statuses.clone(),
        extended_resource_claim_status: previous.extended_resource_claim_status.clone(),
        node_allocatable_resource_claim_statuses: previous.node_allocatable_resource_claim_statuses.clone(),
        ..PodStatus::default()
    };
    containers::fill(facts, &mut status);
    containers::add_probed(facts, &mut status);
    let phase = settled_phase(facts, phase::phase(facts, &status));
    if previous.phase.as_deref() == Some(phase) {
        status.reason.clone_from(&previous.reason);
        status.message.clone_from(&previous.message);
    }
    if let Some(failed) = facts.failed {
        status.reason = Some(failed.reason.clone());
        status.message = Some(failed.message.clone());
    }
    status.phase = Some(phase.to_owned());
    if facts.ended {
        containers::end(facts, &mut status);
    }
    conditions::fill(facts, &mut status);
    addresses(facts, &mut status);
    status
}

/// The phase with what must hold of it: what is final stays, and a pod that has ended is not going on.
fn settled_phase(facts: &Facts, phase: &'static str) -> &'static str {
    let told = |status: &PodStatus| match status.phase.as_deref() {
        Some("Succeeded") => Some("Succeeded"),
        Some("Failed") => Some("Failed"),
        _ => None,
    };
    if let Some(told) = facts.pod.status.as_ref().and_then(told).or_else(|| told(facts.previous)) {
        return told;
    }
    if facts.failed.is_some() || facts.ended && !is_final(phase) { "Failed" } else { phase }
}

/// A pod's addresses are kept when its sandbox has gone.
fn addresses(facts: &Facts, status: &mut PodStatus) {
    let host: Vec<String> = facts.host_ips.iter().take(2).map(IpAddr::to_string).collect();
    status.host_ip = host.first().cloned();
    status.host_ips = (!host.is_empty()).then(|| host.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    let known: Vec<String> = facts.previous.pod_ips.iter().flatten().map(|known| known.ip.clone()).collect();
    let pod: Vec<String> = if is_on_host_network(facts.pod) {
        if known.is_empty() { host } else { known }
    } else if facts.observed.addresses().is_empty() {
        known
    } else {
        facts.observed.addresses().iter().map(IpAddr::to_string).collect()
    };
    status.pod_ip = pod.first().cloned();
    status.pod_ips = (!pod.is_empty()).then(|| pod.into_iter().map(|ip| PodIP { ip }).collect());
}
