//! ReplicationControllers have the pods they ask for, as ReplicaSets do.

use k8s_openapi::api::core::v1::{Pod, ReplicationController, ResourceQuota};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{
    eventually,
    replica_sets::{make_ready, server, template},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_pods_as_were_asked_for() {
    let (_server, client) = server().await;
    let (controllers, pods): (Api<ReplicationController>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client);
    let quota = json!({"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).expect("a quota")).await.expect("created");
    eventually("the quota is known", || async { quotas.get("two").await.expect("a quota").status?.hard }).await;
    // One pod is there already, and is adopted.
    let mut lone = template(json!({"app": "web"}));
    lone["metadata"]["name"] = json!("lone");
    pods.create(&PostParams::default(), &serde_json::from_value(lone).expect("a pod")).await.expect("created");
    let wanted = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"app": "web"}, "template": template(json!({"app": "web"}))},
    });
    let wanted: ReplicationController = serde_json::from_value(wanted).expect("a controller");
    let made = controllers.create(&PostParams::default(), &wanted).await.expect("created");
    let status = |what: &'static str, is: fn(&ReplicationController) -> bool| {
        let controllers = controllers.clone();
        async move {
            eventually(what, || async { Some(controllers.get("web").await.expect("a controller")).filter(is) }).await
        }
    };
    let failing = status("the quota is told", |found| {
        found.status.as_ref().is_some_and(|status| status.conditions.iter().flatten().next().is_some())
    })
    .await;
    let condition = failing.status.and_then(|status| status.conditions).expect("conditions").remove(0);
    assert_eq!((condition.type_.as_str(), condition.reason.as_deref()), ("ReplicaFailure", Some("FailedCreate")));
    let owner = pods.get("lone").await.expect("a pod").metadata.owner_references.expect("an owner").remove(0);
    assert_eq!((owner.kind.as_str(), Some(owner.uid)), ("ReplicationController", made.metadata.uid));

    let fewer = Patch::Merge(json!({"spec": {"replicas": 2}}));
    controllers.patch_scale("web", &PatchParams::default(), &fewer).await.expect("scaled");
    for pod in pods.list(&ListParams::default()).await.expect("a list").items {
        make_ready(&pods, pod.metadata.name.as_deref().unwrap_or_default()).await;
    }
    let done = status("both are ready", |found| {
        found.status.as_ref().is_some_and(|s| (s.replicas, s.ready_replicas) == (2, Some(2)) && s.conditions.is_none())
    })
    .await;
    assert_eq!(done.status.and_then(|status| status.available_replicas), Some(2));
    // What no longer fits is let go and made anew.
    let other = Patch::Merge(json!({"metadata": {"labels": {"app": "other"}}}));
    pods.patch("lone", &PatchParams::default(), &other).await.expect("patched");
    eventually("it is let go", || async {
        pods.get("lone").await.expect("a pod").metadata.owner_references.is_none().then_some(())
    })
    .await;
}
