//! Watches, one client at a time. See `load` for many.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use api_server::clock::Clock;
use serde_json::{Value, json};
use testing::{TestServer, client::MERGE_PATCH};

use super::{Place, configmap, pod, version};

fn told(kind: &str, name: &str, version: u64) -> (String, String, u64) {
    (kind.into(), name.into(), version)
}

pub async fn from_a_revision(place: &Place) {
    let client = &place.client;
    let first = place.create("configmaps", &configmap("a")).await;
    let patch = json!({"data": {"key": "2"}});
    let second = client.patch(&place.core("configmaps/a"), MERGE_PATCH, &patch).await.expect(200);
    let path = place.core(&format!("configmaps?watch=1&resourceVersion={}", version(&first)));
    for client in [client.clone(), client.http1()] {
        let mut watch = client.watch(&path).await.expect("a watch");
        assert_eq!(watch.told().await, told("MODIFIED", "a", version(&second)));
    }
    let mut watch = client.watch(&path).await.expect("a watch");
    watch.told().await;
    client.delete(&place.core("configmaps/a")).await.expect(200);
    let gone = watch.next().await.expect("an event");
    // The last state, at the revision of the deletion.
    assert_eq!((&gone["type"], &gone["object"]["data"]), (&json!("DELETED"), &second["data"]));
    assert!(version(&gone["object"]) > version(&second));
    let list = client.get(&place.core("configmaps")).await.expect(200);
    assert!(version(&gone["object"]) <= version(&list));

    // From anywhere: what there is, then what comes.
    place.create("configmaps", &configmap("b")).await;
    let mut watch = client.watch(&place.core("configmaps?watch=true")).await.expect("a watch");
    assert_eq!(watch.told().await.0, "ADDED");
    let third = place.create("configmaps", &configmap("c")).await;
    assert_eq!(watch.told().await, told("ADDED", "c", version(&third)));
    let mut old =
        client.watch(&format!("/api/v1/watch/namespaces/{}/configmaps", place.namespace)).await.expect("a watch");
    assert_eq!((old.told().await.1, old.told().await.1), ("b".into(), "c".into()));
}

pub async fn initial_events(place: &Place) {
    let client = &place.client;
    place.create("configmaps", &configmap("a")).await;
    place.create("configmaps", &configmap("b")).await;
    let all = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = client.watch(&place.core(&format!("configmaps?{all}"))).await.expect("a watch");
    assert_eq!((watch.told().await.1, watch.told().await.1), ("a".into(), "b".into()));
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!((&bookmark["type"], &bookmark["object"]["kind"]), (&json!("BOOKMARK"), &json!("ConfigMap")));
    assert_eq!(bookmark["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    let list = client.get(&place.core("configmaps")).await.expect(200);
    assert!(version(&bookmark["object"]) <= version(&list));
    let third = place.create("configmaps", &configmap("c")).await;
    assert_eq!(watch.told().await, told("ADDED", "c", version(&third)));

    let refused = client.watch(&place.core("configmaps?watch=1&sendInitialEvents=true")).await;
    refused.err().expect("refused").refused(422);
}

pub async fn selections(place: &Place) {
    let client = &place.client;
    let path = place.core("pods?watch=1&labelSelector=tier%3Dweb");
    let mut labelled = client.watch(&path).await.expect("a watch");
    let mut on_node =
        client.watch(&place.core("pods?watch=1&fieldSelector=spec.nodeName%3Dn1")).await.expect("a watch");
    place.create("pods", &pod("p")).await;
    let label = |tier: Value| json!({"metadata": {"labels": {"tier": tier}}});
    let one = place.core("pods/p");
    let enters = client.patch(&one, MERGE_PATCH, &label(json!("web"))).await.expect(200);
    assert_eq!(labelled.told().await, told("ADDED", "p", version(&enters)));
    let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let bound = client.post(&place.core("pods/p/binding"), &binding).await;
    if bound.code == 201 {
        let now = client.get(&one).await.expect(200);
        assert_eq!(labelled.told().await, told("MODIFIED", "p", version(&now)));
        assert_eq!(on_node.told().await, told("ADDED", "p", version(&now)));
    }
    let leaves = client.patch(&one, MERGE_PATCH, &label(json!("db"))).await.expect(200);
    let gone = labelled.next().await.expect("an event");
    assert_eq!((&gone["type"], version(&gone["object"])), (&json!("DELETED"), version(&leaves)));
    assert_eq!(gone["object"]["metadata"]["labels"]["tier"], "web");
    assert_eq!(bound.code, 201, "{}", bound.text());
}

pub async fn one_object(place: &Place) {
    let client = &place.client;
    let field = place.core("configmaps?watch=1&fieldSelector=metadata.name%3Db");
    let deprecated = format!("/api/v1/watch/namespaces/{}/configmaps/b", place.namespace);
    let mut watches = Vec::new();
    for path in [field, deprecated] {
        watches.push(client.watch(&path).await.unwrap_or_else(|refused| panic!("{path}: {}", refused.text())));
    }
    place.create("configmaps", &configmap("a")).await;
    let wanted = place.create("configmaps", &configmap("b")).await;
    for watch in &mut watches {
        assert_eq!(watch.told().await, told("ADDED", "b", version(&wanted)));
    }
}

pub async fn ends(place: &Place) {
    let client = &place.client;
    let mut short = client.watch(&place.core("configmaps?watch=1&timeoutSeconds=1")).await.expect("a watch");
    assert!(short.next().await.is_none());
    place.create("configmaps", &configmap("long")).await;
    let forever = place.core("configmaps?watch=1&timeoutSeconds=9223372036854775807");
    assert!(client.watch(&forever).await.expect("a watch").next().await.is_some());
    let nonsense = client.watch(&place.core("configmaps?watch=1&resourceVersion=x")).await;
    nonsense.err().expect("refused").refused(400);
}

#[tokio::test]
async fn the_past_is_gone() {
    let first = TestServer::embedded().await;
    first.client().post("/api/v1/namespaces/default/configmaps", &configmap("a")).await.expect(201);
    // A server knows what happened since it started.
    let second = TestServer::start(first.store.clone()).await;
    let path = "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=1";
    let mut old = second.client().watch(path).await.expect("a watch");
    let event = old.next().await.expect("an event");
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(old.next().await.is_none());
}

/// A watch that is not read costs the server no more than its window, and its client is told to list again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watchers_list_again() {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let server = TestServer::embedded().await;
    let client = server.client();
    let first = client.post(MAPS, &configmap("a")).await.expect(201);
    let from = version(&first);
    let mut slow = server.client().watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await.expect("a watch");
    let mut quick = server.client().watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await.expect("a watch");
    // More than the window has, and the connection's buffers with it.
    let writes = 60;
    for i in 0..writes {
        let data = json!({"data": {"key": format!("{i}{}", "x".repeat(500_000))}});
        let patched = client.patch(&format!("{MAPS}/a"), MERGE_PATCH, &data).await.expect(200);
        assert_eq!(quick.told().await, told("MODIFIED", "a", version(&patched)), "who keeps up sees everything");
    }
    let (mut seen, mut events) = (from, 0);
    let error = loop {
        let event = slow.next().await.expect("an event");
        if event["type"] == "ERROR" {
            break event["object"].clone();
        }
        assert!(event["type"] == "MODIFIED" && version(&event["object"]) > seen, "in order, until the past is gone");
        (seen, events) = (version(&event["object"]), events + 1);
    };
    assert_eq!((&error["code"], &error["reason"]), (&json!(410), &json!("Expired")));
    assert!(events < writes, "{events} of {writes}");
    assert!(slow.next().await.is_none());
    // From where the list is, everything goes on.
    let list = client.get(MAPS).await.expect(200);
    let mut again = client.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&list))).await.expect("a watch");
    let next = client.post(MAPS, &configmap("b")).await.expect(201);
    assert_eq!(again.told().await, told("ADDED", "b", version(&next)));
}

#[tokio::test]
async fn a_last_bookmark_before_the_end() {
    let server = TestServer::embedded().await;
    let path = "/api/v1/namespaces/default/configmaps";
    let made = server.client().post(path, &configmap("a")).await.expect(201);
    let watch = format!("{path}?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion={}", version(&made));
    let mut watch = server.client().watch(&watch).await.expect("a watch");
    let bookmark = watch.next().await.expect("a bookmark");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(version(&bookmark["object"]) >= version(&made));
    assert!(watch.next().await.is_none());
}

/// Runs ahead of the system's clock by so many seconds.
#[derive(Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> SystemTime {
        SystemTime::now() + Duration::from_secs(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn ages_in_tables_are_as_of_now() {
    let clock = Arc::new(Ahead::default());
    let servers = clock.clone();
    let server = TestServer::with(move |settings, _| settings.clock = servers).await;
    let client = server.client();
    let maps = "/api/v1/namespaces/default/configmaps";
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    client.post(maps, &configmap("old")).await.expect(201);
    let mut watch = client.watch_as(&format!("{maps}?watch=1&resourceVersion=0"), table).await.expect("a watch");
    let mut age = async || watch.next().await.expect("an event")["object"]["rows"][0]["cells"][2].clone();
    let first = age().await;
    assert!(first.as_str().is_some_and(|age| age.ends_with('s')), "{first}");
    clock.0.store(3600, Ordering::Relaxed);
    client.post(maps, &configmap("new")).await.expect(201);
    let new = age().await;
    assert!(new.as_str().is_some_and(|age| age.ends_with('s')), "{new}");
    client.patch(&format!("{maps}/old"), MERGE_PATCH, &json!({"data": {"key": "2"}})).await.expect(200);
    assert_eq!(age().await, "60m");
}
