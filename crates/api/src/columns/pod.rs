//! Pods: one word that says how a pod is doing, from the states of all its containers.

use object_model::time::Time;
use object_model::value::Fields;
use serde_json::{Value, json};

use super::cells::{age, at, filled_or, human, int, is_deleting, is_true, items, name, text, time};
use super::{AGE, Column, Columns, NAME, docs};

pub static POD: Columns = Columns {
    columns: &[
        NAME,
        Column::text("Ready", "The aggregate readiness state of this pod for accepting traffic."),
        Column::text("Status", "The aggregate status of the containers in this pod."),
        Column::text(
            "Restarts",
            "The number of times the containers in this pod have been restarted and when the last container in this \
            pod has restarted.",
        ),
        AGE,
        Column::text("IP", docs::POD_IP).wide(),
        Column::text("Node", docs::POD_NODE).wide(),
        Column::text("Nominated Node", docs::POD_NOMINATED_NODE).wide(),
        Column::text("Readiness Gates", docs::POD_READINESS_GATES).wide(),
    ],
    cells: |pod, now| {
        let summary = Summary::of(pod);
        let ip = items(pod, "status.podIPs").first().map_or("", |ip| ip.text("ip"));
        vec![
            name(pod),
            format!("{}/{}", summary.ready, summary.containers).into(),
            summary.reason.into(),
            summary.restarts.to_text(now).into(),
            age(pod, now),
            filled_or(ip, "<none>").into(),
            filled_or(text(pod, "spec.nodeName"), "<none>").into(),
            filled_or(text(pod, "status.nominatedNodeName"), "<none>").into(),
            readiness_gates(pod).into(),
        ]
    },
    conditions: |pod| {
        let (reason, message) = match text(pod, "status.phase") {
            "Succeeded" => ("Succeeded", "The pod has completed successfully."),
            "Failed" => ("Failed", "The pod failed."),
            _ => return None,
        };
        Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
    },
};

/// How many of the gates are open.
fn readiness_gates(pod: &Value) -> String {
    let gates = items(pod, "spec.readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let open = gates.iter().filter(|gate| is_true(pod, gate.text("conditionType"))).count();
    format!("{open}/{}", gates.len())
}

struct Summary {
    ready: usize,
    /// Those that are meant to run on: sidecars are among them, other init containers are not.
    containers: usize,
    reason: String,
    restarts: Restarts,
}

#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Time>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += int(status, "restartCount");
        self.last = self.last.max(time(status, "lastState.terminated.finishedAt"));
    }

    fn to_text(self, now: Time) -> String {
        match self.last {
            Some(last) if self.count != 0 => format!("{} ({} ago)", self.count, human(now.since(last))),
            _ => self.count.to_string(),
        }
    }
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let init = Init::of(pod);
        let mut summary = Summary {
            ready: init.ready,
            containers: items(pod, "spec.containers").len() + sidecars(pod).count(),
            reason: phase(pod).to_owned(),
            restarts: init.restarts,
        };
        let initialized = init.blocked.is_none();
        if let Some(blocked) = init.blocked {
            summary.reason = blocked;
        }
        if initialized || is_true(pod, "Initialized") {
            summary.restarts = init.sidecar_restarts;
            summary.add_containers(pod);
        }
        let phase = text(pod, "status.phase");
        if is_deleting(pod) && text(pod, "status.reason") == "NodeLost" {
            summary.reason = "Unknown".to_owned();
        } else if is_deleting(pod) && phase != "Succeeded" && phase != "Failed" {
            summary.reason = "Terminating".to_owned();
        }
        summary
    }

    /// The first container that has something to say says it, but one that is still running outweighs those that
    /// completed.
    fn add_containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut failed = None;
        for status in items(pod, "status.containerStatuses").iter().rev() {
            self.restarts.add(status);
            let waiting = text(status, "state.waiting.reason");
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if let Some(ended) = at(status, "state.terminated") {
                self.reason = how_it_ended(ended);
                if int(ended, "exitCode") != 0 {
                    failed = Some(self.reason.clone());
                }
            } else if status.flag("ready") == Some(true) && at(status, "state.running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && is_true(pod, "Ready") {
                self.reason = "Running".to_owned();
            } else if let Some(failed) = failed {
                self.reason = failed;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }
}

/// What the pod says of itself.
fn phase(pod: &Value) -> &str {
    const GATED: &str = "SchedulingGated";
    let is_gated = |c: &Value| c.text("type") == "PodScheduled" && c.text("reason") == GATED;
    if items(pod, "status.conditions").iter().any(is_gated) {
        return GATED;
    }
    filled_or(text(pod, "status.reason"), text(pod, "status.phase"))
}

/// How far the init containers are.
#[derive(Default)]
struct Init {
    /// Sidecars that are ready.
    ready: usize,
    restarts: Restarts,
    sidecar_restarts: Restarts,
    /// Why the pod is not yet initialized.
    blocked: Option<String>,
}

impl Init {
    fn of(pod: &Value) -> Init {
        let mut init = Init::default();
        for (index, status) in items(pod, "status.initContainerStatuses").iter().enumerate() {
            let is_sidecar = sidecars(pod).any(|sidecar| sidecar.text("name") == status.text("name"));
            init.restarts.add(status);
            if is_sidecar {
                init.sidecar_restarts.add(status);
            }
            let ended = at(status, "state.terminated");
            if ended.is_some_and(|ended| int(ended, "exitCode") == 0) {
                continue;
            }
            if is_sidecar && status.flag("started") == Some(true) {
                init.ready += usize::from(status.flag("ready") == Some(true));
                continue;
            }
            let waiting = text(status, "state.waiting.reason");
            init.blocked = Some(match ended {
                Some(ended) => format!("Init:{}", how_it_ended(ended)),
                None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
                None => format!("Init:{index}/{}", items(pod, "spec.initContainers").len()),
            });
            break;
        }
        init
    }
}

/// Init containers that go on running.
fn sidecars(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, "spec.initContainers").iter().filter(|container| container.text("restartPolicy") == "Always")
}

fn how_it_ended(ended: &Value) -> String {
    match (ended.text("reason"), int(ended, "signal")) {
        ("", 0) => format!("ExitCode:{}", int(ended, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
