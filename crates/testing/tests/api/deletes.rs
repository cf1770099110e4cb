//! Deletion in all its forms.

use serde_json::{Value, json};
use testing::client::{MERGE_PATCH, PROTOBUF};

use super::{Place, configmap, deployment, names, pod, version};

pub async fn deleting(place: &Place) {
    let client = &place.client;
    let created = place.create("configmaps", &configmap("a")).await;
    let status = client.delete(&place.core("configmaps/a")).await.expect(200);
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Success")));
    assert_eq!(status["details"]["uid"], created["metadata"]["uid"]);
    client.get(&place.core("configmaps/a")).await.refused(404);
    client.delete(&place.core("configmaps/a")).await.refused(404);
    let again = place.create("configmaps", &configmap("a")).await;
    assert_ne!(again["metadata"]["uid"], created["metadata"]["uid"]);
    client.delete("/api/v1/namespaces/default").await.refused(403);
    // What cannot be read is not as if it had not been said.
    let why = client.delete(&place.core("configmaps/a?gracePeriodSeconds=soon")).await.refused(400);
    assert!(why.contains("soon"), "{why}");
    client.get(&place.core("configmaps/a")).await.expect(200);
}

pub async fn finalizers_hold(place: &Place) {
    let client = &place.client;
    let path = place.core("configmaps/a");
    let mut held = configmap("a");
    held["metadata"]["finalizers"] = json!(["example.com/one", "example.com/two"]);
    place.create("configmaps", &held).await;
    let deleting = client.delete(&path).await.expect(200);
    assert_eq!(deleting["kind"], "ConfigMap");
    assert!(deleting["metadata"]["deletionTimestamp"].is_string());
    client.delete_with(&path, &json!({"orphanDependents": false})).await.expect(202);
    let again = client.delete(&path).await.expect(200);
    assert_eq!(again, deleting, "nothing has changed, so there is no revision");

    let added = json!({"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}});
    client.patch(&path, MERGE_PATCH, &added).await.refused(422);
    let one = json!({"metadata": {"finalizers": ["example.com/two"]}});
    client.patch(&path, MERGE_PATCH, &one).await.expect(200);
    client.get(&path).await.expect(200);
    let last = client.patch(&path, MERGE_PATCH, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert!(last["metadata"]["finalizers"].is_null());
    client.get(&path).await.refused(404);
}

pub async fn pods_go_gracefully(place: &Place) {
    let client = &place.client;
    // Nobody runs a pod without a node: it goes at once.
    place.create("pods", &pod("unbound")).await;
    let gone = client.delete(&place.core("pods/unbound")).await.expect(200);
    assert_eq!(gone["metadata"]["deletionGracePeriodSeconds"], 0);
    client.get(&place.core("pods/unbound")).await.refused(404);

    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("node-1");
    place.create("pods", &bound).await;
    let path = place.core("pods/p");
    let deleting = client.delete(&path).await.expect(200);
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], 30);
    // It can only become shorter.
    let longer = client.delete_with(&path, &json!({"gracePeriodSeconds": 60})).await.expect(200);
    assert_eq!(version(&longer), version(&deleting));
    let shorter = client.delete_with(&path, &json!({"gracePeriodSeconds": 5})).await.expect(200);
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(shorter["metadata"]["deletionTimestamp"].as_str() < deleting["metadata"]["deletionTimestamp"].as_str());
    // The node says that it is done.
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": deleting["metadata"]["uid"]}});
    client.delete_with(&path, &options).await.expect(200);
    client.get(&path).await.refused(404);

    place.create("pods", &bound).await;
    client.delete(&format!("{path}?gracePeriodSeconds=0")).await.expect(200);
    client.get(&path).await.refused(404);
}

/// However long somebody wants to wait, everybody can still read the object, and it goes when it should.
pub async fn endless_grace_is_readable(place: &Place) {
    let client = &place.client;
    for (name, own, query) in [("asked", 30, "?gracePeriodSeconds=9223372036854775807"), ("own", i64::MAX, "")] {
        let mut bound = pod(name);
        bound["spec"]["nodeName"] = json!("node-1");
        bound["spec"]["terminationGracePeriodSeconds"] = own.into();
        place.create("pods", &bound).await;
        let path = place.core(&format!("pods/{name}"));
        let deleting = client.delete(&format!("{path}{query}")).await.expect(200);
        assert_eq!(deleting["metadata"]["deletionTimestamp"], "9999-12-31T23:59:59Z");
        for path in [&path, &place.core("pods")] {
            assert_eq!(client.get_as(path, PROTOBUF).await.code, 200);
        }
        client.put(&path, &client.get(&path).await.expect(200)).await.expect(200);
        // Shorter is counted from when it began.
        let shorter = client.delete(&format!("{path}?gracePeriodSeconds=3600")).await.expect(200);
        assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 3600);
        assert!(shorter["metadata"]["deletionTimestamp"].as_str() < Some("9999"), "{}", shorter["metadata"]);
        client.delete(&format!("{path}?gracePeriodSeconds=0")).await.expect(200);
        client.get(&path).await.refused(404);
    }
    let mut late = pod("late");
    late["metadata"]["managedFields"] = json!([{
        "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "9999-12-31T23:59:59-23:59",
        "fieldsType": "FieldsV1", "fieldsV1": {},
    }]);
    let why = client.post(&place.core("pods"), &late).await.refused(400);
    assert!(why.contains("year outside of range [0,9999]"), "{why}");
    assert_eq!(client.get_as(&place.core("pods"), PROTOBUF).await.code, 200);
}

pub async fn propagation(place: &Place) {
    let client = &place.client;
    let path = |name: &str| place.apps(&format!("deployments/{name}"));
    for (policy, finalizer) in
        [("Foreground", Some("foregroundDeletion")), ("Orphan", Some("orphan")), ("Background", None)]
    {
        let name = policy.to_lowercase();
        client.post(&place.apps("deployments"), &deployment(&name)).await.expect(201);
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy});
        let answer = client.delete_with(&path(&name), &options).await.expect(200);
        match finalizer {
            Some(finalizer) => {
                assert_eq!(answer["metadata"]["finalizers"], json!([finalizer]));
                assert_eq!(client.get(&path(&name)).await.expect(200), answer);
            }
            None => {
                assert_eq!(answer["status"], "Success");
                client.get(&path(&name)).await.refused(404);
            }
        }
    }
    client.delete_with(&path("orphan"), &json!({"propagationPolicy": "Never"})).await.refused(422);
    let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
    client.delete_with(&path("orphan"), &both).await.refused(422);
}

pub async fn preconditions(place: &Place) {
    let client = &place.client;
    let path = place.core("configmaps/a");
    let created = place.create("configmaps", &configmap("a")).await;
    let on = |uid: &Value, version: &str| json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    let uid = &created["metadata"]["uid"];
    let current = version(&created).to_string();
    client.delete_with(&path, &on(&json!("another"), &current)).await.refused(409);
    client.delete_with(&path, &on(uid, "1")).await.refused(409);
    client.delete_with(&path, &on(uid, &current)).await.expect(200);
    client.get(&path).await.refused(404);
}

pub async fn collections(place: &Place) {
    let client = &place.client;
    for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let mut object = configmap(name);
        object["metadata"]["labels"] = json!({"colour": colour});
        place.create("configmaps", &object).await;
    }
    let deleted = client.delete(&place.core("configmaps?labelSelector=colour%3Dred")).await.expect(200);
    assert_eq!((&deleted["kind"], names(&deleted)), (&json!("ConfigMapList"), vec!["a", "c"]));
    let left = client.get(&place.core("configmaps")).await.expect(200);
    assert_eq!(names(&left), ["b"]);
    client.delete("/api/v1/configmaps").await.refused(405);
    client.get(&place.core("configmaps/b")).await.expect(200);
}
