//! Tells the API a pod's status: at once, only what differs from what it has, the newest when several come at a time.

use std::{sync::Arc, time::Duration};

use controller_runtime::revision;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tokio::{sync::watch, time::sleep};

use super::conditions::{OWN, is_own};
use crate::pods::containers::{name, namespace, uid};

/// How long it waits after a write that failed, twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The fields that the node tells. All others are not touched.
const FIELDS: &[&str] = &[
    "conditions",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "observedGeneration",
    "phase",
    "podIP",
    "podIPs",
    "reason",
    "startTime",
];

#[derive(Clone)]
struct Wanted {
    version: u64,
    pod: Arc<Pod>,
    status: Option<Arc<PodStatus>>,
}

/// Writes the status of one pod, in a task of its own, until it is dropped.
pub struct Writer {
    wanted: watch::Sender<Wanted>,
    written: watch::Receiver<u64>,
}

impl Writer {
    pub fn new(client: Client, pod: Arc<Pod>) -> Self {
        let (wanted, told) = watch::channel(Wanted { version: 0, pod, status: None });
        let (done, written) = watch::channel(0);
        tokio::spawn(write_all(client, told, done));
        Self { wanted, written }
    }

    /// What the status is now. `pod` is as the API has it, as far as is known.
    pub fn set(&self, pod: &Arc<Pod>, status: Arc<PodStatus>) {
        self.wanted.send_modify(|wanted| {
            wanted.version += 1;
            wanted.pod = pod.clone();
            wanted.status = Some(status);
        });
    }

    /// Waits until the API has what was set last, or has no such pod any more.
    pub fn flushed(&self) -> impl Future<Output = ()> + Send + 'static {
        let version = self.wanted.borrow().version;
        let mut written = self.written.clone();
        async move {
            // Without the task nobody writes any more.
            let _ = written.wait_for(|written| *written >= version).await;
        }
    }
}

async fn write_all(client: Client, mut told: watch::Receiver<Wanted>, done: watch::Sender<u64>) {
    // As the API answered last, which may be newer than what the watch has told.
    let mut answered: Option<Pod> = None;
    let mut wait = FIRST_WAIT;
    while told.changed().await.is_ok() {
        loop {
            let Wanted { version, pod, status } = told.borrow_and_update().clone();
            let Some(status) = status else { break };
            let newest = answered.as_ref().filter(|answered| revision(*answered) > revision(&*pod)).unwrap_or(&pod);
            let Some(change) = difference(newest, &status) else {
                done.send_replace(version);
                break;
            };
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace(&pod));
            match pods.patch_status(name(&pod), &PatchParams::default(), &Patch::Strategic(change)).await {
                Ok(after) => {
                    answered = Some(after);
                    wait = FIRST_WAIT;
                    done.send_replace(version);
                    break;
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                    // The pod is gone, or another has its name; a conflict of writes is not possible without a revision.
                    done.send_replace(version);
                    break;
                }
                Err(error) => {
                    tracing::debug!(pod = name(&pod), %error, "cannot write the status of a pod; trying again");
                    tokio::select! {
                        () = sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
                        changed = told.changed() => if changed.is_err() { return },
                    }
                }
            }
        }
    }
}

/// What has to be written so that the API has this status; nothing if it has it.
fn difference(pod: &Pod, status: &PodStatus) -> Option<Value> {
    let as_map = |status: &PodStatus| match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    };
    let (mut has, mut wants) = (pod.status.as_ref().map(as_map).unwrap_or_default(), as_map(status));
    let mut change = Map::new();
    for field in FIELDS {
        let (has, wants) = (has.remove(*field).unwrap_or(Value::Null), wants.remove(*field).unwrap_or(Value::Null));
        if has == wants {
            continue;
        }
        let value = match (*field, wants) {
            ("conditions", Value::Array(wants)) => match changed_conditions(&has, wants) {
                Some(changed) => changed,
                None => continue,
            },
            // Lists that would be merged otherwise.
            ("podIPs" | "hostIPs", Value::Array(mut wants)) => {
                wants.insert(0, json!({"$patch": "replace"}));
                Value::Array(wants)
            }
            (_, wants) => wants,
        };
        change.insert((*field).to_owned(), value);
    }
    // The uid makes sure that it is this pod, and not another of the same name.
    (!change.is_empty()).then(|| json!({"metadata": {"uid": uid(pod)}, "status": change}))
}

fn changed_conditions(has: &Value, wants: Vec<Value>) -> Option<Value> {
    let has = has.as_array().map(Vec::as_slice).unwrap_or_default();
    let type_of = |condition: &Value| condition["type"].as_str().unwrap_or_default().to_owned();
    let is_own =
        |condition: &Value| is_own(condition["type"].as_str().unwrap_or_default(), condition["reason"].as_str());
    let mut changed = Vec::new();
    for gone in has.iter().map(type_of) {
        if OWN.contains(&gone.as_str()) && !wants.iter().any(|wanted| type_of(wanted) == gone) {
            changed.push(json!({"$patch": "delete", "type": gone}));
        }
    }
    for mut wanted in wants {
        let type_ = type_of(&wanted);
        let before = has.iter().find(|before| type_of(before) == type_);
        if !is_own(&wanted) || before == Some(&wanted) {
            continue;
        }
        // What is no longer said is taken away.
        if let (Some(Value::Object(before)), Value::Object(wanted)) = (before, &mut wanted) {
            for key in before.keys() {
                wanted.entry(key.clone()).or_insert(Value::Null);
            }
        }
        changed.push(wanted);
    }
    (!changed.is_empty()).then_some(Value::Array(changed))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PodCondition, PodIP};

    use super::*;

    fn condition(type_: &str, status: &str, reason: Option<&str>) -> PodCondition {
        let reason = reason.map(str::to_owned);
        PodCondition { type_: type_.into(), status: status.into(), reason, ..PodCondition::default() }
    }

    #[test]
    fn only_what_differs_is_written() {
        let ip = |ip: &str| Some(vec![PodIP { ip: ip.into() }]);
        let has = PodStatus {
            phase: Some("Pending".into()),
            message: Some("old".into()),
            qos_class: Some("BestEffort".into()),
            conditions: Some(vec![
                condition("Ready", "False", Some("ContainersNotReady")),
                condition("PodScheduled", "True", None),
                condition("example.com/gate", "True", None),
            ]),
            pod_ips: ip("10.0.0.1"),
            ..PodStatus::default()
        };
        let pod = Pod { status: Some(has.clone()), ..Pod::default() };
        assert_eq!(difference(&pod, &has), None);
        let wants = PodStatus {
            phase: Some("Running".into()),
            message: None,
            // Somebody else's, and not known here yet.
            conditions: Some(vec![condition("Ready", "True", None), condition("PodScheduled", "True", None)]),
            pod_ips: ip("10.0.0.2"),
            ..has
        };
        let expected = json!({"metadata": {"uid": ""}, "status": {
            "phase": "Running",
            "message": null,
            "conditions": [{"type": "Ready", "status": "True", "reason": null}],
            "podIPs": [{"$patch": "replace"}, {"ip": "10.0.0.2"}],
        }});
        assert_eq!(difference(&pod, &wants), Some(expected));
    }
}
