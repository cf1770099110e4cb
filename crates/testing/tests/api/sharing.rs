//! Two servers on one etcd.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ::testing::{TestServer, client::Client};
use serde_json::json;
use storage_etcd::testing;

use super::{configmap, names, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn two() -> Option<(testing::Server, TestServer, TestServer)> {
    if !testing::etcd_is_installed() {
        return None;
    }
    let etcd = testing::Server::start(&[]).await.expect("etcd starts");
    // At once, so that both make what a fresh cluster has.
    let (one, other) = tokio::join!(TestServer::on_etcd(&etcd), TestServer::on_etcd(&etcd));
    Some((etcd, one, other))
}

#[tokio::test]
async fn each_sees_at_once_what_the_other_did() {
    let Some((_etcd, one, other)) = two().await else { return };
    let (a, b) = (one.client(), other.client());
    for i in 0..20 {
        let (a, b) = if i % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let name = format!("n{i}");
        a.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await.expect(201);
        let maps = format!("/api/v1/namespaces/{name}/configmaps");
        let made = b.post(&maps, &configmap("x")).await.expect(201);
        assert_eq!(a.get(&format!("{maps}/x")).await.expect(200), made);
        assert_eq!(names(&a.get(&maps).await.expect(200)), ["x"]);
        let mut changed = made.clone();
        changed["data"]["key"] = json!("2");
        let changed = a.put(&format!("{maps}/x"), &changed).await.expect(200);
        b.put(&format!("{maps}/x"), &made).await.refused(409);
        // The other server's cache may be behind, but its verdict is not.
        b.put(&format!("{maps}/x"), &changed).await.expect(200);
        a.post(&maps, &configmap("x")).await.refused(409);
        a.delete(&format!("{maps}/x")).await.expect(200);
        b.get(&format!("{maps}/x")).await.refused(404);
        b.delete(&format!("{maps}/x")).await.refused(404);
        b.post(&maps, &configmap("x")).await.expect(201);
    }
}

/// Counts up by read-modify-write, and creates an object for each success; returns how often it was told yes.
async fn count(client: Client, writer: usize, going: Arc<AtomicBool>) -> (u64, Vec<String>) {
    let (mut counted, mut made) = (0, Vec::new());
    while going.load(Ordering::SeqCst) {
        let Some(read) = client.try_send(hyper::Method::GET, &format!("{MAPS}/counter"), &[], "").await else { break };
        let mut counter = read.expect(200);
        let value: u64 = counter["data"]["key"].as_str().and_then(|v| v.parse().ok()).expect("a number");
        counter["data"]["key"] = json!((value + 1).to_string());
        let body = counter.to_string();
        let Some(put) = client.try_send(hyper::Method::PUT, &format!("{MAPS}/counter"), &[], body).await else { break };
        match put.code {
            200 => counted += 1,
            409 => {}
            _ => panic!("{}", put.text()),
        }
        let name = format!("w{writer}-{}", made.len());
        let body = configmap(&name).to_string();
        let Some(post) = client.try_send(hyper::Method::POST, MAPS, &[], body).await else { break };
        assert_eq!(post.code, 201, "{}", post.text());
        made.push(name);
    }
    (counted, made)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_one_loses_nothing() {
    let Some((_etcd, mut one, other)) = two().await else { return };
    let survivor = other.client();
    let mut start = configmap("counter");
    start["data"]["key"] = json!("0");
    let start = survivor.post(MAPS, &start).await.expect(201);
    let mut watch =
        survivor.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&start))).await.expect("a watch");

    let going = Arc::new(AtomicBool::new(true));
    let writers: Vec<_> = (0..4)
        .map(|i| tokio::spawn(count(if i % 2 == 0 { one.client() } else { other.client() }, i, going.clone())))
        .collect();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    one.kill();
    tokio::time::sleep(Duration::from_millis(800)).await;
    going.store(false, Ordering::SeqCst);

    let (mut counted, mut made) = (0, Vec::new());
    for writer in writers {
        let (yes, names) = writer.await.expect("a writer");
        counted += yes;
        made.extend(names);
    }
    let list = survivor.get(MAPS).await.expect(200);
    let there = names(&list);
    for name in &made {
        assert!(there.contains(&name.as_str()), "{name} was acknowledged and is gone");
    }
    let counter = survivor.get(&format!("{MAPS}/counter")).await.expect(200);
    let value: u64 = counter["data"]["key"].as_str().and_then(|v| v.parse().ok()).expect("a number");
    // At most the two writes that were under way at the killed server were done without an answer.
    assert!((counted..=counted + 2).contains(&value), "{counted} acknowledged, {value} counted");

    // The survivor's watch saw each change of either server once, in order.
    let last = survivor.post(MAPS, &configmap("zz-last")).await.expect(201);
    let (mut added, mut values, mut seen) = (BTreeMap::new(), Vec::new(), 0);
    while seen < version(&last) {
        let event =
            tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("in time").expect("an event");
        let object = &event["object"];
        assert!(version(object) > seen, "{event}");
        seen = version(object);
        if event["type"] == "ADDED" {
            *added.entry(object["metadata"]["name"].as_str().unwrap_or_default().to_owned()).or_insert(0) += 1;
        } else {
            values.push(object["data"]["key"].as_str().and_then(|v| v.parse::<u64>().ok()).expect("a number"));
        }
    }
    assert!(made.iter().all(|name| added.get(name) == Some(&1)));
    assert_eq!(values, (1..=value).collect::<Vec<_>>());
    eprintln!("{counted} counted and {} made, on both servers", made.len());
}
