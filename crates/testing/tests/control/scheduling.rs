//! Pods get nodes, through the API and as Kubernetes' scheduler gives them.

use k8s_openapi::api::{
    core::v1::{Event, Node, PersistentVolumeClaim, Pod},
    scheduling::v1::PriorityClass,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testing::TestServer;

use super::{client, eventually};

/// A cluster without controllers.
struct Cluster {
    server: TestServer,
    client: Client,
    pods: Api<Pod>,
}

impl Cluster {
    async fn new() -> Self {
        let server = TestServer::embedded().await;
        let client = client(&server).await;
        let account = json!({"metadata": {"name": "default"}});
        let accounts = Api::default_namespaced(client.clone());
        let account: k8s_openapi::api::core::v1::ServiceAccount = serde_json::from_value(account).expect("an account");
        accounts.create(&PostParams::default(), &account).await.expect("the account is created");
        Self { server, pods: Api::default_namespaced(client.clone()), client }
    }

    /// With the scheduler.
    async fn scheduled() -> Self {
        let cluster = Self::new().await;
        cluster.server.run_scheduler();
        cluster
    }

    /// Makes a node with two cores. Changes are merged in.
    async fn node(&self, name: &str, changes: Value) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"}},
        });
        let mut node: Node = serde_json::from_value(merged(node, changes)).expect("a node");
        let status = node.status.take();
        nodes.create(&PostParams::default(), &node).await.expect("the node is created");
        let status = Patch::Merge(json!({"status": status}));
        nodes.patch_status(name, &PatchParams::default(), &status).await.expect("the node has a status");
        // What keeps pods off a node until it is known to be well is nobody's here to take away.
        let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let taints = Patch::Merge(json!({"spec": {"taints": taints}}));
        nodes.patch(name, &PatchParams::default(), &taints).await.expect("the node has its taints");
    }

    /// Makes a pod that asks for half a core. Changes are merged in.
    async fn pod(&self, name: &str, changes: Value) {
        let pod = json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "500m"}}}]},
        });
        let pod: Pod = serde_json::from_value(merged(pod, changes)).expect("a pod");
        self.pods.create(&PostParams::default(), &pod).await.expect("the pod is created");
    }

    /// The node a pod gets in the end.
    async fn place(&self, name: &str) -> String {
        let place = || async { self.pods.get(name).await.ok()?.spec?.node_name };
        eventually(&format!("the node of {name}"), place).await
    }

    /// What the condition of a pod says once it fits nowhere.
    async fn refusal(&self, name: &str, reason: &str) -> String {
        let refusal = || async {
            let conditions = self.pods.get(name).await.ok()?.status?.conditions?;
            let condition = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
            (condition.status == "False" && condition.reason.as_deref() == Some(reason)).then_some(condition.message?)
        };
        eventually(&format!("{name} is {reason}"), refusal).await
    }

    /// The words of an event about a pod.
    async fn event(&self, pod: &str, reason: &str) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let about = ListParams::default().fields(&format!("involvedObject.name={pod},reason={reason}"));
        eventually(&format!("{reason} of {pod}"), || async { events.list(&about).await.ok()?.items.pop() }).await
    }

    async fn delete(&self, name: &str) {
        self.pods.delete(name, &DeleteParams::default().grace_period(0)).await.expect("the pod is deleted");
    }
}

fn merged(mut whole: Value, changes: Value) -> Value {
    match (&mut whole, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                let field = fields.entry(key).or_insert(Value::Null);
                *field = merged(field.take(), change);
            }
            whole
        }
        (_, change) => change,
    }
}

fn asks_for(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}]}})
}

#[tokio::test]
async fn a_pod_goes_where_there_is_room() {
    let cluster = Cluster::scheduled().await;
    cluster.node("small", json!({"status": {"allocatable": {"cpu": "1"}}})).await;
    cluster.node("large", json!({"status": {"allocatable": {"cpu": "4"}}})).await;
    cluster.pod("web", asks_for("2")).await;
    assert_eq!(cluster.place("web").await, "large");
    let event = cluster.event("web", "Scheduled").await;
    assert_eq!(event.message.as_deref(), Some("Successfully assigned default/web to large"));
    assert_eq!(event.reporting_component.as_deref(), Some("default-scheduler"));
    assert_eq!(event.type_.as_deref(), Some("Normal"));
}

#[tokio::test]
async fn a_pod_that_fits_nowhere_is_told_why_and_goes_to_the_node_that_comes() {
    let cluster = Cluster::scheduled().await;
    cluster.node("one", json!({})).await;
    cluster
        .node("kept", json!({"spec": {"taints": [{"key": "for", "value": "others", "effect": "NoSchedule"}]}}))
        .await;
    cluster.pod("big", asks_for("3")).await;
    let words = cluster.refusal("big", "Unschedulable").await;
    let start = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).";
    assert!(words.starts_with(start), "{words}");
    let event = cluster.event("big", "FailedScheduling").await;
    assert!(event.message.is_some_and(|message| message.starts_with(start)));

    cluster.node("large", json!({"status": {"allocatable": {"cpu": "4"}}})).await;
    assert_eq!(cluster.place("big").await, "large");
}

#[tokio::test]
async fn room_that_becomes_free_is_used() {
    let cluster = Cluster::scheduled().await;
    cluster.node("one", json!({})).await;
    cluster.pod("first", asks_for("2")).await;
    assert_eq!(cluster.place("first").await, "one");
    cluster.pod("second", asks_for("2")).await;
    cluster.refusal("second", "Unschedulable").await;
    cluster.delete("first").await;
    assert_eq!(cluster.place("second").await, "one");
}

#[tokio::test]
async fn pods_of_other_schedulers_are_left_alone_and_gates_keep_a_pod_out() {
    let cluster = Cluster::scheduled().await;
    cluster.node("one", json!({})).await;
    cluster.pod("foreign", json!({"spec": {"schedulerName": "mine"}})).await;
    cluster.pod("gated", json!({"spec": {"schedulingGates": [{"name": "example.com/wait"}]}})).await;
    cluster.refusal("gated", "SchedulingGated").await;
    cluster.pod("plain", json!({})).await;
    assert_eq!(cluster.place("plain").await, "one");
    for name in ["foreign", "gated"] {
        let pod = cluster.pods.get(name).await.expect("the pod is there");
        assert_eq!(pod.spec.and_then(|spec| spec.node_name), None, "{name}");
    }
    let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
    cluster.pods.patch("gated", &PatchParams::default(), &open).await.expect("the gate is taken away");
    assert_eq!(cluster.place("gated").await, "one");
}

#[tokio::test]
async fn pods_keep_apart_and_together_by_their_affinity() {
    let cluster = Cluster::scheduled().await;
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        cluster.node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})).await;
    }
    let term = |app: &str, topology: &str| {
        let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology});
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]})
    };
    let on_b = json!({"spec": {"nodeSelector": {"topology.kubernetes.io/zone": "b"}}});
    cluster.pod("db", on_b).await;
    assert_eq!(cluster.place("db").await, "b1");
    let near = term("db", "topology.kubernetes.io/zone");
    cluster.pod("near", json!({"spec": {"affinity": {"podAffinity": near}}})).await;
    assert_eq!(cluster.place("near").await, "b1");

    let apart = json!({
        "metadata": {"labels": {"app": "apart"}},
        "spec": {"affinity": {"podAntiAffinity": term("apart", "kubernetes.io/hostname")}},
    });
    let mut places = Vec::new();
    for name in ["apart-1", "apart-2", "apart-3"] {
        cluster.pod(name, apart.clone()).await;
        places.push(cluster.place(name).await);
    }
    places.sort();
    assert_eq!(places, ["a1", "a2", "b1"]);
    cluster.pod("apart-4", apart).await;
    let words = cluster.refusal("apart-4", "Unschedulable").await;
    let start = "0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.";
    assert!(words.starts_with(start), "{words}");
    cluster.delete("apart-2").await;
    cluster.place("apart-4").await;
}

#[tokio::test]
async fn pods_are_spread_over_zones() {
    let cluster = Cluster::scheduled().await;
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        cluster.node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})).await;
    }
    let spread = json!({
        "metadata": {"labels": {"app": "spread"}},
        "spec": {"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}},
        }]},
    });
    let mut on_b = 0;
    for i in 0..6 {
        let name = format!("spread-{i}");
        cluster.pod(&name, spread.clone()).await;
        on_b += usize::from(cluster.place(&name).await == "b1");
    }
    assert_eq!(on_b, 3);
}

#[tokio::test]
async fn an_important_pod_makes_a_lesser_one_go() {
    let cluster = Cluster::scheduled().await;
    cluster.node("one", json!({})).await;
    let class = json!({"metadata": {"name": "high"}, "value": 1000});
    let class: PriorityClass = serde_json::from_value(class).expect("a class");
    Api::all(cluster.client.clone()).create(&PostParams::default(), &class).await.expect("the class is created");
    cluster.pod("small", asks_for("500m")).await;
    cluster.pod("lesser", asks_for("1500m")).await;
    assert_eq!(cluster.place("small").await, "one");
    assert_eq!(cluster.place("lesser").await, "one");
    let mut important = asks_for("1500m");
    important["spec"]["priorityClassName"] = json!("high");
    cluster.pod("important", important).await;

    let nominated = || async { cluster.pods.get("important").await.ok()?.status?.nominated_node_name };
    assert_eq!(eventually("room is made", nominated).await, "one");
    let event = cluster.event("lesser", "Preempted").await;
    let uid = cluster.pods.get("important").await.expect("the pod").metadata.uid.unwrap_or_default();
    assert_eq!(event.message, Some(format!("Preempted by pod {uid} on node one")));
    let lesser = cluster.pods.get("lesser").await.expect("it ends gracefully");
    assert!(lesser.metadata.deletion_timestamp.is_some());
    let conditions = lesser.status.and_then(|status| status.conditions).unwrap_or_default();
    let target = conditions.iter().find(|condition| condition.type_ == "DisruptionTarget").expect("it is told");
    assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
    // What its node would do.
    cluster.delete("lesser").await;
    assert_eq!(cluster.place("important").await, "one");
    assert!(cluster.pods.get("small").await.expect("it stays").metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn a_pod_waits_for_its_claims() {
    let cluster = Cluster::scheduled().await;
    cluster.node("one", json!({})).await;
    let volume = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    cluster.pod("web", json!({"spec": {"volumes": volume}})).await;
    let words = cluster.refusal("web", "Unschedulable").await;
    let start = "0/1 nodes are available: persistentvolumeclaim \"data\" not found.";
    assert!(words.starts_with(start), "{words}");
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(cluster.client.clone());
    claims.create(&PostParams::default(), &claim).await.expect("the claim is created");
    let told = || async {
        let words = cluster.refusal("web", "Unschedulable").await;
        words.contains("pod has unbound immediate PersistentVolumeClaims").then_some(())
    };
    eventually("the pod knows of the claim", told).await;
}

#[tokio::test]
async fn a_scheduler_that_begins_later_knows_what_is_taken() {
    let cluster = Cluster::new().await;
    cluster.node("one", json!({})).await;
    let first = cluster.server.run_scheduler();
    cluster.pod("first", asks_for("1500m")).await;
    assert_eq!(cluster.place("first").await, "one");
    first.cancel();
    cluster.pod("second", asks_for("1")).await;
    cluster.server.run_scheduler();
    let words = cluster.refusal("second", "Unschedulable").await;
    assert!(words.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{words}");
}
