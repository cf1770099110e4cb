//! Lists: pages, revisions, selectors.

use serde_json::{Value, json};
use testing::client::MERGE_PATCH;

use super::{Place, configmap, names, pod, version};

async fn fill(place: &Place, count: usize) -> Value {
    for i in 0..count {
        place.create("configmaps", &configmap(&format!("c{i}"))).await;
    }
    place.client.get(&place.core("configmaps")).await.expect(200)
}

fn token(list: &Value) -> String {
    list["metadata"]["continue"].as_str().expect("a continue token").to_owned()
}

pub async fn pages(place: &Place) {
    let client = &place.client;
    fill(place, 7).await;
    let page = |limit: u32, token: &str| place.core(&format!("configmaps?limit={limit}&continue={token}"));
    let first = client.get(&page(3, "")).await.expect(200);
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["c0", "c1", "c2"], &json!(4)));

    // What happens now is not seen by the pages that follow.
    client.delete(&place.core("configmaps/c3")).await.expect(200);
    client.patch(&place.core("configmaps/c5"), MERGE_PATCH, &json!({"data": {"key": "new"}})).await.expect(200);
    place.create("configmaps", &configmap("c55")).await;
    let second = client.get(&page(3, &token(&first))).await.expect(200);
    assert_eq!((names(&second), version(&second)), (vec!["c3", "c4", "c5"], version(&first)));
    assert_eq!(
        (&second["items"][2]["data"]["key"], &second["metadata"]["remainingItemCount"]),
        (&json!("1"), &json!(1))
    );
    let third = client.get(&page(3, &token(&second))).await.expect(200);
    assert_eq!((names(&third), version(&third)), (vec!["c6"], version(&first)));
    assert!(third["metadata"]["continue"].is_null() && third["metadata"]["remainingItemCount"].is_null());
    assert_eq!(names(&client.get(&page(0, &token(&first))).await.expect(200)), ["c3", "c4", "c5", "c6"]);

    // Exactly as many as there are is no reason for another page.
    let all = client.get(&page(7, "")).await.expect(200);
    assert!(all["metadata"]["continue"].is_null(), "{}", all["metadata"]);
    let labelled = client.get(&place.core("configmaps?limit=2&labelSelector=none")).await.expect(200);
    assert!(names(&labelled).is_empty() && labelled["metadata"]["continue"].is_null());
    client.get(&page(3, "nonsense")).await.refused(400);
    let elsewhere = format!("/api/v1/namespaces/default/configmaps?continue={}", token(&first));
    client.get(&elsewhere).await.refused(400);
    let at = format!("{}&resourceVersion={}", page(3, &token(&first)), version(&first));
    client.get(&at).await.refused(400);
}

pub async fn versions(place: &Place) {
    let client = &place.client;
    let before = fill(place, 3).await;
    let then = version(&before);
    client.delete(&place.core("configmaps/c1")).await.expect(200);
    let now = client.get(&place.core("configmaps")).await.expect(200);
    assert!(version(&now) > then);
    let at = |query: &str| place.core(&format!("configmaps?{query}"));

    let exact = client.get(&at(&format!("resourceVersion={then}&resourceVersionMatch=Exact"))).await.expect(200);
    assert_eq!(exact, before);
    let newer = client.get(&at(&format!("resourceVersion={then}&resourceVersionMatch=NotOlderThan"))).await.expect(200);
    assert_eq!(names(&newer), ["c0", "c2"]);
    assert_eq!(names(&client.get(&at(&format!("resourceVersion={then}"))).await.expect(200)), ["c0", "c2"]);
    assert_eq!(names(&client.get(&at("resourceVersion=0")).await.expect(200)), ["c0", "c2"]);
    // A limited list at a revision is at exactly that revision, unless it says otherwise.
    let limited = client.get(&at(&format!("resourceVersion={then}&limit=2"))).await.expect(200);
    assert_eq!((names(&limited), version(&limited)), (vec!["c0", "c1"], then));

    client.get(&at("resourceVersion=nonsense")).await.refused(400);
    client.get(&at("resourceVersionMatch=Exact")).await.refused(422);
    client.get(&at("resourceVersion=0&resourceVersionMatch=Exact")).await.refused(422);
    client.get(&at("resourceVersion=1&resourceVersionMatch=Sometimes")).await.refused(422);
    let why = client.get(&at("sendInitialEvents=true")).await.refused(422);
    assert!(why.contains("sendInitialEvents is forbidden for list"), "{why}");
    let why = client.get(&at("watch=1&resourceVersionMatch=Exact")).await.refused(422);
    assert!(why.contains("unless sendInitialEvents is provided") && why.contains("Unsupported value"), "{why}");
    let future = client.get(&at(&format!("resourceVersion={}", then + 1_000_000))).await;
    assert_eq!(future.header("retry-after"), "1");
    assert!(future.refused(504).contains("Too large resource version"));
}

pub async fn selectors(place: &Place) {
    let client = &place.client;
    for (name, node, tier) in [("a", "n1", Some("web")), ("b", "n2", Some("db")), ("c", "n1", None)] {
        let mut object = pod(name);
        object["spec"]["nodeName"] = json!(node);
        object["metadata"]["labels"] = tier.map(|t| json!({"tier": t})).unwrap_or_default();
        place.create("pods", &object).await;
    }
    for (query, want) in [
        ("labelSelector=tier%3Dweb", vec!["a"]),
        ("labelSelector=tier!%3Dweb", vec!["b", "c"]),
        ("labelSelector=tier+in+(web,db)", vec!["a", "b"]),
        ("labelSelector=!tier", vec!["c"]),
        ("labelSelector=tier", vec!["a", "b"]),
        ("fieldSelector=spec.nodeName%3Dn1", vec!["a", "c"]),
        ("fieldSelector=metadata.name%3Db", vec!["b"]),
        ("fieldSelector=metadata.name!%3Db,spec.nodeName%3Dn1&labelSelector=tier", vec!["a"]),
        ("fieldSelector=status.phase%3DPending", vec!["a", "b", "c"]),
    ] {
        let list = client.get(&place.core(&format!("pods?{query}"))).await.expect(200);
        assert_eq!(names(&list), want, "{query}");
    }
    client.get(&place.core("pods?labelSelector=a%3D%3D%3Db")).await.refused(400);
    client.get(&place.core("pods?fieldSelector=spec.colour%3Dred")).await.refused(400);
    let everywhere = client.get("/api/v1/pods?fieldSelector=metadata.namespace%3Dselectors").await.expect(200);
    assert_eq!(names(&everywhere), ["a", "b", "c"]);
}

#[tokio::test]
async fn an_expired_page_goes_on_at_the_present() {
    let server = testing::TestServer::embedded().await;
    let place = Place::new(&server, "expired").await;
    let client = &place.client;
    let before = fill(&place, 5).await;
    let first = client.get(&place.core("configmaps?limit=2")).await.expect(200);
    place.create("secrets", &json!({"metadata": {"name": "s"}})).await;
    let untouched = client.get(&place.core("secrets?limit=1")).await.expect(200);
    client.delete(&place.core("configmaps/c3")).await.expect(200);
    let current = server.store.current_revision().await.expect("a revision");
    server.store.compact(current).await.expect("compacted");

    // Nothing of the kind has changed since, and yet it is the past.
    let exact = format!("secrets?resourceVersion={}&resourceVersionMatch=Exact", version(&untouched));
    assert_eq!(client.get(&place.core(&exact)).await.expect(410)["reason"], "Expired");

    let gone = client.get(&place.core(&format!("configmaps?limit=2&continue={}", token(&first)))).await.expect(410);
    assert_eq!(gone["reason"], "Expired");
    let rest = client.get(&place.core(&format!("configmaps?limit=2&continue={}", token(&gone)))).await.expect(200);
    // The server itself may have written something since.
    assert!(names(&rest) == ["c2", "c4"] && version(&rest) >= current.0, "{rest}");
    let exact = format!("configmaps?resourceVersion={}&resourceVersionMatch=Exact", version(&before));
    assert_eq!(client.get(&place.core(&exact)).await.expect(410)["reason"], "Expired");
}

/// The newer API of events has names of its own for the fields of what both store.
pub async fn events_by_fields(place: &Place) {
    for (name, about) in [("e1", "a"), ("e2", "b")] {
        let object = json!({"kind": "Pod", "name": about, "namespace": place.namespace});
        let event = json!({"metadata": {"name": name}, "involvedObject": object, "reason": "Made", "type": "Normal",
            "reportingComponent": "test", "reportingInstance": "x"});
        place.create("events", &event).await;
    }
    let client = &place.client;
    let of = |selector: &str| format!("?fieldSelector={selector}");
    let newer = format!("/apis/events.k8s.io/v1/namespaces/{}/events", place.namespace);
    for selector in
        ["regarding.name=b", "regarding.kind=Pod,metadata.name=e2", "reportingController=test,regarding.name=b"]
    {
        let list = client.get(&format!("{newer}{}", of(selector))).await.expect(200);
        assert_eq!(names(&list), ["e2"], "{selector}");
    }
    let list =
        client.get(&format!("{}{}", place.core("events"), of("involvedObject.name=a,reason=Made"))).await.expect(200);
    assert_eq!(names(&list), ["e1"]);
    let odd = client.get(&format!("{newer}{}", of("involvedObject.name=a"))).await.refused(400);
    assert!(odd.contains("field label not supported: involvedObject.name"), "{odd}");
    client.get(&format!("{}{}", place.core("events"), of("regarding.name=a"))).await.refused(400);
}
