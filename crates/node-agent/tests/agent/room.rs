//! What a pod has of the node is free when the API hears that it is over, and not the other way round.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Node, PodStatus};
use kube::{
    Api,
    api::{DeleteParams, WatchEvent, WatchParams},
};
use node_agent::settings::Thresholds;
use serde_json::{Value, json};

use super::{Cluster, NODE, condition, container, eventually};

/// A pod that leaves no room for another of its kind.
async fn wide(cluster: &Cluster, name: &str) -> Value {
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let allocatable = nodes.get(NODE).await.expect("the node").status.and_then(|status| status.allocatable);
    let mut container = container(name);
    container["resources"] = json!({"requests": {"cpu": allocatable.expect("what it has")["cpu"]}});
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 3600, "containers": [container]})
}

/// Waits until the pod runs. One that was rejected never will.
async fn runs(cluster: &Cluster, name: &str) {
    let decided = |status: &PodStatus| matches!(status.phase.as_deref(), Some("Running" | "Failed"));
    let status = cluster.until(name, "running", decided).await;
    assert_eq!(status.phase.as_deref(), Some("Running"), "{status:?}");
}

fn has_ended(status: &PodStatus) -> bool {
    let mut states = status.container_statuses.iter().flatten().filter_map(|told| told.state.as_ref());
    states.any(|state| state.terminated.is_some())
}

fn is_running(status: &PodStatus) -> bool {
    let mut states = status.container_statuses.iter().flatten().filter_map(|told| told.state.as_ref());
    states.any(|state| state.running.is_some())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_over_when_its_room_is_free() {
    let cluster = Cluster::new().await;
    for (name, ends_by_itself) in [("done", true), ("deleted", false)] {
        cluster.create(name, wide(&cluster, name).await).await;
        runs(&cluster, name).await;
        let held = cluster.runtime.hold_sandboxes();
        match ends_by_itself {
            true => cluster.runtime.exit(name, 0),
            false => drop(cluster.pods().delete(name, &DeleteParams::default()).await.expect("it is deleted")),
        }
        // The container has ended, and the sandbox has not.
        let status = cluster.until(name, "without a container", has_ended).await;
        assert_eq!(status.phase.as_deref(), Some("Running"), "{status:?}");
        assert_eq!((status.reason.as_deref(), status.message.as_deref()), (None, None));
        let reason = if ends_by_itself { "PodCompleted" } else { "PodFailed" };
        assert_eq!(condition(&status, "Ready"), Some(("False".into(), reason.into())), "nobody waits for it");
        drop(held);
        match ends_by_itself {
            true => drop(cluster.until(name, "over", |told| told.phase.as_deref() == Some("Succeeded")).await),
            false => cluster.gone(name).await,
        }
    }
    cluster.create("next", wide(&cluster, "next").await).await;
    runs(&cluster, "next").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_is_deleted_by_force_gives_way_at_once() {
    let cluster = Cluster::new().await;
    cluster.runtime.make_stubborn("old");
    cluster.create("old", wide(&cluster, "old").await).await;
    runs(&cluster, "old").await;
    let delete = DeleteParams { grace_period_seconds: Some(0), ..Default::default() };
    cluster.pods().delete("old", &delete).await.expect("it is deleted");
    cluster.create("new", wide(&cluster, "new").await).await;
    runs(&cluster, "new").await;
    eventually("the old one is told to end", || async { (cluster.runtime.graces() == [3600]).then_some(()) }).await;
    assert_eq!(cluster.runtime.done(), ["started old", "started new"], "the old one has not ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_the_node_gives_up_has_failed_when_it_has_ended() {
    // No machine has as much as this node wants to keep.
    let cluster = Cluster::with(Thresholds { memory: u64::MAX, ..Thresholds::default() }).await;
    cluster.runtime.make_stubborn("a");
    let mut a = container("a");
    a["resources"] = json!({"requests": {"memory": "1Mi"}});
    let mut changes = pin!(cluster.pods().watch(&WatchParams::default(), "0").await.expect("a watch"));
    let late = json!({"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 2, "containers": [&a]});
    cluster.create("late", late).await;
    cluster.create("evicted", json!({"containers": [a]})).await;
    let mut over = BTreeSet::new();
    while over.len() < 2 {
        let event = changes.try_next().await.expect("an event").expect("another event");
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
        let status = pod.status.expect("a status");
        let is_over = status.phase.as_deref() == Some("Failed");
        assert_eq!(status.reason.is_some(), is_over, "{status:?}");
        let is_evicted = status.reason.as_deref() == Some("Evicted");
        assert_eq!(condition(&status, "DisruptionTarget").is_some(), is_evicted, "{status:?}");
        if is_over {
            assert!(!is_running(&status), "{status:?}");
            over.extend(pod.metadata.name);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_wait_until_it_is_known_what_the_node_has() {
    let mut cluster = Cluster::new().await;
    cluster.stop().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes.delete(NODE, &DeleteParams::default()).await.expect("it is deleted");
    let mut large = container("a");
    large["resources"] = json!({"requests": {"cpu": "1000"}});
    cluster.create("large", json!({"containers": [large]})).await;
    // The agent hears of the pod well before it can register.
    let held = cluster.runtime.hold_status();
    let register_later = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(held);
    };
    tokio::join!(cluster.start(), register_later);
    let is_over = |status: &PodStatus| status.phase.as_deref() == Some("Failed");
    assert_eq!(cluster.until("large", "rejected", is_over).await.reason.as_deref(), Some("OutOfcpu"));
    assert!(cluster.runtime.containers().is_empty());
}
