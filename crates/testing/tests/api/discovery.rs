//! What is served, against what a fresh Kubernetes says it serves; and the resources that are never stored.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use testing::facts;

use super::{Place, names, pod};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

/// Every resource of a document by group, version and name.
fn resources(document: &Value) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for group in items(document, "items") {
        for version in items(group, "versions") {
            for resource in items(version, "resources") {
                let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let key = [&group["metadata"]["name"], &version["version"], &resource["resource"]].map(name).join("/");
                found.insert(key, comparable(resource));
            }
        }
    }
    found
}

/// Subresources in one order.
fn comparable(resource: &Value) -> Value {
    let mut resource = resource.clone();
    if let Some(subresources) = resource["subresources"].as_array_mut() {
        subresources.sort_by_key(|s| s["subresource"].to_string());
    }
    resource
}

pub async fn like_kubernetes(place: &Place) {
    let Some(path) = facts("bootstrap-v1.36.4.json") else { return };
    let text = std::fs::read(path).expect("the facts can be read");
    let facts: Value = serde_json::from_slice(&text).expect("the facts are JSON");
    for path in ["/api", "/apis"] {
        let wanted = resources(&facts[format!("{path} (aggregated v2)")]);
        let ours = resources(&place.client.get_as(path, AGGREGATED).await.expect(200));
        assert!(!wanted.is_empty(), "no facts of {path}");
        for (name, resource) in &wanted {
            assert_eq!(ours.get(name), Some(resource), "{name}");
        }
        assert_eq!(ours.keys().collect::<Vec<_>>(), wanted.keys().collect::<Vec<_>>());
    }
    let groups = place.client.get("/apis").await.expect(200);
    assert_eq!(groups["groups"], facts["/apis"]["groups"]);
}

pub async fn components(place: &Place) {
    let client = &place.client;
    let list = client.get("/api/v1/componentstatuses").await.expect(200);
    assert_eq!(names(&list), ["controller-manager", "scheduler", "etcd-0"]);
    assert_eq!(list["metadata"], json!({}));
    let store = client.get("/api/v1/componentstatuses/etcd-0").await.expect(200);
    assert_eq!(store["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    let one = client.get("/api/v1/componentstatuses?fieldSelector=metadata.name=scheduler").await.expect(200);
    assert_eq!(names(&one), ["scheduler"]);
    let missing = client.get("/api/v1/componentstatuses/none").await.refused(404);
    assert_eq!(missing, "componentstatus \"none\" not found");
    client.delete("/api/v1/componentstatuses/etcd-0").await.refused(405);
}

pub async fn bindings(place: &Place) {
    let client = &place.client;
    place.create("pods", &pod("p")).await;
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "node-1"}});
    let done = client.post(&place.core("bindings"), &binding).await.expect(201);
    assert_eq!(done["status"], "Success");
    let bound = client.get(&place.core("pods/p")).await.expect(200);
    assert_eq!(bound["spec"]["nodeName"], "node-1");
    client.post(&place.core("bindings"), &binding).await.refused(409);
    let nowhere = json!({"metadata": {"name": "p"}, "target": {}});
    client.post(&place.core("bindings"), &nowhere).await.refused(422);
    client.get(&place.core("bindings")).await.refused(405);
}
