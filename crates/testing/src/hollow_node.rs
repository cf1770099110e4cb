//! Nodes that are none: they say of their pods what a node's agent says, and run nothing.
//!
//! A hollow node registers, keeps its lease, takes the pods that are bound to it to `Running` and ready after a while, and
//! deletes those that are to end, by name and uid. It acts as the user that a node is, and may no more than one.
//!
//! Thousands fit into a process: all of them share one watch of the pods, whose events are looked at once each, and a
//! node that nothing happens to costs a task that sleeps until its lease is due. A pod whose image begins with `broken` never
//! starts.

use std::{
    collections::{HashMap, hash_map::Entry},
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use api_server::{Server, context::User};
use controller_runtime::{Change, Clock, Informer, Informers, SystemClock};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{TestServer, server::in_process};

const BY_NODE: &str = "node";
/// How long a lease lasts, and after how long it is renewed.
const LEASE_SECONDS: u32 = 40;
const RENEW_AFTER: Duration = Duration::from_secs(10);
/// How often something is tried that the server refuses for the moment.
const TRIES: u32 = 20;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// What a hollow node is like.
#[derive(Clone, Debug)]
pub struct Habits {
    /// What it says it has.
    pub capacity: Value,
    pub labels: Value,
    /// How long pods take until they are ready: some time within these bounds.
    pub starts_within: Range<Duration>,
    /// The same until they have ended.
    pub ends_within: Range<Duration>,
}

impl Default for Habits {
    fn default() -> Self {
        Self {
            capacity: json!({"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "20Gi"}),
            labels: json!({}),
            starts_within: Duration::ZERO..Duration::ZERO,
            ends_within: Duration::ZERO..Duration::ZERO,
        }
    }
}

/// Where hollow nodes come from. They end with it.
pub struct HollowNodes {
    shared: Arc<Shared>,
    _stop: DropGuard,
}

struct Shared {
    server: Arc<Server>,
    admin: Client,
    pods: Informer<Pod>,
    /// Those that live, by name.
    nodes: Mutex<HashMap<String, Arc<Life>>>,
    stop: CancellationToken,
    addresses: AtomicU32,
    random: Random,
}

/// A node that lives.
struct Life {
    client: Client,
    habits: Habits,
    address: String,
    stop: CancellationToken,
    /// What is done about pods, by uid.
    pods: Mutex<HashMap<String, Stage>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Started,
    Ending,
}

/// A node. When it is dropped it is as if its machine had lost power: its object and its pods' stay as they are.
pub struct HollowNode {
    pub name: String,
    shared: Arc<Shared>,
    life: Arc<Life>,
}

impl HollowNodes {
    /// `seed` decides how long what takes.
    pub async fn new(server: &TestServer, seed: u64) -> Self {
        let stop = CancellationToken::new();
        let user = User { name: "hollow-nodes".into(), groups: vec!["system:masters".into()], ..User::default() };
        let admin = in_process(server.server(), user, "hollow-nodes");
        let pods: Informer<Pod> = Informers::new(admin.clone(), stop.clone()).of();
        pods.index(BY_NODE, |pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
        let shared = Arc::new(Shared {
            server: server.server().clone(),
            admin,
            pods: pods.clone(),
            nodes: Mutex::default(),
            stop: stop.clone(),
            addresses: AtomicU32::new(1),
            random: Random::new(seed),
        });
        let weak = Arc::downgrade(&shared);
        pods.on_change(move |change| {
            if let Some(shared) = weak.upgrade() {
                shared.hear(change);
            }
        });
        pods.synced().await;
        Self { shared, _stop: stop.drop_guard() }
    }

    /// Registers a node that is ready, or takes one up again that was there before.
    pub async fn add(&self, name: &str, habits: Habits) -> HollowNode {
        let shared = &self.shared;
        let groups = ["system:nodes", "system:authenticated"].map(str::to_owned).to_vec();
        let user = User { name: format!("system:node:{name}"), groups, ..User::default() };
        let life = Arc::new(Life {
            client: in_process(&shared.server, user, "hollow-node"),
            habits,
            address: shared.next_address(),
            stop: shared.stop.child_token(),
            pods: Mutex::default(),
        });
        life.register(name, &shared.admin).await;
        lock(&shared.nodes).insert(name.to_owned(), life.clone());
        // What was bound to it before it was heard of.
        for pod in shared.pods.by_index(BY_NODE, name) {
            shared.look(&life, &pod);
        }
        let (renewed, of) = (life.clone(), name.to_owned());
        tokio::spawn(async move { renewed.stop.run_until_cancelled(renewed.keep_lease(&of)).await });
        HollowNode { name: name.to_owned(), shared: shared.clone(), life }
    }
}

impl Drop for HollowNode {
    fn drop(&mut self) {
        self.life.stop.cancel();
        let mut nodes = lock(&self.shared.nodes);
        if nodes.get(&self.name).is_some_and(|life| Arc::ptr_eq(life, &self.life)) {
            nodes.remove(&self.name);
        }
    }
}

impl Shared {
    fn hear(self: &Arc<Self>, change: &Change<Pod>) {
        let pod = change.object();
        let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) else { return };
        let Some(life) = lock(&self.nodes).get(node).cloned() else { return };
        match change {
            Change::Applied { new, .. } => self.look(&life, new),
            Change::Deleted(last) => drop(lock(&life.pods).remove(last.metadata.uid.as_deref().unwrap_or_default())),
        }
    }

    /// Begins what is to be done about a pod, once.
    fn look(self: &Arc<Self>, life: &Arc<Life>, pod: &Arc<Pod>) {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        let stage = match pod.metadata.deletion_timestamp {
            Some(_) => Stage::Ending,
            None if phase == "Pending" => Stage::Started,
            None => return,
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match lock(&life.pods).entry(uid) {
            Entry::Occupied(known) if *known.get() == Stage::Ending || stage == Stage::Started => return,
            Entry::Occupied(mut known) => *known.get_mut() = stage,
            Entry::Vacant(place) => drop(place.insert(stage)),
        }
        let (shared, life, pod) = (self.clone(), life.clone(), pod.clone());
        tokio::spawn(async move {
            let work = async {
                match stage {
                    Stage::Started => shared.start(&life, &pod).await,
                    Stage::Ending => shared.end(&life, &pod).await,
                }
            };
            life.stop.run_until_cancelled(work).await;
        });
    }

    async fn start(&self, life: &Life, pod: &Pod) {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        if containers.clone().any(|container| container.image.as_deref().unwrap_or_default().starts_with("broken")) {
            return;
        }
        tokio::time::sleep(self.random.within(&life.habits.starts_within)).await;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if lock(&life.pods).get(uid) != Some(&Stage::Started) {
            return;
        }
        let (now, address) = (SystemClock.time(), self.next_address());
        let is_true = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": now});
        let conditions = ["PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready"].map(is_true);
        let statuses: Vec<Value> = containers
            .map(|container| {
                json!({
                    "name": container.name, "image": container.image, "imageID": "", "ready": true, "started": true,
                    "restartCount": 0, "state": {"running": {"startedAt": now}},
                })
            })
            .collect();
        let patch = Patch::Strategic(json!({
            "metadata": {"uid": uid},
            "status": {
                "phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": statuses,
                "hostIP": life.address, "hostIPs": [{"ip": life.address}],
                "podIP": address, "podIPs": [{"ip": address}],
            },
        }));
        let (pods, name) = (life.pods_of(pod), pod.metadata.name.as_deref().unwrap_or_default());
        attempt(|| async { pods.patch_status(name, &PatchParams::default(), &patch).await.map(drop) }).await;
    }

    async fn end(&self, life: &Life, pod: &Pod) {
        let grace = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let grace = Duration::from_secs(grace.unwrap_or(0));
        tokio::time::sleep(self.random.within(&life.habits.ends_within).min(grace)).await;
        let (pods, name) = (life.pods_of(pod), pod.metadata.name.as_deref().unwrap_or_default());
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        let now = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
        attempt(|| async { pods.delete(name, &now).await.map(drop) }).await;
    }

    /// Addresses that nobody has.
    fn next_address(&self) -> String {
        let [_, high, middle, low] = self.addresses.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        format!("10.{}.{middle}.{low}", 128 | high)
    }
}

impl Life {
    fn pods_of(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default())
    }

    async fn register(&self, name: &str, admin: &Client) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let mut labels =
            json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"});
        if let (Some(all), Some(own)) = (labels.as_object_mut(), self.habits.labels.as_object()) {
            all.extend(own.clone());
        }
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a node");
        match nodes.create(&PostParams::default(), &node).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            answer => drop(answer.expect("the node registers")),
        }
        let now = SystemClock.time();
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let status = Patch::Strategic(json!({"status": {
            "capacity": self.habits.capacity, "allocatable": self.habits.capacity, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": self.address}, {"type": "Hostname", "address": name}],
        }}));
        nodes.patch_status(name, &PatchParams::default(), &status).await.expect("the node has a status");
        self.renew(name).await;
        // A new node is tainted until somebody has seen that it is ready. Here that is seen at once, and where nobody looks.
        let untainted = Patch::Merge(json!({"spec": {"taints": null}}));
        let nodes: Api<Node> = Api::all(admin.clone());
        nodes.patch(name, &PatchParams::default(), &untainted).await.expect("the node has no taints");
    }

    async fn keep_lease(&self, name: &str) {
        loop {
            tokio::time::sleep(RENEW_AFTER).await;
            self.renew(name).await;
        }
    }

    async fn renew(&self, name: &str) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "kube-node-lease");
        let spec = json!({
            "holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": SystemClock.micro_time(),
        });
        let renewed = Patch::Merge(json!({"spec": spec}));
        match leases.patch(name, &PatchParams::default(), &renewed).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                let lease = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a lease");
                attempt(|| async { leases.create(&PostParams::default(), &lease).await.map(drop) }).await;
            }
            // The next time comes soon.
            _ => {}
        }
    }
}

/// Numbers that look drawn, the same for a seed. It may be shared.
pub struct Random(AtomicU64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// One of so many numbers.
    pub fn below(&self, count: u64) -> u64 {
        // SplitMix64.
        let mut mixed = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % count.max(1)
    }

    pub fn within(&self, bounds: &Range<Duration>) -> Duration {
        let part = u32::try_from(self.below(1000)).unwrap_or(0);
        bounds.start + bounds.end.saturating_sub(bounds.start) * part / 1000
    }
}

/// Does something until it is done, or is not to be done: what it is about is gone, or another.
async fn attempt<F: Future<Output = kube::Result<()>>>(act: impl Fn() -> F) {
    let mut last = None;
    for _ in 0..TRIES {
        match act().await {
            Ok(()) => return,
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => return,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(TRY_AGAIN_AFTER).await;
    }
    panic!("a hollow node was refused again and again: {last:?}");
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
