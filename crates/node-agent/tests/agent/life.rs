//! From the registration of the node to the end of a pod.

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Node};
use kube::{Api, api::DeleteParams};
use serde_json::json;

use super::{Cluster, NODE, condition, container, eventually, is_true, waits};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_registers_and_follows_its_network() {
    let cluster = Cluster::new().await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let ready = |wanted: &'static str| {
        let nodes = nodes.clone();
        move || {
            let nodes = nodes.clone();
            async move {
                let node = nodes.get(NODE).await.expect("the node");
                let status = node.status.clone().unwrap_or_default();
                let ready = status.conditions.into_iter().flatten().find(|condition| condition.type_ == "Ready")?;
                (ready.status == wanted).then_some((node, ready.message.unwrap_or_default()))
            }
        }
    };
    let (node, message) = eventually("ready", ready("True")).await;
    assert_eq!(message, "kubelet is posting ready status");
    let labels = node.metadata.labels.unwrap_or_default();
    assert_eq!(labels.get("kubernetes.io/hostname").map(String::as_str), Some(NODE));
    assert_eq!(labels.get("disk").map(String::as_str), Some("fast"));
    let status = node.status.unwrap_or_default();
    assert!(status.allocatable.is_some_and(|all| ["cpu", "memory", "pods"].iter().all(|name| all.contains_key(*name))));
    assert_eq!(status.node_info.map(|info| info.container_runtime_version).as_deref(), Some("fake://1"));
    let leases: Api<Lease> = Api::namespaced(cluster.client.clone(), "kube-node-lease");
    let lease = eventually("a lease", || async { leases.get_opt(NODE).await.expect("an answer") }).await;
    assert_eq!(lease.metadata.owner_references.map(|owners| owners[0].uid.clone()), node.metadata.uid);

    drop(cluster.network.send_replace(Err("the cable is out".into())));
    let (_, message) = eventually("not ready", ready("False")).await;
    assert!(message.ends_with("message:the cable is out"), "{message}");
    drop(cluster.network.send_replace(Ok(())));
    eventually("ready again", ready("True")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_runs_is_told_of_and_ends() {
    let cluster = Cluster::new().await;
    cluster.create("web", json!({"containers": [container("a"), container("b")]})).await;
    let status = cluster.until("web", "ready", |status| is_true(status, "Ready")).await;
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert!(status.pod_ip.is_some_and(|ip| ip.starts_with("10.1.0.")));
    assert_eq!(status.host_ip.as_deref(), Some("127.0.0.1"));
    for type_ in ["PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady"] {
        assert_eq!(
            condition(&{ cluster.running("web").await }, type_),
            Some(("True".into(), String::new())),
            "{type_}"
        );
    }
    let containers = status.container_statuses.unwrap_or_default();
    assert!(containers.iter().all(|status| status.ready && status.started == Some(true) && status.restart_count == 0));
    assert!(containers.iter().all(|status| status.container_id.as_deref().is_some_and(|id| id.starts_with("fake://"))));
    assert_eq!(cluster.runtime.done(), ["started a", "started b"]);
    let pulled = "Container image \"present:1\" already present on machine and can be accessed by the pod";
    assert_eq!(cluster.event("web", "Pulled").await, pulled);
    assert_eq!(cluster.event("web", "Started").await, "Container started");

    cluster.pods().delete("web", &DeleteParams::default()).await.expect("it is deleted");
    cluster.gone("web").await;
    eventually("nothing is left", || async { (cluster.runtime.sandboxes() == 0).then_some(()) }).await;
    assert!(cluster.runtime.containers().is_empty());
    assert!(cluster.event("web", "Killing").await.starts_with("Stopping container "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_containers_go_one_by_one_and_sidecars_end_last() {
    let cluster = Cluster::new().await;
    let mut sidecar = container("side");
    sidecar["restartPolicy"] = json!("Always");
    sidecar["lifecycle"] = json!({"postStart": {"exec": {"command": ["greet"]}}});
    let spec = json!({
        "initContainers": [container("one"), sidecar, container("two")],
        "containers": [container("main")],
    });
    cluster.create("steps", spec).await;
    let initializing = |status: &_, name: &'static str| {
        waits(status, "main").as_deref() == Some("PodInitializing")
            && condition(status, "Initialized") == Some(("False".into(), "ContainersNotInitialized".into()))
            && status
                .init_container_statuses
                .iter()
                .flatten()
                .any(|told| told.name == name && told.state.as_ref().is_some_and(|state| state.running.is_some()))
    };
    let status = cluster.until("steps", "at its first step", |status| initializing(status, "one")).await;
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    cluster.runtime.exit("one", 0);
    cluster.until("steps", "at its last step", |status| initializing(status, "two")).await;
    cluster.runtime.exit("two", 0);
    cluster.until("steps", "ready", |status| is_true(status, "Ready") && is_true(status, "Initialized")).await;
    let expected =
        ["started one", "ended one", "started side", "ran greet", "started two", "ended two", "started main"];
    assert_eq!(cluster.runtime.done(), expected);

    cluster.pods().delete("steps", &DeleteParams::default()).await.expect("it is deleted");
    cluster.gone("steps").await;
    let done = cluster.runtime.done();
    assert_eq!(done.get(expected.len()..), Some(["ended main".to_owned(), "ended side".to_owned()].as_slice()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_has_done_its_work_keeps_its_containers_until_it_is_deleted() {
    let cluster = Cluster::new().await;
    for (name, exit_code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
        cluster.create(name, json!({"restartPolicy": "Never", "containers": [container(name)]})).await;
        cluster.running(name).await;
        cluster.runtime.exit(name, exit_code);
        let status = cluster.until(name, phase, |status| status.phase.as_deref() == Some(phase)).await;
        let reason = if exit_code == 0 { "PodCompleted" } else { "PodFailed" };
        assert_eq!(condition(&status, "Ready"), Some(("False".into(), reason.into())));
        let state = status.container_statuses.unwrap_or_default().remove(0).state.unwrap_or_default();
        assert_eq!(state.terminated.map(|ended| ended.exit_code), Some(exit_code));
    }
    assert_eq!(cluster.runtime.containers().len(), 2);
    for name in ["good", "bad"] {
        cluster.pods().delete(name, &DeleteParams::default()).await.expect("it is deleted");
    }
    eventually("nothing is left", || async { (cluster.runtime.sandboxes() == 0).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_are_run_before_the_end() {
    let cluster = Cluster::new().await;
    let mut spec = json!({"containers": [container("a")]});
    spec["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["goodbye"]}}});
    cluster.create("polite", spec).await;
    cluster.running("polite").await;
    cluster.pods().delete("polite", &DeleteParams::default()).await.expect("it is deleted");
    cluster.gone("polite").await;
    assert_eq!(cluster.runtime.done(), ["started a", "ran goodbye", "ended a"]);
}
