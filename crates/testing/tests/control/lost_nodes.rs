//! Nodes that are lost, and pods that leave them.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use controller_runtime::Clock;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Event, Node, NodeCondition, Pod, ServiceAccount},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testing::TestServer;
use tokio::time::Instant;

use super::{client, eventually, replica_sets::make_ready};

/// A clock that stands still until it is put forward.
pub struct Hand(Mutex<(Timestamp, Instant)>);

impl Hand {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new((Timestamp::now(), Instant::now()))))
    }

    pub fn forward(&self, seconds: u32) {
        self.set(seconds);
        self.0.lock().expect("a clock").1 += Duration::from_secs(seconds.into());
    }

    /// Somebody sets it to a later time, which does not pass.
    fn set(&self, later: u32) {
        self.0.lock().expect("a clock").0 += SignedDuration::from_secs(later.into());
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        self.0.lock().expect("a clock").0
    }

    fn instant(&self) -> Instant {
        self.0.lock().expect("a clock").1
    }
}

struct Cluster {
    nodes: Api<Node>,
    pods: Api<Pod>,
    events: Api<Event>,
    leases: Api<Lease>,
}

/// A server with controllers by a clock of the test.
async fn cluster(clock: Option<Arc<Hand>>) -> (TestServer, Cluster) {
    let server = TestServer::embedded().await;
    server.run_controllers_with(|setting| {
        if let Some(clock) = clock {
            setting.clock = clock;
        }
    });
    let client: Client = client(&server).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
    let cluster = Cluster {
        nodes: Api::all(client.clone()),
        pods: Api::default_namespaced(client.clone()),
        events: Api::default_namespaced(client.clone()),
        leases: Api::namespaced(client, "kube-node-lease"),
    };
    (server, cluster)
}

impl Cluster {
    async fn node(&self, name: &str) {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": "linux"}}});
        let node: Node = serde_json::from_value(node).expect("a node");
        self.nodes.create(&PostParams::default(), &node).await.expect("created");
        self.beat(name, "True", 0).await;
    }

    /// What the agent of a node says of itself.
    async fn beat(&self, name: &str, ready: &str, second: i64) {
        let time = Timestamp::from_second(1_767_225_600 + second).expect("a time").to_string();
        let ready = json!({
            "type": "Ready",
            "status": ready,
            "reason": "KubeletReady",
            "lastHeartbeatTime": time,
            "lastTransitionTime": time,
        });
        let status = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
        self.nodes.patch_status(name, &PatchParams::default(), &status).await.expect("patched");
    }

    /// A change that means nothing, so that controllers look at the node.
    async fn touch(&self, name: &str, value: &str) {
        let change = Patch::Merge(json!({"metadata": {"annotations": {"touched": value}}}));
        self.nodes.patch(name, &PatchParams::default(), &change).await.expect("patched");
    }

    async fn pod(&self, name: &str, node: &str, tolerations: Value) {
        let containers = json!([{"name": "a", "image": "a:1"}]);
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "tolerations": tolerations, "containers": containers},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("created");
        make_ready(&self.pods, name).await;
    }

    async fn readiness(&self, node: &str) -> NodeCondition {
        let status = self.nodes.get(node).await.expect("a node").status.expect("a status");
        status.conditions.into_iter().flatten().find(|c| c.type_ == "Ready").expect("a condition")
    }

    async fn taints(&self, node: &str) -> Vec<String> {
        let taints = self.nodes.get(node).await.expect("a node").spec.and_then(|spec| spec.taints);
        let text = |key: &str, effect: &str| format!("{}:{effect}", key.rsplit('/').next().unwrap_or_default());
        let mut taints: Vec<String> = taints.iter().flatten().map(|taint| text(&taint.key, &taint.effect)).collect();
        taints.sort();
        taints
    }

    async fn has_taints(&self, node: &str, expected: &[&str]) {
        eventually(&format!("{node}: {expected:?}"), || async { (self.taints(node).await == expected).then_some(()) })
            .await;
    }

    async fn event(&self, reason: &str, message: &str) {
        eventually(message, || async {
            let events = self.events.list(&ListParams::default()).await.expect("a list").items;
            let is =
                |event: &Event| (event.reason.as_deref(), event.message.as_deref()) == (Some(reason), Some(message));
            events.iter().any(is).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_is_lost_and_comes_back() {
    let clock = Hand::new();
    let (_server, cluster) = cluster(Some(clock.clone())).await;
    cluster.node("alive").await;
    cluster.node("lost").await;
    cluster.pod("p", "lost", json!([])).await;
    cluster.has_taints("lost", &[]).await;
    cluster.event("RegisteredNode", "Node lost event: Registered Node lost in Controller").await;
    let former = cluster.nodes.get("lost").await.expect("a node").metadata.labels.expect("labels");
    assert_eq!(former["beta.kubernetes.io/os"], "linux");

    // Nobody is lost because the clock is set. When the label is back, the controller has looked.
    clock.set(3600);
    let unlabelled = Patch::Merge(json!({"metadata": {"labels": {"beta.kubernetes.io/os": null}}}));
    cluster.nodes.patch("lost", &PatchParams::default(), &unlabelled).await.expect("patched");
    eventually("the label is back", || async {
        let node = cluster.nodes.get("lost").await.expect("a node");
        node.metadata.labels.is_some_and(|labels| labels.contains_key("beta.kubernetes.io/os")).then_some(())
    })
    .await;
    assert_eq!(cluster.readiness("lost").await.status, "True");

    // A lease is a sign of life as well: by it alone nobody is lost, however long it takes.
    for name in ["alive", "lost"] {
        let lease = json!({"metadata": {"name": name}, "spec": {"renewTime": "2026-01-01T00:00:01.000000Z"}});
        let lease: Lease = serde_json::from_value(lease).expect("a lease");
        cluster.leases.create(&PostParams::default(), &lease).await.expect("created");
    }
    for second in 2..=50 {
        clock.forward(2);
        for name in ["alive", "lost"] {
            let renewed = json!({"spec": {"renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}});
            cluster.leases.patch(name, &PatchParams::default(), &Patch::Merge(renewed)).await.expect("renewed");
        }
        cluster.touch("lost", &second.to_string()).await;
    }
    let until = clock.time();
    clock.forward(60);
    cluster.beat("alive", "True", 90).await;
    cluster.touch("lost", "last").await;
    cluster.has_taints("lost", &["unreachable:NoExecute", "unreachable:NoSchedule"]).await;
    let ready = cluster.readiness("lost").await;
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("Unknown", Some("NodeStatusUnknown")));
    assert!(ready.last_transition_time.is_some_and(|since| since.0 > until.0), "not earlier");
    cluster.event("NodeNotReady", "Node lost status is now: NodeNotReady").await;
    eventually("the pod is not ready", || async {
        let conditions = cluster.pods.get("p").await.expect("a pod").status?.conditions?;
        conditions.iter().any(|c| c.type_ == "Ready" && c.status == "False").then_some(())
    })
    .await;
    cluster.event("NodeNotReady", "Node is not ready").await;

    cluster.beat("lost", "False", 101).await;
    cluster.has_taints("lost", &["not-ready:NoExecute", "not-ready:NoSchedule"]).await;
    // When nobody is ready any more, nothing is done to anybody.
    cluster.beat("alive", "False", 102).await;
    cluster.touch("lost", "3").await;
    cluster.has_taints("lost", &["not-ready:NoSchedule"]).await;
    cluster.has_taints("alive", &["not-ready:NoSchedule"]).await;
    cluster.beat("alive", "True", 103).await;
    cluster.beat("lost", "True", 104).await;
    cluster.has_taints("alive", &[]).await;
    cluster.has_taints("lost", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_leave_a_tainted_node_when_they_no_longer_tolerate_it() {
    let (_server, cluster) = cluster(None).await;
    cluster.node("n").await;
    let tolerates = |seconds: Option<i64>| json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
    cluster.pod("forever", "n", tolerates(None)).await;
    cluster.pod("long", "n", tolerates(Some(3600))).await;
    cluster.pod("short", "n", tolerates(Some(1))).await;
    cluster.pod("not", "n", json!([])).await;
    let taint = Patch::Merge(json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}));
    cluster.nodes.patch("n", &PatchParams::default(), &taint).await.expect("patched");
    for name in ["not", "short"] {
        let pod = eventually(&format!("{name} goes"), || async {
            let pod = cluster.pods.get(name).await.expect("a pod");
            pod.metadata.deletion_timestamp.is_some().then_some(pod)
        })
        .await;
        let conditions = pod.status.and_then(|status| status.conditions).expect("conditions");
        let why = conditions.iter().find(|c| c.type_ == "DisruptionTarget").expect("a reason");
        assert_eq!((why.status.as_str(), why.reason.as_deref()), ("True", Some("DeletionByTaintManager")));
    }
    cluster.event("TaintManagerEviction", "Marking for deletion Pod default/not").await;
    cluster.event("TaintManagerEviction", "Marking for deletion Pod default/short").await;
    // One that comes later goes as well.
    cluster.pod("late", "n", json!([])).await;
    eventually("late goes", || async {
        cluster.pods.get("late").await.expect("a pod").metadata.deletion_timestamp.map(drop)
    })
    .await;
    cluster
        .nodes
        .patch("n", &PatchParams::default(), &Patch::Merge(json!({"spec": {"taints": null}})))
        .await
        .expect("patched");
    cluster.event("TaintManagerEviction", "Cancelling deletion of Pod default/long").await;
    for name in ["forever", "long"] {
        assert_eq!(cluster.pods.get(name).await.expect("it stays").metadata.deletion_timestamp, None);
    }
}
