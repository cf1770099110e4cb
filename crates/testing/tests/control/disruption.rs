//! PodDisruptionBudgets say how many pods may go on purpose.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Event, Pod},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    Api,
    api::{EvictParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    eventually,
    replica_sets::{make_ready, server, template},
};

fn budget(name: &str, mut spec: Value) -> PodDisruptionBudget {
    spec["selector"] = json!({"matchLabels": {"app": "web"}});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a budget")
}

/// Waits for healthy, desired, expected and allowed.
async fn figures(budgets: &Api<PodDisruptionBudget>, name: &str, expected: [i32; 4]) -> PodDisruptionBudget {
    eventually(&format!("{name}: {expected:?}"), || async {
        let budget = budgets.get(name).await.expect("a budget");
        let status = budget.status.clone()?;
        let found = [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed];
        (found == expected.map(Some) && status.observed_generation == budget.metadata.generation).then_some(budget)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_may_go_as_are_healthy_beyond_what_is_wanted() {
    let (_server, client) = server().await;
    let (pods, budgets): (Api<Pod>, Api<PodDisruptionBudget>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let labels = json!({"app": "web"});
    let deployment = json!({
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template(labels)},
    });
    let deployment: Deployment = serde_json::from_value(deployment).expect("a deployment");
    budgets.create(&PostParams::default(), &budget("most", json!({"maxUnavailable": "30%"}))).await.expect("created");
    let none = figures(&budgets, "most", [0, 0, 0, 0]).await;
    let condition = none.status.and_then(|status| status.conditions).expect("conditions").remove(0);
    assert_eq!((condition.type_.as_str(), condition.reason.as_str()), ("DisruptionAllowed", "InsufficientPods"));
    deployments.create(&PostParams::default(), &deployment).await.expect("created");
    figures(&budgets, "most", [0, 2, 3, 0]).await;
    let names: Vec<String> = pods
        .list(&ListParams::default())
        .await
        .expect("a list")
        .items
        .into_iter()
        .filter_map(|p| p.metadata.name)
        .collect();
    for name in &names {
        make_ready(&pods, name).await;
    }
    let enough = figures(&budgets, "most", [3, 2, 3, 1]).await;
    let condition = enough.status.and_then(|status| status.conditions).expect("conditions").remove(0);
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "SufficientPods"));

    // One is granted, and no other until there is a new one.
    pods.evict(&names[0], &EvictParams::default()).await.expect("granted");
    let refused = pods.evict(&names[1], &EvictParams::default()).await.expect_err("refused");
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 429));
    figures(&budgets, "most", [2, 2, 3, 0]).await;
    let less = Patch::Merge(json!({"spec": {"maxUnavailable": 2}}));
    budgets.patch("most", &PatchParams::default(), &less).await.expect("patched");
    figures(&budgets, "most", [2, 1, 3, 1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_that_nobody_controls_count_only_by_number() {
    let (_server, client) = server().await;
    let (pods, budgets): (Api<Pod>, Api<PodDisruptionBudget>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
    let (events, maps): (Api<Event>, Api<ConfigMap>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
    for name in ["a", "b"] {
        let mut pod = template(json!({"app": "web"}));
        pod["metadata"]["name"] = json!(name);
        pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created");
        make_ready(&pods, name).await;
    }
    budgets.create(&PostParams::default(), &budget("least", json!({"minAvailable": 1}))).await.expect("created");
    figures(&budgets, "least", [2, 1, 2, 1]).await;
    budgets.create(&PostParams::default(), &budget("share", json!({"minAvailable": "50%"}))).await.expect("created");
    figures(&budgets, "share", [2, 0, 0, 0]).await;
    eventually("an event", || async {
        let events = events.list(&ListParams::default()).await.expect("a list").items;
        events.into_iter().find(|event| event.reason.as_deref() == Some("UnmanagedPods"))
    })
    .await;
    // What cannot be scaled cannot be counted.
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "m"}})).expect("a map");
    let uid = maps.create(&PostParams::default(), &map).await.expect("created").metadata.uid;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": uid, "controller": true}]);
    let owned = Patch::Merge(json!({"metadata": {"ownerReferences": owner}}));
    pods.patch("a", &PatchParams::default(), &owned).await.expect("patched");
    eventually("it is said", || async {
        let conditions = budgets.get("share").await.expect("a budget").status?.conditions?;
        let said = "configmaps does not implement the scale subresource";
        conditions.into_iter().find(|condition| condition.reason == "SyncFailed" && condition.message == said)
    })
    .await;
}
