//! Eviction, which respects disruption budgets.

use serde_json::{Value, json};
use testing::client::MERGE_PATCH;

use super::{Place, pod, version};

async fn running(place: &Place, name: &str, ready: bool) -> Value {
    let mut object = pod(name);
    object["metadata"]["labels"] = json!({"app": "a"});
    object["spec"]["nodeName"] = json!("n");
    place.create("pods", &object).await;
    let ready = json!([{"type": "Ready", "status": if ready { "True" } else { "False" }}]);
    let status = json!({"status": {"phase": "Running", "conditions": ready}});
    place.client.patch(&place.core(&format!("pods/{name}/status")), MERGE_PATCH, &status).await.expect(200)
}

/// A budget as its controller would keep it.
async fn budget(place: &Place, policy: &str, status: Value) -> String {
    let budgets = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", place.namespace);
    let spec = json!({
        "minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}, "unhealthyPodEvictionPolicy": policy,
    });
    let made = json!({"metadata": {"name": "guard"}, "spec": spec});
    place.client.post(&budgets, &made).await.expect(201);
    let path = format!("{budgets}/guard");
    place.client.patch(&format!("{path}/status"), MERGE_PATCH, &json!({"status": status})).await.expect(200);
    path
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

pub async fn budgets_are_spent(place: &Place) {
    let client = &place.client;
    for name in ["p", "q"] {
        running(place, name, true).await;
    }
    let status = json!({
        "observedGeneration": 0, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    });
    let guard = budget(place, "IfHealthyBudget", status).await;
    let evict = |name: &str| place.core(&format!("pods/{name}/eviction"));

    // Its controller has not seen the budget yet.
    let refusal = client.post(&evict("p"), &eviction("p")).await;
    assert_eq!(refusal.header("retry-after"), "10");
    let refusal = refusal.expect(429);
    assert_eq!(refusal["details"]["causes"][0]["reason"], "DisruptionBudget");
    let seen = json!({"status": {"observedGeneration": 1}});
    client.patch(&format!("{guard}/status"), MERGE_PATCH, &seen).await.expect(200);

    client.post(&format!("{}?dryRun=All", evict("p")), &eviction("p")).await.expect(201);
    client.post(&evict("p"), &eviction("p")).await.expect(201);
    let evicted = client.get(&place.core("pods/p")).await.expect(200);
    assert!(evicted["metadata"]["deletionTimestamp"].is_string());
    let reasons: Vec<_> = evicted["status"]["conditions"].as_array().into_iter().flatten().collect();
    assert!(reasons.iter().any(|c| c["type"] == "DisruptionTarget" && c["reason"] == "EvictionByEvictionAPI"));
    let spent = client.get(&guard).await.expect(200)["status"].clone();
    assert_eq!(spent["disruptionsAllowed"], 0);
    assert!(spent["disruptedPods"]["p"].is_string(), "{spent}");
    assert_eq!(spent["conditions"][0]["reason"], "InsufficientPods");

    let refusal = client.post(&evict("q"), &eviction("q")).await.expect(429);
    assert_eq!(
        refusal["details"]["causes"][0]["message"],
        "The disruption budget guard does not allow evicting pods currently"
    );
    assert!(client.get(&place.core("pods/q")).await.expect(200)["metadata"]["deletionTimestamp"].is_null());
}

pub async fn pods_that_do_not_count_go_as_they_are(place: &Place) {
    let client = &place.client;
    let none = json!({"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1});
    budget(place, "AlwaysAllow", none).await;
    let evict = |name: &str| place.core(&format!("pods/{name}/eviction"));
    let at = |name: &str, version: u64| {
        let mut eviction = eviction(name);
        eviction["deleteOptions"] = json!({"preconditions": {"resourceVersion": version.to_string()}});
        eviction
    };

    // Not as it is now: the client has seen another state.
    let unready = running(place, "unready", false).await;
    client.post(&evict("unready"), &at("unready", version(&unready) - 1)).await.refused(409);
    client.post(&evict("unready"), &at("unready", version(&unready))).await.expect(201);
    let gone = client.get(&place.core("pods/unready")).await.expect(200);
    assert!(gone["metadata"]["deletionTimestamp"].is_string());

    let mut pending = pod("pending");
    pending["metadata"]["labels"] = json!({"app": "a"});
    place.create("pods", &pending).await;
    let mut of_another = eviction("pending");
    of_another["deleteOptions"] = json!({"preconditions": {"uid": "of-another"}});
    client.post(&evict("pending"), &of_another).await.refused(409);
    client.post(&evict("pending"), &eviction("pending")).await.expect(201);
    client.get(&place.core("pods/pending")).await.refused(404);
    running(place, "ready", true).await;
    client.post(&evict("ready"), &eviction("ready")).await.refused(429);
}
