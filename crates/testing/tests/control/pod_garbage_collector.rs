//! Pods that nobody else can end.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testing::TestServer;

use super::{client, eventually};

fn pod(name: &str, node: &str) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "finalizers": ["example.com/wait"]},
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "a:1"}]},
    });
    serde_json::from_value(pod).expect("a pod")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_nodes_that_are_gone_fail_and_go() {
    let server = TestServer::embedded().await;
    server.run_controllers_with(|setting| setting.node_grace.gone = Duration::from_millis(50));
    let client = client(&server).await;
    let (pods, nodes): (Api<Pod>, Api<Node>) = (Api::default_namespaced(client.clone()), Api::all(client.clone()));
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client);
    eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
    for name in ["stays", "goes", "out"] {
        let node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("created");
    }
    for (name, node) in [("a", "stays"), ("b", "goes"), ("c", "never-was"), ("d", "out"), ("e", "out")] {
        pods.create(&PostParams::default(), &pod(name, node)).await.expect("created");
    }
    nodes.delete("goes", &DeleteParams::default()).await.expect("deleted");
    for name in ["b", "c"] {
        let failed = eventually(&format!("{name} goes"), || async {
            let pod = pods.get(name).await.expect("a finalizer keeps it");
            (pod.metadata.deletion_grace_period_seconds == Some(0)).then_some(pod)
        })
        .await;
        let status = failed.status.expect("a status");
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        let why = status.conditions.iter().flatten().find(|c| c.type_ == "DisruptionTarget").expect("a reason");
        assert_eq!(why.message.as_deref(), Some("PodGC: node no longer exists"));
    }

    // Of a node that is out of service, those go that were told to.
    pods.delete("d", &DeleteParams::default()).await.expect("deleted");
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "shutdown", "effect": "NoSchedule"});
    let taint = Patch::Merge(json!({"spec": {"taints": [taint]}}));
    nodes.patch("out", &PatchParams::default(), &taint).await.expect("patched");
    eventually("d goes", || async {
        let pod = pods.get("d").await.expect("a finalizer keeps it");
        (pod.metadata.deletion_grace_period_seconds == Some(0)).then_some(())
    })
    .await;
    for name in ["a", "e"] {
        let pod = pods.get(name).await.expect("it stays");
        assert_eq!(
            (pod.metadata.deletion_timestamp, pod.status.and_then(|status| status.phase)),
            (None, Some("Pending".into()))
        );
    }
}
