//! Stopping containers: hook, signal, patience, and in which order.

use std::{collections::HashMap, sync::Arc, time::Duration};

use container_runtime::services::{ContainerState, ContainerStatus, ServiceError};
use controller_runtime::events::EventType;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    containers::{Kind, find, init_containers},
    context::Context,
    hooks,
    observed::Observed,
};
use crate::{configuration::annotations, probes::ProbeKind};

/// However short the time is, a container gets this long to end by itself.
const SHORTEST_GRACE: i64 = 2;
/// However long it is, it ends before the clock of the machine does.
const LONGEST_GRACE: u64 = 100 * 365 * 24 * 3600;

/// How one container is stopped.
pub struct Kill<'a> {
    pub id: &'a str,
    pub name: &'a str,
    /// What the event says; by default that it is being stopped.
    pub message: Option<&'a str>,
    /// The probe that failed, which may have a grace period of its own.
    pub probe: Option<ProbeKind>,
    /// Instead of the pod's grace period.
    pub grace: Option<i64>,
}

/// The seconds that a container of the pod is given.
fn grace_period(pod: &Pod, container: &Container, probe: Option<ProbeKind>) -> i64 {
    if let Some(seconds) =
        pod.metadata.deletion_grace_period_seconds.filter(|_| pod.metadata.deletion_timestamp.is_some())
    {
        return seconds;
    }
    let of_probe = match probe {
        Some(ProbeKind::Liveness) => container.liveness_probe.as_ref(),
        Some(ProbeKind::Startup) => container.startup_probe.as_ref(),
        Some(ProbeKind::Readiness) | None => None,
    };
    let own = of_probe.and_then(|probe| probe.termination_grace_period_seconds);
    own.or_else(|| pod.spec.as_ref()?.termination_grace_period_seconds).unwrap_or(SHORTEST_GRACE)
}

/// Stops a container: its hook first, then its turn, then the signal. `turn` ends when those have ended that go before it.
pub async fn kill(
    context: &Context,
    pod: &Pod,
    observed: &Observed,
    kill: &Kill<'_>,
    turn: impl Future<Output = ()>,
) -> Result<(), ServiceError> {
    let Some((_, container)) = find(pod, kill.name) else {
        // Nothing is known of it but that it runs, and what was written down when it was made.
        let running = observed.containers.iter().find(|container| container.id == kill.id);
        let written = running.and_then(|container| container.annotations.get(annotations::GRACE_PERIOD));
        let grace = kill.grace.or_else(|| written?.parse().ok()).unwrap_or(SHORTEST_GRACE);
        return context.runtime().stop_container(kill.id, grace.max(SHORTEST_GRACE)).await;
    };
    let message = kill.message.map_or_else(|| format!("Stopping container {}", kill.name), str::to_owned);
    context.container_event(pod, kill.name, EventType::Normal, "Killing", message);
    let grace = kill.grace.unwrap_or_else(|| grace_period(pod, &container, kill.probe));
    let deadline = Instant::now() + seconds(grace);
    if let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref())
        && grace > 0
    {
        let run = hooks::run(context, pod, &container, kill.id, observed.addresses(), hook);
        if let Ok(Err(why)) = timeout(seconds(grace), run).await {
            tracing::debug!(container = kill.name, why, "a preStop hook failed");
            context.container_event(pod, kill.name, EventType::Warning, "FailedPreStopHook", "PreStopHook failed");
        }
    }
    // Whoever goes before has until the deadline, as everybody.
    let _ = tokio::time::timeout_at(deadline, turn).await;
    let left = deadline.saturating_duration_since(Instant::now()).as_secs_f64().ceil() as i64;
    context.runtime().stop_container(kill.id, left.max(SHORTEST_GRACE)).await
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LONGEST_GRACE))
}

/// Stops all that runs in the pod, sidecars after the main containers and in the reverse order of their start, then the
/// sandboxes. `grace` takes the place of the pod's.
pub async fn kill_pod(
    context: &Context,
    pod: &Pod,
    observed: &Observed,
    grace: Option<i64>,
) -> Result<(), ServiceError> {
    let running: Vec<&ContainerStatus> = observed
        .containers
        .iter()
        .filter(|container| matches!(container.state, ContainerState::Running | ContainerState::Unknown))
        .collect();
    let ended: HashMap<&str, Arc<CancellationToken>> =
        running.iter().map(|container| (container.metadata.name.as_str(), Arc::default())).collect();
    let kills = running.iter().map(|container| {
        let name = container.metadata.name.as_str();
        let before: Vec<_> = go_before(pod, name).filter_map(|other| ended.get(other.as_str()).cloned()).collect();
        let done = ended.get(name).cloned();
        async move {
            let turn = async {
                for other in before {
                    other.cancelled().await;
                }
            };
            let how = Kill { id: &container.id, name, message: None, probe: None, grace };
            let result = kill(context, pod, observed, &how, turn).await;
            if let Some(done) = done {
                done.cancel();
            }
            result
        }
    });
    for result in join_all(kills).await {
        match result {
            Ok(()) | Err(ServiceError::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    for sandbox in &observed.sandboxes {
        context.runtime().stop_pod_sandbox(&sandbox.id).await?;
    }
    Ok(())
}

/// The containers that have to end before this one is stopped.
fn go_before(pod: &Pod, name: &str) -> impl Iterator<Item = String> {
    let mut before = Vec::new();
    if find(pod, name).is_some_and(|(kind, _)| kind == Kind::Sidecar) {
        let later = init_containers(pod).iter().rev().take_while(|container| container.name != name);
        let main = pod.spec.iter().flat_map(|spec| &spec.containers);
        before.extend(later.chain(main).map(|container| container.name.clone()));
    }
    before.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_grace_period_has_an_end() {
        let now = Instant::now();
        assert_eq!(now + seconds(-1), now);
        assert!(now + seconds(i64::MAX) > now + seconds(1 << 31));
    }
}
