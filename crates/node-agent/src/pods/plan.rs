//! What a pod needs done, from what it should be and what the runtime has: a pure function.

use container_runtime::services::{ContainerState, ContainerStatus, LinuxContainerResources};
use k8s_openapi::api::core::v1::{Container, Pod};

use super::{
    containers::{
        Kind, ephemeral_containers, init_containers, kind_of_init, main_containers, matching_rule, restart_policy,
        restarts_after, restarts_after_failed_probe,
    },
    observed::{Observed, has_exited, image_of},
    resize::Update,
};
use crate::probes::{Outcome, ProbeKind, Results};

/// What is to be done, in this order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Everything of the pod is stopped first.
    pub stop_pod: bool,
    pub stop: Vec<Stop>,
    /// Containers are removed, those that run killed first: all of the pod start again.
    pub reset: Vec<String>,
    /// Containers that go on with other limits.
    pub update: Vec<Update>,
    /// What the pod as a whole is limited to from now on.
    pub limit_pod: Option<LinuxContainerResources>,
    pub sandbox: Option<NewSandbox>,
    pub start: Vec<Start>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct NewSandbox {
    pub attempt: u32,
    /// There is one already that cannot be used.
    pub replaces: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Stop {
    pub id: String,
    pub name: String,
    pub message: String,
    /// The probe that failed, if that is why.
    pub probe: Option<ProbeKind>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    pub kind: Kind,
    pub name: String,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn start(&mut self, kind: Kind, container: &Container) {
        self.start.push(Start { kind, name: container.name.clone() });
    }

    fn stop(&mut self, status: &ContainerStatus, message: String, probe: Option<ProbeKind>) {
        let (id, name) = (status.id.clone(), status.metadata.name.clone());
        self.stop.push(Stop { id, name, message, probe });
    }
}

/// What the pod needs done now.
pub fn plan(pod: &Pod, observed: &Observed, probed: &Results) -> Plan {
    let mut plan = Plan::default();
    if observed.usable_sandbox(pod).is_none() {
        plan_sandbox(pod, observed, &mut plan);
        return plan;
    }
    plan.reset = to_reset(pod, observed);
    if !plan.reset.is_empty() {
        return plan;
    }
    for (container, _) in ephemeral_containers(pod) {
        if observed.latest(&container.name).is_none() {
            plan.start(Kind::Ephemeral, &container);
        }
    }
    if !plan_init_containers(pod, observed, probed, &mut plan) || plan.stop_pod {
        return plan;
    }
    let mut kept = 0;
    let mut starts = 0;
    for container in main_containers(pod) {
        match observed.latest(&container.name).filter(|latest| latest.state == ContainerState::Running) {
            None => {
                if observed.is_to_be_started(pod, container) {
                    plan.start(Kind::Main, container);
                    starts += 1;
                }
            }
            Some(latest) => match why_not_kept(container, latest, probed) {
                None => kept += 1,
                Some((why, probe)) => {
                    let message = format!("Container {} {why}", container.name);
                    // A container that has become another one starts whatever its policy is.
                    if probe.is_none() || restarts_after_failed_probe(pod, container) {
                        plan.stop(latest, format!("{message}, will be restarted"), probe);
                        plan.start(Kind::Main, container);
                        starts += 1;
                    } else {
                        plan.stop(latest, message, probe);
                    }
                }
            },
        }
    }
    if kept == 0 && starts == 0 {
        plan.stop_pod = true;
        // Sidecars do not keep a pod alive.
        plan.start.clear();
    }
    plan
}

/// The sandbox is missing or dead: everything starts from the beginning, if anything has to start at all.
fn plan_sandbox(pod: &Pod, observed: &Observed, plan: &mut Plan) {
    let attempt = observed.next_attempt();
    plan.stop_pod = observed.has_anything_running();
    let never = restart_policy(pod) == "Never"
        && !main_containers(pod)
            .iter()
            .chain(init_containers(pod))
            .any(|container| container.restart_policy.is_some() && observed.is_to_be_started(pod, container));
    if never && attempt > 0 && !observed.containers.is_empty() {
        return;
    }
    let done = |container: &&Container| {
        let policy = container.restart_policy.as_deref().unwrap_or_else(|| restart_policy(pod));
        let succeeded =
            observed.latest(&container.name).is_some_and(|latest| has_exited(latest) && latest.exit_code == 0);
        policy == "OnFailure" && succeeded
    };
    let to_start: Vec<&Container> = main_containers(pod).iter().filter(|container| !done(container)).collect();
    if to_start.is_empty() && observed.has_main_container(pod) {
        return;
    }
    plan.sandbox = Some(NewSandbox { attempt, replaces: attempt > 0 });
    match init_containers(pod).first() {
        Some(first) => plan.start(kind_of_init(first), first),
        None => to_start.into_iter().for_each(|container| plan.start(Kind::Main, container)),
    }
}

/// What the init containers need. Whether the main containers may start.
fn plan_init_containers(pod: &Pod, observed: &Observed, probed: &Results, plan: &mut Plan) -> bool {
    let init = init_containers(pod);
    let Some(last_index) = init.len().checked_sub(1) else { return true };
    if observed.has_active_main_container(pod) {
        init.iter().for_each(|container| keep_sidecar(container, observed, probed, plan));
        return true;
    }
    let Some(reached) = init.iter().rposition(|container| observed.latest(&container.name).is_some()) else {
        init.iter().take(1).for_each(|first| plan.start(kind_of_init(first), first));
        return false;
    };
    init.iter().take(reached).for_each(|container| keep_sidecar(container, observed, probed, plan));
    let Some(container) = init.get(reached) else { return false };
    let Some(latest) = observed.latest(&container.name) else { return false };
    let kind = kind_of_init(container);
    let done = match (latest.state, kind) {
        (ContainerState::Created, _) => {
            plan.start(kind, container);
            false
        }
        (ContainerState::Running, Kind::Sidecar) => {
            let started = container.startup_probe.is_none()
                || probed.get(&latest.id, ProbeKind::Startup) == Some(Outcome::Success);
            keep_sidecar(container, observed, probed, plan);
            started
        }
        (ContainerState::Running, _) => false,
        (ContainerState::Exited | ContainerState::Unknown, Kind::Sidecar) => {
            keep_sidecar(container, observed, probed, plan);
            false
        }
        (ContainerState::Exited, _) if latest.exit_code == 0 => true,
        (ContainerState::Exited, _) => {
            if restarts_after(pod, container, latest.exit_code) {
                plan.start(kind, container);
            } else {
                plan.stop_pod = true;
                plan.start.clear();
            }
            false
        }
        (ContainerState::Unknown, _) => {
            if restarts_after_failed_probe(pod, container) {
                plan.stop(latest, unknown("Init container"), None);
                plan.start(kind, container);
            } else {
                plan.stop_pod = true;
                plan.start.clear();
            }
            false
        }
    };
    if done && reached < last_index {
        init.iter().skip(reached + 1).take(1).for_each(|next| plan.start(kind_of_init(next), next));
        return false;
    }
    done
}

fn unknown(what: &str) -> String {
    format!("{what} is in \"unknown\" state, try killing it before restart")
}

/// A sidecar runs again whenever it does not, or does not do well.
fn keep_sidecar(container: &Container, observed: &Observed, probed: &Results, plan: &mut Plan) {
    if kind_of_init(container) != Kind::Sidecar {
        return;
    }
    if let Some(latest) = observed.latest(&container.name) {
        match latest.state {
            ContainerState::Running => {
                let Some((why, probe)) = why_not_kept(container, latest, probed) else { return };
                plan.stop(latest, format!("Init container {} {why}", container.name), probe);
            }
            ContainerState::Unknown => plan.stop(latest, unknown("Init container"), None),
            ContainerState::Created | ContainerState::Exited => {}
        }
    }
    plan.start(Kind::Sidecar, container);
}

/// Why a container that runs does not go on: it has become another one, or has failed a probe.
fn why_not_kept(
    container: &Container,
    latest: &ContainerStatus,
    probed: &Results,
) -> Option<(String, Option<ProbeKind>)> {
    if image_of(latest).is_some_and(|image| container.image.as_deref() != Some(image)) {
        return Some(("definition changed".to_owned(), None));
    }
    let mut kinds = [ProbeKind::Liveness, ProbeKind::Startup].into_iter();
    let failed = kinds.find(|kind| probed.get(&latest.id, *kind) == Some(Outcome::Failure))?;
    Some((format!("failed {failed} probe"), Some(failed)))
}

/// A rule of a container that ended may ask for all containers to start again: then all of them are removed, those that asked last.
fn to_reset(pod: &Pod, observed: &Observed) -> Vec<String> {
    let asks = |status: &&ContainerStatus| {
        let spec =
            main_containers(pod).iter().chain(init_containers(pod)).find(|spec| spec.name == status.metadata.name);
        has_exited(status)
            && spec.is_some_and(|spec| matching_rule(spec, status.exit_code) == Some("RestartAllContainers"))
    };
    if pod.metadata.deletion_timestamp.is_some() || !observed.containers.iter().any(|status| asks(&status)) {
        return Vec::new();
    }
    let (last, first): (Vec<_>, Vec<_>) = observed.containers.iter().partition(asks);
    first.into_iter().chain(last).map(|status| status.id.clone()).collect()
}

#[cfg(test)]
mod tests;
