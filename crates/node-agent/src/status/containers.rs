//! The state of each container of a pod, now and before.

use container_runtime::services::{ContainerState as Runtime, ContainerStatus as Known};
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, PodStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::{Facts, Reason};
use crate::{
    pods::{
        containers::{Kind, ephemeral_containers, init_containers, kind_of_init, main_containers},
        observed::image_of,
    },
    probes::{Outcome, ProbeKind},
};

/// All messages of a pod's containers together are at most this long.
const LONGEST_MESSAGES: usize = 12 * 1024;

pub fn fill(facts: &Facts, status: &mut PodStatus) {
    let previous = facts.previous;
    // Nothing is said of the containers of a pod that was rejected.
    if facts.failed.is_some() && facts.observed.containers.is_empty() && previous.container_statuses.is_none() {
        return;
    }
    let main: Vec<ContainerStatus> = main_containers(facts.pod)
        .iter()
        .map(|container| container_status(facts, Kind::Main, container, previous.container_statuses.as_ref()))
        .collect();
    let init: Vec<ContainerStatus> = init_containers(facts.pod)
        .iter()
        .map(|container| {
            let before = previous.init_container_statuses.as_ref();
            container_status(facts, kind_of_init(container), container, before)
        })
        .collect();
    let ephemeral: Vec<ContainerStatus> = ephemeral_containers(facts.pod)
        .iter()
        .map(|(container, _)| {
            let before = previous.ephemeral_container_statuses.as_ref();
            container_status(facts, Kind::Ephemeral, container, before)
        })
        .collect();
    let longest = LONGEST_MESSAGES / (main.len() + init.len() + ephemeral.len()).max(1);
    let filled = |mut statuses: Vec<ContainerStatus>| {
        statuses.iter_mut().for_each(|status| shorten(status, longest));
        (!statuses.is_empty()).then_some(statuses)
    };
    status.container_statuses = filled(main);
    status.init_container_statuses = filled(init);
    status.ephemeral_container_statuses = filled(ephemeral);
}

fn container_status(
    facts: &Facts,
    kind: Kind,
    container: &Container,
    before: Option<&Vec<ContainerStatus>>,
) -> ContainerStatus {
    let before = before.into_iter().flatten().find(|before| before.name == container.name);
    let mut known = facts.observed.containers.iter().filter(|known| known.metadata.name == container.name);
    let hidden = facts.starting == Some(container.name.as_str());
    let mut status = match known.next() {
        Some(latest) => {
            let mut status = of_known(facts, container, latest, before);
            if let Some(earlier) = known.next() {
                status.last_state = Some(state_of(facts, earlier, None));
            }
            status
        }
        None => of_unknown(facts, kind, container, before),
    };
    if hidden && status.state.as_ref().is_some_and(|state| state.running.is_some()) {
        status.state = Some(waiting(default_reason(facts), ""));
    }
    if let Some(reason) = facts.waiting.get(&container.name).filter(|_| is_to_be_shown_waiting(facts, kind, container))
    {
        let Reason { reason, message } = reason;
        let ended = status.state.take().filter(|state| state.terminated.is_some());
        if ended.is_some() {
            status.last_state = ended;
        }
        status.state = Some(waiting(reason, message));
    }
    status
}

/// Whether the reason why it could not be started is what counts.
fn is_to_be_shown_waiting(facts: &Facts, kind: Kind, container: &Container) -> bool {
    let latest = facts.observed.latest(&container.name);
    let succeeded = latest.is_some_and(|latest| latest.state == Runtime::Exited && latest.exit_code == 0);
    match kind {
        Kind::Init if succeeded => false,
        Kind::Ephemeral => latest.is_none_or(|latest| latest.state == Runtime::Created),
        _ => !facts.ending && facts.observed.is_to_be_started(facts.pod, container),
    }
}

fn default_reason(facts: &Facts) -> &'static str {
    if init_containers(facts.pod).is_empty() { "ContainerCreating" } else { "PodInitializing" }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let message = (!message.is_empty()).then(|| message.to_owned());
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ContainerState { waiting: Some(waiting), ..ContainerState::default() }
}

fn terminated(reason: &str, message: &str, exit_code: i32) -> ContainerState {
    let terminated = ContainerStateTerminated {
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        exit_code,
        ..ContainerStateTerminated::default()
    };
    ContainerState { terminated: Some(terminated), ..ContainerState::default() }
}

fn lost() -> ContainerState {
    terminated("ContainerStatusUnknown", "The container could not be located when the pod was terminated", 137)
}

/// Of a container that the runtime does not know.
fn of_unknown(facts: &Facts, kind: Kind, container: &Container, before: Option<&ContainerStatus>) -> ContainerStatus {
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting(default_reason(facts), "")),
        volume_mounts: volume_mounts(container),
        ..ContainerStatus::default()
    };
    let Some(before) = before else { return status };
    let state = before.state.as_ref();
    if state.is_some_and(|state| state.terminated.is_some()) {
        return ContainerStatus { started: None, ready: false, ..before.clone() };
    }
    status.restart_count = before.restart_count;
    status.last_state.clone_from(&before.last_state);
    if state.is_some_and(|state| state.running.is_some()) {
        let message = "The container could not be located when the pod was deleted.  The container used to be Running";
        status.last_state = Some(terminated("ContainerStatusUnknown", message, 137));
        status.restart_count += i32::from(facts.pod.metadata.deletion_timestamp.is_none());
    }
    if kind == Kind::Init && facts.observed.has_main_container(facts.pod) {
        let message = "Unable to get init container status from container runtime and pod has been initialized, treat it \
                       as exited normally";
        status.state = Some(terminated("Completed", message, 0));
    }
    status
}

fn of_known(facts: &Facts, container: &Container, known: &Known, before: Option<&ContainerStatus>) -> ContainerStatus {
    let mut restart_count = i32::try_from(known.metadata.attempt).unwrap_or(i32::MAX);
    if let Some(before) = before {
        restart_count = restart_count.max(before.restart_count);
    }
    let id = container_id(facts, known);
    // The runtime may not have the one before any more.
    let replaced = before.filter(|before| before.container_id.as_ref() != Some(&id));
    let last_state = match replaced.and_then(|before| before.state.as_ref()).filter(|state| state.terminated.is_some())
    {
        Some(ended) => Some(ended.clone()),
        None => before.and_then(|before| before.last_state.clone()),
    };
    let told = before.and_then(|before| before.resources.clone()).filter(|_| facts.resizing.contains(&container.name));
    let resources = told.unwrap_or_else(|| container.resources.clone().unwrap_or_default());
    ContainerStatus {
        name: container.name.clone(),
        image: image_of(known).or(container.image.as_deref()).unwrap_or(&known.image).to_owned(),
        image_id: known.image_ref.clone(),
        container_id: Some(id),
        restart_count,
        last_state,
        state: Some(state_of(facts, known, before)),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources: Some(resources),
        volume_mounts: before.and_then(|before| before.volume_mounts.clone()).or_else(|| volume_mounts(container)),
        ..ContainerStatus::default()
    }
}

fn container_id(facts: &Facts, known: &Known) -> String {
    format!("{}://{}", facts.runtime_name, known.id)
}

fn state_of(facts: &Facts, known: &Known, before: Option<&ContainerStatus>) -> ContainerState {
    match known.state {
        Runtime::Running => {
            let running = ContainerStateRunning { started_at: Some(time(known.started_at)) };
            ContainerState { running: Some(running), ..ContainerState::default() }
        }
        Runtime::Exited => {
            let terminated = ContainerStateTerminated {
                container_id: Some(container_id(facts, known)),
                exit_code: known.exit_code,
                finished_at: Some(time(known.finished_at)),
                message: (!known.message.is_empty()).then(|| known.message.clone()),
                reason: (!known.reason.is_empty()).then(|| known.reason.clone()),
                signal: None,
                started_at: Some(time(known.started_at)),
            };
            ContainerState { terminated: Some(terminated), ..ContainerState::default() }
        }
        Runtime::Unknown if before.and_then(|before| before.state.as_ref()).is_some_and(|s| s.running.is_some()) => {
            lost()
        }
        Runtime::Created | Runtime::Unknown => waiting(default_reason(facts), ""),
    }
}

/// In whole seconds, as the API has it.
fn time(nanoseconds: Option<i64>) -> Time {
    Time(Timestamp::from_second(nanoseconds.unwrap_or(0) / 1_000_000_000).unwrap_or_default())
}

fn volume_mounts(container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty())?;
    let told = mounts.iter().map(|mount| {
        let read_only = mount.read_only.unwrap_or(false);
        let recursive = match mount.recursive_read_only.as_deref() {
            Some("Enabled" | "IfPossible") => "Enabled",
            _ => "Disabled",
        };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: read_only.then_some(true),
            recursive_read_only: read_only.then(|| recursive.to_owned()),
            ..VolumeMountStatus::default()
        }
    });
    Some(told.collect())
}

/// Whether each container has started and is ready, by its probes.
pub fn add_probed(facts: &Facts, status: &mut PodStatus) {
    let specs = main_containers(facts.pod).iter().map(|container| (Kind::Main, container));
    let init = init_containers(facts.pod).iter().map(|container| (kind_of_init(container), container));
    for (kind, container) in specs.chain(init) {
        let mut all = status.container_statuses.iter_mut().chain(&mut status.init_container_statuses).flatten();
        let Some(told) = all.find(|told| told.name == container.name) else { continue };
        let state = told.state.as_ref();
        let running = state.is_some_and(|state| state.running.is_some());
        let id = told.container_id.as_deref().and_then(|id| id.split_once("://")).map_or("", |(_, id)| id);
        let passed = |kind| facts.probed.get(id, kind) == Some(Outcome::Success);
        let started = running && (container.startup_probe.is_none() || passed(ProbeKind::Startup));
        told.started = Some(started);
        told.ready = match kind {
            Kind::Init => state.and_then(|state| state.terminated.as_ref()).is_some_and(|ended| ended.exit_code == 0),
            _ => started && (container.readiness_probe.is_none() || passed(ProbeKind::Readiness)),
        };
    }
}

/// What still does not seem to have ended is lost.
pub fn end(facts: &Facts, status: &mut PodStatus) {
    let has_ended = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.terminated.is_some());
    if was_initialized(facts, status) {
        let open = status.container_statuses.iter_mut().flatten().filter(|told| !has_ended(told));
        open.for_each(|told| told.state = Some(lost()));
    }
    let statuses = status.init_container_statuses.iter_mut().flatten();
    for told in statuses.filter(|told| told.container_id.is_some() && !has_ended(told)) {
        told.state = Some(lost());
    }
    for told in status.container_statuses.iter_mut().chain(&mut status.init_container_statuses).flatten() {
        told.started = Some(false);
    }
}

/// Whether the main containers had their turn: one of them began, or the last init container was done.
fn was_initialized(facts: &Facts, status: &PodStatus) -> bool {
    let began = |told: &ContainerStatus| {
        let ran_before = told.last_state.as_ref().is_some_and(|last| last.terminated.is_some());
        ran_before || told.state.as_ref().is_none_or(|state| state.waiting.is_none())
    };
    let Some(last) = init_containers(facts.pod).last() else { return true };
    let told = status.init_container_statuses.iter().flatten().last();
    let last_done = told.is_some_and(|told| match kind_of_init(last) {
        Kind::Sidecar => told.started.unwrap_or(false),
        _ => told.ready,
    });
    last_done || status.container_statuses.iter().flatten().any(began)
}

fn shorten(status: &mut ContainerStatus, longest: usize) {
    let ended = [status.state.as_mut(), status.last_state.as_mut()];
    for message in ended.into_iter().flatten().filter_map(|state| state.terminated.as_mut()?.message.as_mut()) {
        if message.len() > longest {
            let cut = (0..=longest).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(cut);
        }
    }
}
