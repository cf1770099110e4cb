//! Nodes that are lost: their readiness becomes unknown, their pods are no longer ready, and taints keep new pods away and
//! make those leave that do not tolerate it (`taint_eviction` does that).
//!
//! Every node has a timer of its own that every sign of life puts off. A sign is a heartbeat in its status or the renewal of
//! its lease in `kube-node-lease`.

mod health;
mod taints;
mod zones;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder, about},
};
use health::Signs;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, ObjectReference, Pod},
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use taints::Leave;
use tokio_util::sync::CancellationToken;
use zones::{May, Zones};

use crate::{Setting, pods};

const ACCOUNT: &str = "node-controller";
const COMPONENT: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
const WORKERS: usize = 8;
/// How often it is looked whether a lost node may be emptied now.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// Labels under their former names, with the ones that count.
const FORMER_LABELS: [(&str, &str); 2] =
    [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")];

/// For how long nodes may be silent.
#[derive(Clone, Copy, Debug)]
pub struct NodeGrace {
    /// Kubernetes' flag `--node-monitor-grace-period`.
    pub silence: Duration,
    /// For one that has never told its status: `--node-startup-grace-period`.
    pub startup: Duration,
    /// How long one must be gone before its pods are.
    pub gone: Duration,
}

impl Default for NodeGrace {
    fn default() -> Self {
        Self { silence: Duration::from_secs(50), startup: Duration::from_secs(60), gone: Duration::from_secs(40) }
    }
}

struct NodeLifecycle {
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    signs: Arc<Signs>,
    zones: Mutex<Zones>,
    grace: NodeGrace,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = NodeLifecycle {
        client: setting.client(ACCOUNT),
        nodes: setting.informers.of(),
        pods: setting.informers.of(),
        signs: Arc::default(),
        zones: Mutex::default(),
        grace: setting.node_grace,
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
        clock: setting.clock.clone(),
    };
    controller.pods.index(pods::NODE, pods::by_node);
    let leases: Informer<Lease> =
        setting.informers.own(&(), Some(format!("metadata.namespace={LEASES}")), |_| {}, stop.clone());
    controller.pods.synced_or_stopped().await;
    controller.nodes.synced_or_stopped().await;
    controller.follow_nodes(&queue);
    let (signs, clock) = (controller.signs.clone(), setting.clock.clone());
    leases.on_change(move |change| {
        if let Change::Applied { new, .. } = change {
            signs.of_lease(new, clock.instant());
        }
    });
    // A pod that comes late to a lost node.
    let on_pod = queue.clone();
    controller.pods.on_change(move |change| {
        if let Change::Applied { old, new } = change
            && old.as_ref().is_none_or(|old| pods::node(old) != pods::node(new))
            && !pods::node(new).is_empty()
        {
            on_pod.add(Key::new("", pods::node(new)));
        }
    });
    leases.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

impl Controller for NodeLifecycle {
    type Key = Key;

    fn name(&self) -> &'static str {
        "node-lifecycle-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(mut node) = self.nodes.get(key) else { return Ok(Next::WhenChanged) };
        let left = self.signs.left(&node, self.grace.silence, self.grace.startup, self.clock.instant());
        if left.is_none() {
            node = self.lost(key, node).await?;
        }
        self.taint(key, &node).await?;
        let readiness = health::condition(&node, health::READY).map(|ready| ready.status.as_str());
        if readiness == Some("Unknown") {
            self.pods_are_not_ready(&node).await?;
        }
        match left {
            Some(left) if readiness.is_none_or(|readiness| readiness == "True") => {
                // A moment later than the last one at which it may be silent.
                Ok(Next::After(left + Duration::from_millis(1)))
            }
            left => Ok(Next::After(left.map_or(LOOK_AGAIN, |left| left.min(LOOK_AGAIN)))),
        }
    }
}

impl NodeLifecycle {
    /// Notes signs of life, and tells who comes and goes.
    fn follow_nodes(&self, queue: &WorkQueue<Key>) {
        let (queue, signs, clock, recorder) =
            (queue.clone(), self.signs.clone(), self.clock.clone(), self.recorder.clone());
        self.nodes.on_change(move |change| {
            let key = Key::of(&**change.object());
            let tell = |reason: &str, what: String| {
                let message = format!("Node {} event: {what}", key.name);
                recorder.event(&reference(change.object()), EventType::Normal, reason, message);
            };
            match change {
                Change::Applied { new, .. } => {
                    if signs.of_status(new, clock.instant(), clock.now()) {
                        tell("RegisteredNode", format!("Registered Node {} in Controller", key.name));
                    }
                    queue.add(key);
                }
                Change::Deleted(_) => {
                    signs.forget(&key.name);
                    tell("RemovingNode", format!("Removing Node {} from Controller", key.name));
                }
            }
        });
    }

    /// Nobody knows how a silent node is.
    async fn lost(&self, key: &Key, node: Arc<Node>) -> Result<Arc<Node>, Error> {
        let conditions = health::unknown(&node, self.clock.time());
        if conditions.is_empty() {
            return Ok(node);
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let change = json!({"metadata": exactly(&node), "status": {"conditions": conditions}});
        let written = nodes.patch_status(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await?;
        self.own_writes.wrote(key, &self.nodes, &written);
        if health::is_ready(&node) {
            let message = format!("Node {} status is now: NodeNotReady", key.name);
            self.recorder.event(&reference(&node), EventType::Normal, "NodeNotReady", message);
        }
        Ok(Arc::new(written))
    }

    /// Writes the taints and labels that a node should have, if it has not.
    async fn taint(&self, key: &Key, node: &Node) -> Result<(), Error> {
        let leave = self.leave(node);
        let labels = node.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name));
        let former =
            FORMER_LABELS.iter().filter(|(former, name)| label(name).is_some() && label(former) != label(name));
        let labels: serde_json::Map<String, Value> =
            former.map(|(former, name)| ((*former).to_owned(), json!(label(name)))).collect();
        let taints = taints::changed(node, leave, &self.clock.time());
        if taints.is_none() && labels.is_empty() {
            return Ok(());
        }
        let mut change = json!({"metadata": exactly(node)});
        change["metadata"]["labels"] = Value::Object(labels);
        if let Some(taints) = taints {
            // All of them: a merge by keys would leave those that are gone.
            change["spec"] = json!({"taints": taints});
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.patch(&key.name, &PatchParams::default(), &Patch::Merge(change)).await {
            Ok(written) => self.own_writes.wrote(key, &self.nodes, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether the pods of a node must leave it.
    fn leave(&self, node: &Node) -> Leave {
        let now = self.clock.instant();
        let mut zones = self.zones.lock().unwrap_or_else(PoisonError::into_inner);
        if health::is_ready(node) {
            if zones.is_back(node) {
                self.signs.start_anew(now);
            }
            return Leave::Stay;
        }
        let Some(reason) = taints::reason_to_leave(node) else { return Leave::AsBefore };
        let all = zones::count(&self.nodes.all());
        zones.look(&all);
        // One that must be left already only gets another reason.
        if taints::must_be_left(node) {
            return if zones.all_down() { Leave::Stay } else { Leave::Must(reason) };
        }
        match zones.may_empty(&zones::of(node), &all, now) {
            May::Now => Leave::Must(reason),
            May::NotYet => Leave::AsBefore,
            May::Never => Leave::Stay,
        }
    }

    async fn pods_are_not_ready(&self, node: &Node) -> Result<(), Error> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        for pod in self.pods.by_index(pods::NODE, name).iter().filter(|pod| pods::ready(pod).is_some()) {
            let api: Api<Pod> =
                Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
            let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": self.clock.time()});
            match pods::patch_status(&api, pod, json!({"conditions": [ready]})).await {
                Ok(written) => self.own_writes.wrote(&Key::of(node), &self.pods, &written),
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => continue,
                Err(error) => return Err(error.into()),
            }
            self.recorder.event(&about(&**pod), EventType::Warning, "NodeNotReady", "Node is not ready");
        }
        Ok(())
    }
}

/// Only this node, as it was seen.
fn exactly(node: &Node) -> Value {
    json!({"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version})
}

fn reference(node: &Node) -> ObjectReference {
    ObjectReference { resource_version: None, ..about(node) }
}
