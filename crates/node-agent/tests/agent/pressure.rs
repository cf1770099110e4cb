//! A node that runs short, and what pods are limited to.

use k8s_openapi::api::core::v1::Node;
use kube::{Api, api::DeleteParams};
use node_agent::settings::Thresholds;
use serde_json::json;

use super::{Cluster, NODE, condition, container, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_memory_takes_no_more_and_ends_what_it_has() {
    // No machine has as much as this node wants to keep.
    let cluster = Cluster::with(Thresholds { memory: u64::MAX, ..Thresholds::default() }).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    eventually("pressure is told", || async {
        let status = nodes.get(NODE).await.expect("the node").status.unwrap_or_default();
        let mut conditions = status.conditions.into_iter().flatten();
        let told = conditions.find(|condition| condition.type_ == "MemoryPressure")?;
        (told.status == "True" && told.reason.as_deref() == Some("KubeletHasInsufficientMemory")).then_some(())
    })
    .await;

    cluster.create("modest", json!({"containers": [container("a")]})).await;
    let failed = |status: &k8s_openapi::api::core::v1::PodStatus| status.phase.as_deref() == Some("Failed");
    let refused = cluster.until("modest", "refused", failed).await;
    assert_eq!(refused.reason.as_deref(), Some("Evicted"));
    let why = "Pod was rejected: The node had condition: [MemoryPressure]. ";
    assert_eq!(refused.message.as_deref(), Some(why));

    let mut asking = container("a");
    asking["resources"] = json!({"requests": {"memory": "1Mi"}});
    cluster.create("asking", json!({"terminationGracePeriodSeconds": 600, "containers": [asking]})).await;
    let evicted = cluster.until("asking", "evicted", failed).await;
    assert_eq!(evicted.reason.as_deref(), Some("Evicted"));
    let message = evicted.message.clone().unwrap_or_default();
    assert!(message.starts_with("The node was low on resource: memory. Threshold quantity: "), "{message}");
    let disruption = condition(&evicted, "DisruptionTarget");
    assert_eq!(disruption, Some(("True".into(), "TerminationByKubelet".into())));
    assert_eq!(cluster.event("asking", "Evicted").await, message);
    eventually("it ends", || async { cluster.runtime.done().contains(&"ended a".to_owned()).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_limited_as_a_whole() {
    let mut cluster = Cluster::new().await;
    let sized = |name: &str, memory: &str| {
        let mut container = container(name);
        container["resources"] = json!({"limits": {"cpu": "100m", "memory": memory}});
        container
    };
    cluster.create("whole", json!({"containers": [sized("a", "10Mi"), sized("b", "20Mi")]})).await;
    cluster.running("whole").await;
    let limits = cluster.runtime.limits();
    let [whole] = limits.as_slice() else { panic!("{limits:?}") };
    assert_eq!((whole.memory_limit_in_bytes, whole.cpu_quota, whole.cpu_shares), (30 << 20, 20_000, 204));

    // An agent that starts again makes sure of it.
    cluster.stop().await;
    cluster.runtime.forget_limits();
    cluster.start().await;
    eventually("it is limited again", || async { (cluster.runtime.limits() == limits).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_can_be_a_volume() {
    let cluster = Cluster::new().await;
    let mut reader = container("a");
    reader["volumeMounts"] = json!([
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/part", "subPath": "etc/hosts"},
    ]);
    let volume = |reference: &str| {
        json!({"containers": [reader], "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "data", "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}]})
    };
    cluster.create("reads", volume("registry.example.com/data:1")).await;
    cluster.running("reads").await;
    let containers = cluster.runtime.containers();
    let image = |path: &str| {
        let mount = containers[0].mounts.iter().find(|mount| mount.container_path == path).expect("a mount");
        (mount.image.as_str(), mount.image_sub_path.as_str(), mount.host_path.as_str(), mount.readonly)
    };
    assert_eq!(image("/data"), ("registry.example.com/data:1", "", "", true));
    assert_eq!(image("/part"), ("registry.example.com/data:1", "etc/hosts", "", true));

    cluster.create("waits", volume("nowhere:1")).await;
    let waiting = |status: &_| super::waits(status, "a").as_deref() == Some("ImagePullBackOff");
    cluster.until("waits", "waiting", waiting).await;
    cluster.pods().delete("waits", &DeleteParams::default()).await.expect("it is deleted");
    cluster.gone("waits").await;
}
