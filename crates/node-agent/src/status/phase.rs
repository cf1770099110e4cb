//! The phase of a pod, from the states of its containers.

use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};

use super::Facts;
use crate::pods::containers::{Kind, init_containers, kind_of_init, main_containers, restarts_after};

/// How far a container is, for the phase.
enum Progress<'a> {
    Unknown,
    Waiting,
    Running,
    /// It has ended, or has ended before and waits to be started again.
    Ended(&'a ContainerStateTerminated),
}

fn progress<'a>(statuses: Option<&'a Vec<ContainerStatus>>, name: &str) -> (Progress<'a>, bool) {
    let Some(status) = statuses.into_iter().flatten().find(|status| status.name == name) else {
        return (Progress::Unknown, false);
    };
    let started = status.started.unwrap_or(false);
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let progress = match &status.state {
        Some(ContainerState { running: Some(_), .. }) => Progress::Running,
        Some(ContainerState { terminated: Some(ended), .. }) => Progress::Ended(ended),
        Some(ContainerState { waiting: Some(_), .. }) => last.map_or(Progress::Waiting, Progress::Ended),
        _ => Progress::Unknown,
    };
    (progress, started)
}

pub fn phase(facts: &Facts, status: &PodStatus) -> &'static str {
    let pod = facts.pod;
    let is_over =
        |container: &Container, ended: &ContainerStateTerminated| !restarts_after(pod, container, ended.exit_code);
    let (mut initializing, mut starting_sidecars) = (false, false);
    let (mut unknown, mut running, mut waiting, mut ended, mut over, mut succeeded) = (0, 0, 0, 0, 0, 0);
    for container in init_containers(pod) {
        let (progress, started) = progress(status.init_container_statuses.as_ref(), &container.name);
        match (kind_of_init(container), progress) {
            (Kind::Sidecar, Progress::Running) => {
                starting_sidecars |= !started;
                running += 1;
            }
            (Kind::Sidecar, Progress::Waiting) => {
                starting_sidecars = true;
                waiting += 1;
            }
            (Kind::Sidecar, Progress::Unknown) => {
                starting_sidecars = true;
                unknown += 1;
            }
            (Kind::Sidecar, Progress::Ended(_)) => {}
            (_, Progress::Ended(end)) if end.exit_code == 0 => {}
            (_, Progress::Ended(end)) if is_over(container, end) => return "Failed",
            (_, Progress::Ended(_)) => {}
            (_, _) => initializing = true,
        }
    }
    for container in main_containers(pod) {
        match progress(status.container_statuses.as_ref(), &container.name).0 {
            Progress::Unknown => unknown += 1,
            Progress::Waiting => waiting += 1,
            Progress::Running => running += 1,
            Progress::Ended(end) => {
                ended += 1;
                over += i32::from(is_over(container, end));
                succeeded += i32::from(end.exit_code == 0);
            }
        }
    }
    if initializing || (starting_sidecars && !facts.observed.has_active_main_container(pod)) || waiting > 0 {
        return "Pending";
    }
    match (running, ended, unknown) {
        (1.., _, 0) => "Running",
        (0, 1.., 0) if !facts.ending && ended != over => "Running",
        (0, 1.., 0) if ended == succeeded => "Succeeded",
        (0, 1.., 0) => "Failed",
        _ => "Pending",
    }
}
