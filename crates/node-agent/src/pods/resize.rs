//! Resizing in place: a running pod gets more or less of the node, if the node has it.
//!
//! What a pod has is what was last granted. A wish that cannot be granted is told (`PodResizePending`), and the pod goes on as it
//! was; one that is granted is carried out (`PodResizeInProgress` until it is), and containers that want it start again.

use container_runtime::services::{ContainerState, LinuxContainerResources};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};

use super::{
    containers::{Kind, init_containers, kind_of_init, main_containers},
    context::Context,
    observed::Observed,
    plan::{Plan, Start, Stop},
};

/// Whether two pods ask for the same.
pub fn asks_the_same(one: &Pod, other: &Pod) -> bool {
    let resources = |container: &Container| container.resources.clone().unwrap_or_default();
    let of_pod = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.resources.clone());
    let all = |pod: &Pod| -> Vec<ResourceRequirements> {
        init_containers(pod).iter().chain(main_containers(pod)).map(resources).collect()
    };
    of_pod(one) == of_pod(other) && all(one) == all(other)
}

/// The pod as it is now, but with what it was granted before.
pub fn as_granted(pod: &Pod, granted: &Pod) -> Pod {
    let mut pod = pod.clone();
    let (Some(spec), Some(before)) = (pod.spec.as_mut(), granted.spec.as_ref()) else { return pod };
    let find = |spec: &PodSpec, name: &str| {
        let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
        all.find(|container| container.name == name).map(|container| container.resources.clone())
    };
    spec.resources.clone_from(&before.resources);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        if let Some(resources) = find(before, &container.name) {
            container.resources = resources;
        }
    }
    pod
}

/// The running containers that do not have what they were granted, with what they should have.
fn unsettled<'a>(
    context: &'a Context,
    pod: &'a Pod,
    observed: &'a Observed,
) -> impl Iterator<Item = (Kind, &'a Container, String, LinuxContainerResources)> {
    let init = init_containers(pod).iter().map(|container| (kind_of_init(container), container));
    let all = init.chain(main_containers(pod).iter().map(|container| (Kind::Main, container)));
    all.filter_map(move |(kind, container)| {
        let latest = observed.latest(&container.name).filter(|latest| latest.state == ContainerState::Running)?;
        let wants = context.configuration.resources(pod, container);
        (sizes(&latest.resources) != sizes(&wants)).then(|| (kind, container, latest.id.clone(), wants))
    })
}

/// What can be changed of a container that runs: processor and memory.
fn sizes(resources: &LinuxContainerResources) -> (i64, i64, i64) {
    (resources.cpu_shares, resources.cpu_quota.max(0), resources.memory_limit_in_bytes)
}

/// The names of containers that do not have yet what they were granted.
pub fn in_progress(context: &Context, pod: &Pod, observed: &Observed) -> Vec<String> {
    unsettled(context, pod, observed).map(|(_, container, ..)| container.name.clone()).collect()
}

/// A limit that a container gets.
#[derive(Debug, PartialEq, Eq)]
pub struct Update {
    pub id: String,
    pub resources: LinuxContainerResources,
}

/// Adds to a plan what it takes for the containers to have what they were granted.
pub fn add_to(plan: &mut Plan, context: &Context, pod: &Pod, observed: &Observed) {
    if plan.stop_pod || plan.sandbox.is_some() {
        return;
    }
    for (kind, container, id, wants) in unsettled(context, pod, observed) {
        if plan.stop.iter().any(|stop| stop.id == id) {
            continue;
        }
        let Some(has) = observed.latest(&container.name).map(|latest| sizes(&latest.resources)) else { continue };
        let restarts = |resource: &str| {
            let mut policies = container.resize_policy.iter().flatten();
            policies.any(|policy| policy.resource_name == resource && policy.restart_policy == "RestartContainer")
        };
        let (cpu, memory) = ((has.0, has.1) != (sizes(&wants).0, sizes(&wants).1), has.2 != sizes(&wants).2);
        if kind != Kind::Init && (cpu && restarts("cpu") || memory && restarts("memory")) {
            let message = format!("Container {} resize requires restart", container.name);
            plan.stop.push(Stop { id, name: container.name.clone(), message, probe: None });
            plan.start.push(Start { kind, name: container.name.clone() });
        } else {
            let quota = if wants.cpu_quota == 0 { -1 } else { wants.cpu_quota };
            plan.update.push(Update { id, resources: LinuxContainerResources { cpu_quota: quota, ..wants } });
        }
    }
}
