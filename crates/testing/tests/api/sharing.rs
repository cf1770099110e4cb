//! Two servers on one etcd.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use ::testing::{TestServer, client::Client};
use hyper::Method;
use serde_json::{Value, json};
use storage_etcd::testing;
use tokio::sync::watch;

use super::{configmap, names, version};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LAST: &str = "zz-last";

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

/// What writers were told, and how often, by the server they write to.
#[derive(Default)]
struct Told {
    counted: AtomicU64,
    made: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Told {
    /// Waits until so many more objects were made than there are now.
    async fn more(&self, count: usize) {
        let made = || self.made.lock().expect("no writer panicked").len();
        let enough = made() + count;
        while made() < enough {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Counts up by read-modify-write and makes an object each time, until it is told to stop or its server is gone.
async fn count(client: Client, writer: String, told: Arc<Told>) {
    for i in 0.. {
        if told.stop.load(Ordering::SeqCst) {
            return;
        }
        let Some(read) = client.try_send(Method::GET, &format!("{MAPS}/counter"), &[], "").await else { return };
        let mut counter = read.expect(200);
        counter["data"]["key"] = json!((counted(&counter) + 1).to_string());
        let body = counter.to_string();
        let Some(put) = client.try_send(Method::PUT, &format!("{MAPS}/counter"), &[], body).await else { return };
        match put.code {
            200 => drop(told.counted.fetch_add(1, Ordering::SeqCst)),
            409 => {}
            _ => panic!("{}", put.text()),
        }
        let name = format!("{writer}-{i}");
        let body = configmap(&name).to_string();
        let Some(post) = client.try_send(Method::POST, MAPS, &[], body).await else { return };
        assert_eq!(post.code, 201, "{}", post.text());
        told.made.lock().expect("no writer panicked").push(name);
    }
}

fn counted(counter: &Value) -> u64 {
    counter["data"]["key"].as_str().and_then(|value| value.parse().ok()).expect("a number")
}

/// Lists and watches; when its server is gone it goes on at the next one, from where it was if that is possible.
struct Follower {
    servers: watch::Receiver<Client>,
    /// What there is, by name.
    state: BTreeMap<String, u64>,
    seen: u64,
    /// What the counter was, as long as no list came between.
    counter: Option<u64>,
    resumed: usize,
}

impl Follower {
    fn new(servers: watch::Receiver<Client>) -> Self {
        Self { servers, state: BTreeMap::new(), seen: 0, counter: None, resumed: 0 }
    }

    /// Follows until the last object is there.
    async fn follow(mut self) -> Self {
        while !self.state.contains_key(LAST) {
            let client = self.servers.borrow_and_update().clone();
            if self.watch(&client).await.is_none() && !self.state.contains_key(LAST) {
                self.servers.changed().await.expect("there is another server");
            }
        }
        self
    }

    /// Until the last object is there, the past is gone (then from a list), or the server is.
    async fn watch(&mut self, client: &Client) -> Option<()> {
        if self.seen == 0 {
            let list = client.try_send(Method::GET, MAPS, &[], "").await?.expect(200);
            let items = list["items"].as_array().into_iter().flatten();
            self.state = items.map(|object| (name(object), version(object))).collect();
            self.seen = version(&list);
            self.counter = None;
        } else {
            self.resumed += 1;
        }
        let mut watch = match client.watch(&format!("{MAPS}?watch=1&resourceVersion={}", self.seen)).await {
            Ok(watch) => watch,
            Err(unreachable) if unreachable.code == 0 => return None,
            Err(refused) => panic!("{}", refused.text()),
        };
        while !self.state.contains_key(LAST) {
            let event = watch.next().await?;
            let object = &event["object"];
            if event["type"] == "ERROR" {
                assert_eq!(object["code"], 410, "{event}");
                self.seen = 0;
                return Some(());
            }
            assert!(version(object) > self.seen, "after {}: {event}", self.seen);
            self.seen = version(object);
            let before = self.state.insert(name(object), self.seen);
            assert_eq!(event["type"] == "ADDED", before.is_none(), "{event}");
            if name(object) == "counter" {
                let now = counted(object);
                assert!(self.counter.is_none_or(|last| last + 1 == now), "{:?}, then {event}", self.counter);
                self.counter = Some(now);
            }
        }
        Some(())
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killing_either_loses_nothing() {
    let Some((etcd, mut one, mut other)) = two().await else { return };
    let mut start = configmap("counter");
    start["data"]["key"] = json!("0");
    one.client().post(MAPS, &start).await.expect(201);
    // One watches at the first server until that is gone, the other at the second.
    let (first, from_first) = watch::channel(one.client());
    let (second, from_second) = watch::channel(other.client());
    let followers = [from_first, from_second].map(|servers| tokio::spawn(Follower::new(servers).follow()));

    let told = Arc::new(Told::default());
    let mut writers = tokio::task::JoinSet::new();
    let mut write = |server: &TestServer, name: &str| {
        for i in 0..2 {
            writers.spawn(count(server.client(), format!("{name}{i}"), told.clone()));
        }
    };
    write(&one, "a");
    write(&other, "b");
    told.more(60).await;
    one.kill();
    first.send(other.client()).expect("it is followed");
    told.more(60).await;
    let third = TestServer::on_etcd(&etcd).await;
    write(&third, "c");
    told.more(60).await;
    other.kill();
    first.send(third.client()).expect("it is followed");
    second.send(third.client()).expect("it is followed");
    told.more(60).await;
    told.stop.store(true, Ordering::SeqCst);
    while let Some(ended) = writers.join_next().await {
        ended.expect("a writer");
    }

    let survivor = third.client();
    survivor.post(MAPS, &configmap(LAST)).await.expect(201);
    let list = survivor.get(MAPS).await.expect(200);
    let there: BTreeMap<String, u64> =
        list["items"].as_array().into_iter().flatten().map(|object| (name(object), version(object))).collect();
    let made = told.made.lock().expect("no writer panicked").clone();
    for name in &made {
        assert!(there.contains_key(name), "{name} was acknowledged and is gone");
    }
    let acknowledged = told.counted.load(Ordering::SeqCst);
    let value = counted(&survivor.get(&format!("{MAPS}/counter")).await.expect(200));
    // At most the writes that were under way at the killed servers were done without an answer.
    assert!((acknowledged..=acknowledged + 4).contains(&value), "{acknowledged} acknowledged, {value} counted");
    for follower in followers {
        let follower = follower.await.expect("a follower");
        assert_eq!(follower.state, there);
        assert!(follower.resumed > 0, "it went on at another server");
    }
    eprintln!("{acknowledged} counted and {} made, on three servers", made.len());
}
