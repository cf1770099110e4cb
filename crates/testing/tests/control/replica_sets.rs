//! ReplicaSets have the pods they ask for.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::{ReplicaSet, ReplicaSetStatus},
    core::v1::{Event, Pod, ResourceQuota, ServiceAccount},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use testing::TestServer;

use super::{client, eventually};

/// A server with controllers, whose default namespace is ready for pods.
pub async fn server() -> (TestServer, Client) {
    let server = TestServer::with_controllers().await;
    let client = client(&server).await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    eventually("an account", || async { accounts.get_opt("default").await.expect("an answer") }).await;
    (server, client)
}

pub fn template(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}})
}

fn set(name: &str, replicas: i32) -> ReplicaSet {
    let labels = json!({"app": name});
    let set = json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template(labels)},
    });
    serde_json::from_value(set).expect("a set")
}

/// Says what a node says of a pod that runs. It may be gone by now.
pub async fn make_ready(pods: &Api<Pod>, name: &str) {
    let now = "2026-01-01T00:00:00Z";
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": now});
    let status = Patch::Merge(json!({"status": {"phase": "Running", "conditions": [ready]}}));
    match pods.patch_status(name, &PatchParams::default(), &status).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        answer => drop(answer.expect("patched")),
    }
}

async fn pods_of(pods: &Api<Pod>, app: &str) -> Vec<Pod> {
    let list = pods.list(&ListParams::default().labels(&format!("app={app}"))).await.expect("a list");
    list.items.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
}

async fn status(sets: &Api<ReplicaSet>, name: &str, what: &str, is: impl Fn(&ReplicaSetStatus) -> bool) {
    eventually(what, || async { sets.get(name).await.expect("a set").status.filter(|status| is(status)) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_pods_as_were_asked_for() {
    let (_server, client) = server().await;
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let made = sets.create(&PostParams::default(), &set("web", 7)).await.expect("created");
    status(&sets, "web", "seven pods", |status| status.replicas == 7 && status.fully_labeled_replicas == Some(7)).await;
    let all = pods_of(&pods, "web").await;
    assert_eq!(all.len(), 7, "not one too many");
    let owner = all[0].metadata.owner_references.as_ref().expect("an owner")[0].clone();
    assert_eq!(
        (Some(owner.uid), owner.controller, owner.block_owner_deletion),
        (made.metadata.uid, Some(true), Some(true))
    );
    assert!(all[0].metadata.name.as_deref().is_some_and(|name| name.starts_with("web-") && name.len() == 9));

    let names: Arc<Vec<String>> = Arc::new(all.iter().filter_map(|pod| pod.metadata.name.clone()).collect());
    for name in names.iter().take(3) {
        make_ready(&pods, name).await;
    }
    status(&sets, "web", "three are ready", |status| {
        (status.ready_replicas, status.available_replicas) == (Some(3), Some(3))
    })
    .await;

    // Those that are ready stay.
    let smaller = Patch::Merge(json!({"spec": {"replicas": 3}}));
    sets.patch_scale("web", &PatchParams::default(), &smaller).await.expect("scaled");
    status(&sets, "web", "three pods", |status| status.replicas == 3 && status.ready_replicas == Some(3)).await;

    // One that goes is replaced, one that no longer matches is let go, an orphan that matches is adopted.
    pods.delete(&names[0], &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let other = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
    pods.patch(&names[1], &PatchParams::default(), &other).await.expect("patched");
    eventually("it is let go", || async {
        pods.get(&names[1]).await.expect("a pod").metadata.owner_references.is_none().then_some(())
    })
    .await;
    status(&sets, "web", "three pods again", |status| status.replicas == 3 && status.ready_replicas == Some(1)).await;
    assert_eq!(pods_of(&pods, "web").await.len(), 3);

    let events: Api<Event> = Api::default_namespaced(client.clone());
    eventually("events", || async {
        let all = events.list(&ListParams::default()).await.expect("a list").items;
        let of = |reason: &str| all.iter().filter(|event| event.reason.as_deref() == Some(reason)).count();
        (of("SuccessfulCreate") >= 9 && of("SuccessfulDelete") == 4).then_some(())
    })
    .await;

    sets.delete("web", &DeleteParams::foreground()).await.expect("deleted");
    eventually("all is gone", || async {
        (sets.get_opt("web").await.expect("an answer").is_none() && pods_of(&pods, "web").await.is_empty())
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orphan_is_adopted_and_counted() {
    let (_server, client) = server().await;
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let mut orphan = template(json!({"app": "web"}));
    orphan["metadata"]["name"] = json!("orphan");
    pods.create(&PostParams::default(), &serde_json::from_value(orphan).expect("a pod")).await.expect("created");
    sets.create(&PostParams::default(), &set("web", 2)).await.expect("created");
    status(&sets, "web", "two pods", |status| status.replicas == 2).await;
    let uid = sets.get("web").await.expect("a set").meta().uid.clone();
    let owners = pods.get("orphan").await.expect("a pod").metadata.owner_references.expect("an owner");
    assert_eq!(Some(&owners[0].uid), uid.as_ref());
    assert_eq!(pods_of(&pods, "web").await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_it_from_its_pods_is_told() {
    let (_server, client) = server().await;
    let (sets, quotas): (Api<ReplicaSet>, Api<ResourceQuota>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).expect("a quota")).await.expect("created");
    eventually("the quota counts", || async { quotas.get("none").await.expect("one").status?.hard.map(drop) }).await;
    sets.create(&PostParams::default(), &set("web", 2)).await.expect("created");
    status(&sets, "web", "a condition", |status| {
        status.conditions.iter().flatten().any(|condition| {
            let message = condition.message.as_deref().unwrap_or_default();
            condition.type_ == "ReplicaFailure"
                && condition.reason.as_deref() == Some("FailedCreate")
                && message.contains("exceeded quota: none")
        })
    })
    .await;
    quotas.delete("none", &DeleteParams::default()).await.expect("deleted");
    status(&sets, "web", "pods", |status| status.replicas == 2 && status.conditions.is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_were_just_deleted_count_no_more() {
    let (server, client) = server().await;
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    sets.create(&PostParams::default(), &set("web", 7)).await.expect("created");
    status(&sets, "web", "seven pods", |status| status.replicas == 7).await;
    let http = server.client();
    let path = "/apis/apps/v1/namespaces/default/replicasets";
    let from = http.get(path).await.expect(200)["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let mut watch = http.watch(&format!("{path}?watch=1&resourceVersion={from}")).await.expect("a watch");
    let fewer = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let generation = sets.patch("web", &PatchParams::default(), &fewer).await.expect("patched").metadata.generation;
    loop {
        let seen = watch.next().await.expect("an event")["object"].clone();
        if seen["status"]["observedGeneration"].as_i64() == generation {
            assert_eq!(seen["status"]["replicas"], 3, "the first word of the new size: {seen}");
            return;
        }
    }
}
