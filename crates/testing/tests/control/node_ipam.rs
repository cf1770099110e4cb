//! Every node has a block of addresses for its pods.

use std::collections::BTreeSet;

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use testing::TestServer;

use super::{client, eventually};

fn node(name: &str, block: Option<&str>) -> Node {
    let spec = block.map_or(json!({}), |block| json!({"podCIDR": block, "podCIDRs": [block]}));
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a node")
}

async fn block(nodes: &Api<Node>, name: &str) -> String {
    eventually("a block", || async {
        let spec = nodes.get(name).await.expect("a node").spec?;
        assert_eq!(spec.pod_cidr.as_deref(), spec.pod_cidrs.iter().flatten().next().map(String::as_str));
        spec.pod_cidr
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_nodes_have_the_same_block() {
    let server = TestServer::embedded().await;
    let nodes: Api<Node> = Api::all(client(&server).await);
    // This one has its block from before the controllers run.
    nodes.create(&PostParams::default(), &node("first", Some("10.244.1.0/24"))).await.expect("created");
    server.run_controllers();
    let names: Vec<String> = (0..12).map(|number| format!("node-{number}")).collect();
    let made = join_all(names.iter().map(|name| async {
        nodes.create(&PostParams::default(), &node(name, None)).await.expect("created");
        block(&nodes, name).await
    }))
    .await;
    let expected: BTreeSet<String> =
        (0..13).filter(|number| *number != 1).map(|number| format!("10.244.{number}.0/24")).collect();
    assert_eq!(made.into_iter().collect::<BTreeSet<_>>(), expected);

    // A block that was given back is not the next one.
    nodes.delete("node-3", &DeleteParams::default()).await.expect("deleted");
    nodes.create(&PostParams::default(), &node("late", None)).await.expect("created");
    assert_eq!(block(&nodes, "late").await, "10.244.13.0/24");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_too_many_waits_until_another_goes() {
    let server = TestServer::embedded().await;
    let client = client(&server).await;
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..256 {
        let all = node(&format!("node-{number}"), Some(&format!("10.244.{number}.0/24")));
        nodes.create(&PostParams::default(), &all).await.expect("created");
    }
    server.run_controllers();
    for name in ["late", "later", "latest"] {
        nodes.create(&PostParams::default(), &node(name, None)).await.expect("created");
    }
    let events: Api<Event> = Api::namespaced(client, "default");
    let told = ListParams::default().fields("reason=CIDRNotAvailable,involvedObject.name=late");
    eventually("an event", || async { events.list(&told).await.expect("a list").items.pop() }).await;
    assert_eq!(nodes.get("late").await.expect("a node").spec.and_then(|spec| spec.pod_cidr), None);

    // Two blocks become free, perhaps before anybody has asked for the first; one of those who wait does not need it any more.
    let own = json!({"spec": {"podCIDR": "10.250.0.0/24", "podCIDRs": ["10.250.0.0/24"]}});
    nodes.patch("late", &PatchParams::default(), &Patch::Merge(own)).await.expect("patched");
    for name in ["node-77", "node-78"] {
        nodes.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    let given = BTreeSet::from([block(&nodes, "later").await, block(&nodes, "latest").await]);
    assert_eq!(given, BTreeSet::from(["10.244.77.0/24".to_owned(), "10.244.78.0/24".to_owned()]));
    let told = events.list(&told).await.expect("a list").items;
    assert_eq!(
        told.iter().map(|event| event.count.unwrap_or(1)).sum::<i32>(),
        1,
        "told once, not tried again and again"
    );
}
