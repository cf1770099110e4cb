//! Probes: whether a container has started, is alive, is ready to serve.
//!
//! Each probe of each running container is a task with its own clock, told by the pod's worker when to begin and to end; it tells
//! the worker only what has changed. While a container has a startup probe that has not succeeded, the others wait.
//!
//! | module | what |
//! |---|---|
//! | `task` | the clock and the thresholds of one probe |
//! | `check` | one look, of whatever kind, and what it found |
//! | [`http`] | requests over HTTP, also of lifecycle hooks |
//! | `grpc` | gRPC's health protocol |

mod check;
mod grpc;
pub mod http;
mod task;

use std::{collections::HashMap, fmt, net::IpAddr, sync::Arc};

use container_runtime::services::ContainerState;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::{sync::mpsc, task::JoinHandle};

use crate::pods::{
    containers::{Kind, init_containers, is_on_host_network, kind_of_init, main_containers},
    context::Context,
    observed::Observed,
    worker::Message,
};

/// What a probe asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    Startup,
    Liveness,
    Readiness,
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProbeKind::Startup => "startup",
            ProbeKind::Liveness => "liveness",
            ProbeKind::Readiness => "readiness",
        })
    }
}

impl ProbeKind {
    fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            ProbeKind::Startup => container.startup_probe.as_ref(),
            ProbeKind::Liveness => container.liveness_probe.as_ref(),
            ProbeKind::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

/// What came out, after the thresholds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failure,
}

/// What the probes of a pod's containers have found, by the container's id.
#[derive(Debug, Default)]
pub struct Results {
    outcomes: HashMap<(String, ProbeKind), Outcome>,
}

impl Results {
    pub fn get(&self, container_id: &str, kind: ProbeKind) -> Option<Outcome> {
        self.outcomes.get(&(container_id.to_owned(), kind)).copied()
    }

    pub fn set(&mut self, container_id: &str, kind: ProbeKind, outcome: Outcome) {
        self.outcomes.insert((container_id.to_owned(), kind), outcome);
    }
}

/// The probes of one pod.
pub struct Probes {
    context: Arc<Context>,
    worker: mpsc::UnboundedSender<Message>,
    results: Results,
    tasks: HashMap<(String, ProbeKind), JoinHandle<()>>,
}

impl Probes {
    /// What the API was told of containers that run holds until a probe finds something else.
    pub fn new(context: Arc<Context>, worker: mpsc::UnboundedSender<Message>, pod: &Pod) -> Self {
        let mut results = Results::default();
        let status = pod.status.as_ref();
        let lists = status.map(|status| [&status.container_statuses, &status.init_container_statuses]);
        for told in lists.into_iter().flatten().flatten().flatten() {
            let id = told.container_id.as_deref().and_then(|id| id.split_once("://")).map_or("", |(_, id)| id);
            if told.started == Some(true) {
                results.set(id, ProbeKind::Startup, Outcome::Success);
            }
            if told.ready {
                results.set(id, ProbeKind::Readiness, Outcome::Success);
            }
        }
        Self { context, worker, results, tasks: HashMap::new() }
    }

    pub fn results(&self) -> &Results {
        &self.results
    }

    /// A probe has found something.
    pub fn found(&mut self, container_id: &str, kind: ProbeKind, outcome: Outcome) {
        // It may have been on its way when the probe was ended.
        if self.tasks.contains_key(&(container_id.to_owned(), kind)) {
            self.results.set(container_id, kind, outcome);
        }
    }

    /// Probes the containers that run, all but the one whose hook has not ended.
    pub fn follow(&mut self, pod: &Pod, observed: &Observed, starting: Option<&str>) {
        self.follow_kinds(pod, observed, starting, &[ProbeKind::Liveness, ProbeKind::Readiness]);
    }

    /// The pod is ending: only whether it still serves is of interest.
    pub fn follow_readiness(&mut self, pod: &Pod, observed: &Observed) {
        self.follow_kinds(pod, observed, None, &[ProbeKind::Readiness]);
    }

    fn follow_kinds(&mut self, pod: &Pod, observed: &Observed, starting: Option<&str>, kinds: &[ProbeKind]) {
        let running = |id: &str| observed.running().any(|container| container.id == id);
        let results = &mut self.results;
        results.outcomes.retain(|(id, _), _| observed.containers.iter().any(|container| container.id == *id));
        self.tasks.retain(|(id, kind), task| {
            let keep = running(id);
            if !keep {
                task.abort();
                // Whoever has ended serves nobody.
                if *kind == ProbeKind::Readiness {
                    results.set(id, *kind, Outcome::Failure);
                }
            }
            keep
        });
        let sidecars = init_containers(pod).iter().filter(|container| kind_of_init(container) == Kind::Sidecar);
        for container in sidecars.chain(main_containers(pod)) {
            let latest = observed.latest(&container.name).filter(|latest| latest.state == ContainerState::Running);
            let Some(latest) = latest.filter(|_| starting != Some(container.name.as_str())) else { continue };
            let started = container.startup_probe.is_none()
                || self.results.get(&latest.id, ProbeKind::Startup) == Some(Outcome::Success);
            let kinds = match started {
                true => kinds,
                false if kinds.contains(&ProbeKind::Liveness) => &[ProbeKind::Startup],
                false => continue,
            };
            for kind in kinds {
                let Some(spec) = kind.of(container) else { continue };
                let key = (latest.id.clone(), *kind);
                if self.tasks.contains_key(&key) {
                    continue;
                }
                let addresses: &[IpAddr] = match is_on_host_network(pod) {
                    true => &self.context.settings.addresses,
                    false => observed.addresses(),
                };
                let task = task::Task {
                    context: self.context.clone(),
                    worker: self.worker.clone(),
                    pod: Arc::new(pod.clone()),
                    container: container.clone(),
                    spec: spec.clone(),
                    kind: *kind,
                    container_id: latest.id.clone(),
                    started_at: latest.started_at,
                    address: addresses.first().map(IpAddr::to_string).unwrap_or_default(),
                };
                self.tasks.insert(key, tokio::spawn(task.run()));
            }
        }
    }

    /// A pod that ends is not stopped for a failed probe any more.
    pub fn terminate(&mut self) {
        self.tasks.retain(|(_, kind), task| {
            let keep = *kind == ProbeKind::Readiness;
            if !keep {
                task.abort();
            }
            keep
        });
    }

    pub fn stop(&mut self) {
        self.tasks.drain().for_each(|(_, task)| task.abort());
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop();
    }
}
