//! Pods that cannot run, or not yet.

use kube::api::DeleteParams;
use serde_json::json;

use super::{Cluster, container, runtime::REGISTRY, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_pulled_or_it_is_said_why_not() {
    let cluster = Cluster::new().await;
    let image = |name: &str, policy: &str| json!({"containers": [{"name": "a", "image": name, "imagePullPolicy": policy}], "terminationGracePeriodSeconds": 0});
    cluster.create("pulls", image(&format!("{REGISTRY}app:1"), "IfNotPresent")).await;
    cluster.running("pulls").await;
    let pulled = cluster.event("pulls", "Pulled").await;
    assert!(pulled.starts_with("Successfully pulled image \"registry.example.com/app:1\" in "), "{pulled}");

    cluster.create("fails", image("nowhere:1", "Always")).await;
    cluster.until("fails", "failing", |status| waits(status, "a").as_deref() == Some("ErrImagePull")).await;
    let status = cluster.until("fails", "waiting", |status| waits(status, "a").as_deref() == Some("ImagePullBackOff"));
    let a = status.await.container_statuses.unwrap_or_default().remove(0);
    let message = a.state.and_then(|state| state.waiting?.message).unwrap_or_default();
    assert_eq!(message, "Back-off pulling image \"nowhere:1\": ErrImagePull: nobody answers");
    assert_eq!(cluster.event("fails", "BackOff").await, "Back-off pulling image \"nowhere:1\"");

    cluster.create("never", image("nowhere:1", "Never")).await;
    cluster.until("never", "refused", |status| waits(status, "a").as_deref() == Some("ErrImageNeverPull")).await;

    // What never ran is gone at once.
    for name in ["fails", "never"] {
        cluster.pods().delete(name, &DeleteParams::default()).await.expect("it is deleted");
        cluster.gone(name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_rejected() {
    let cluster = Cluster::new().await;
    let mut large = container("a");
    large["resources"] = json!({"requests": {"cpu": "1000"}});
    cluster.create("large", json!({"containers": [large]})).await;
    let elsewhere = json!({"nodeSelector": {"disk": "slow"}, "containers": [container("a")]});
    cluster.create("elsewhere", elsewhere).await;
    for (name, reason, message) in [
        ("large", "OutOfcpu", "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000000, used: 0"),
        ("elsewhere", "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's"),
    ] {
        let status = cluster.until(name, "failed", |status| status.phase.as_deref() == Some("Failed")).await;
        assert_eq!(status.reason.as_deref(), Some(reason));
        assert!(status.message.as_deref().is_some_and(|told| told.starts_with(message)), "{:?}", status.message);
    }
    assert!(cluster.runtime.containers().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_has_until_its_deadline() {
    let cluster = Cluster::new().await;
    cluster.create("late", json!({"activeDeadlineSeconds": 1, "containers": [container("a")]})).await;
    let status = cluster.until("late", "failed", |status| status.phase.as_deref() == Some("Failed")).await;
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    let message = "Pod was active on the node longer than the specified deadline";
    assert_eq!(status.message.as_deref(), Some(message));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_that_cannot_be_made_is_tried_again() {
    let cluster = Cluster::new().await;
    cluster.runtime.break_sandboxes(2);
    cluster.create("retry", json!({"containers": [container("a")]})).await;
    cluster.running("retry").await;
    assert_eq!(
        cluster.event("retry", "FailedCreatePodSandBox").await,
        "Failed to create pod sandbox: no sandbox today"
    );
}
