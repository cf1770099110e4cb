//! Pods leave nodes with taints of the effect `NoExecute`: at once, or after as long as they tolerate it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder},
};
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, Taint, Toleration};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Setting, pods};

const ACCOUNT: &str = "node-controller";
const COMPONENT: &str = "taint-eviction-controller";
const WORKERS: usize = 8;

struct TaintEviction {
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    /// Since when a pod bears what it tolerates for some time only.
    bearing: Mutex<HashMap<Key, (Option<String>, Instant)>>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let queue = WorkQueue::default();
    let controller = TaintEviction {
        client: setting.client(ACCOUNT),
        nodes: setting.informers.of(),
        pods: setting.informers.of(),
        bearing: Mutex::default(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
        clock: setting.clock.clone(),
    };
    controller.pods.index(pods::NODE, pods::by_node);
    controller.nodes.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    let on_pod = queue.clone();
    controller.pods.on_change(move |change| {
        if let Change::Applied { old: Some(old), new } = change
            && pods::node(old) == pods::node(new)
            && tolerations(old) == tolerations(new)
            && old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
        {
            return;
        }
        on_pod.add(Key::of(&**change.object()));
    });
    let (on_node, pods) = (queue.clone(), controller.pods.clone());
    controller.nodes.on_change(move |change| {
        if let Change::Applied { old, new } = change {
            let old = old.as_ref().map(|old| unbearable(old)).unwrap_or_default();
            if old != unbearable(new) {
                let name = new.metadata.name.as_deref().unwrap_or_default();
                pods.by_index(pods::NODE, name).iter().for_each(|pod| on_node.add(Key::of(&**pod)));
            }
        }
    });
    controller_runtime::run(Arc::new(controller), queue, OwnWrites::default(), WORKERS, stop).await;
}

/// The taints that pods must tolerate to stay.
fn unbearable(node: &Node) -> Vec<Taint> {
    let taints = node.spec.iter().filter_map(|spec| spec.taints.as_ref()).flatten();
    taints.filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

fn tolerations(pod: &Pod) -> &[Toleration] {
    pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
}

/// How long a pod tolerates all of some taints.
#[derive(Debug, PartialEq, Eq)]
enum Tolerates {
    Not,
    For(Duration),
    Forever,
}

fn tolerates(taints: &[Taint], tolerations: &[Toleration]) -> Tolerates {
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for taint in taints {
        let fitting = tolerations.iter().enumerate().find(|(_, toleration)| pods::tolerates(toleration, taint));
        let Some((at, _)) = fitting else { return Tolerates::Not };
        used.insert(at);
    }
    let seconds = used.iter().filter_map(|at| tolerations.get(*at)?.toleration_seconds);
    match seconds.min() {
        None => Tolerates::Forever,
        Some(seconds) => Tolerates::For(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    }
}

impl Controller for TaintEviction {
    type Key = Key;

    fn name(&self) -> &'static str {
        "taint-eviction-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let pod = self.pods.get(key);
        let taints = pod.as_ref().and_then(|pod| self.nodes.get(&Key::new("", pods::node(pod))));
        let taints = taints.map(|node| unbearable(&node)).unwrap_or_default();
        let Some(pod) = pod.filter(|pod| !taints.is_empty() && pod.metadata.deletion_timestamp.is_none()) else {
            self.is_spared(key);
            return Ok(Next::WhenChanged);
        };
        match tolerates(&taints, tolerations(&pod)) {
            Tolerates::Forever => self.is_spared(key),
            Tolerates::Not => {
                self.is_spared(key);
                self.evict(key, &pod).await?;
            }
            Tolerates::For(time) => {
                let now = self.clock.instant();
                let left = time.saturating_sub(now.duration_since(self.since(key, &pod, now)));
                if !left.is_zero() {
                    return Ok(Next::After(left));
                }
                self.evict(key, &pod).await?;
                self.bearing().remove(key);
            }
        }
        Ok(Next::WhenChanged)
    }
}

impl TaintEviction {
    fn bearing(&self) -> MutexGuard<'_, HashMap<Key, (Option<String>, Instant)>> {
        self.bearing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when this very pod bears its taints.
    fn since(&self, key: &Key, pod: &Pod, now: Instant) -> Instant {
        let mut bearing = self.bearing();
        let known = bearing.entry(key.clone()).or_insert_with(|| (pod.metadata.uid.clone(), now));
        if known.0 != pod.metadata.uid {
            *known = (pod.metadata.uid.clone(), now);
        }
        known.1
    }

    /// A pod that was to go later does not, or not for this.
    fn is_spared(&self, key: &Key) {
        if self.bearing().remove(key).is_some() {
            self.tell(key, format!("Cancelling deletion of Pod {key}"));
        }
    }

    async fn evict(&self, key: &Key, pod: &Pod) -> Result<(), Error> {
        self.tell(key, format!("Marking for deletion Pod {key}"));
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let message = "Taint manager: deleting due to NoExecute taint";
        let exactly = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let gone = async {
            if let Some(why) = pods::disrupted(pod, "DeletionByTaintManager", message, self.clock.time()) {
                pods::patch_status(&api, pod, json!({"conditions": [why]})).await?;
            }
            api.delete(&key.name, &DeleteParams::default().preconditions(exactly)).await.map(drop)
        };
        match gone.await {
            // Another of its name has its own turn.
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            answer => Ok(answer?),
        }
    }

    fn tell(&self, key: &Key, message: String) {
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..ObjectReference::default()
        };
        self.recorder.event(&about, EventType::Normal, "TaintManagerEviction", message);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_pod_stays_as_long_as_it_tolerates_all_taints() {
        let taints = |taints: Value| serde_json::from_value::<Vec<Taint>>(taints).expect("taints");
        let both = taints(json!([
            {"key": "a", "value": "1", "effect": "NoExecute"},
            {"key": "b", "effect": "NoExecute"},
        ]));
        let judge = |tolerations: Value| {
            tolerates(&both, &serde_json::from_value::<Vec<Toleration>>(tolerations).expect("tolerations"))
        };
        assert_eq!(judge(json!([])), Tolerates::Not);
        assert_eq!(judge(json!([{"operator": "Exists"}])), Tolerates::Forever);
        assert_eq!(judge(json!([{"key": "a", "operator": "Exists"}])), Tolerates::Not);
        assert_eq!(judge(json!([{"operator": "Exists", "effect": "NoSchedule"}])), Tolerates::Not);
        let some = json!([
            {"key": "a", "value": "1", "tolerationSeconds": 30},
            {"key": "b", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20},
            {"key": "c", "operator": "Exists", "tolerationSeconds": 1},
        ]);
        assert_eq!(judge(some), Tolerates::For(Duration::from_secs(20)));
        let never = json!([{"operator": "Exists", "tolerationSeconds": -1}]);
        assert_eq!(judge(never), Tolerates::For(Duration::ZERO));
    }
}
