//! Watches under load: writers at full speed, and clients that list, watch, break off at random and come back. None may
//! miss, repeat or reorder anything.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testing::{
    TestServer,
    client::{Client, MERGE_PATCH},
};

use super::{configmap, version};

const WRITERS: usize = 4;
const OBJECTS: usize = 12;
const CLIENTS: usize = 50;
const WRITING: Duration = Duration::from_secs(3);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// What some clients select by; writers turn it on and off.
const CHOSEN: &str = "chosen";

/// One change, as a watch from the beginning told it.
#[derive(Clone, Debug)]
struct Change {
    version: u64,
    name: String,
    /// Whether the object has the label afterwards; `None` when it is gone.
    chosen: Option<bool>,
}

/// What a client saw between two revisions.
struct Stretch {
    from: u64,
    to: u64,
    /// If it began with a list: what that had.
    listed: Option<BTreeMap<String, u64>>,
    events: Vec<(String, String, u64)>,
}

fn is_chosen(object: &Value) -> bool {
    object["metadata"]["labels"][CHOSEN] == "yes"
}

/// Writes at full speed, and returns what was acknowledged: puts with their revisions, and how often it deleted.
async fn write(client: Client, writer: usize, until: Instant) -> (Vec<(String, u64)>, usize) {
    let (mut puts, mut deletes, mut round) = (Vec::new(), 0, 0usize);
    while Instant::now() < until {
        let name = format!("w{writer}-{}", round % OBJECTS);
        let path = format!("{MAPS}/{name}");
        let object = match (round / OBJECTS) % 6 {
            0 => client.post(MAPS, &configmap(&name)).await.expect(201),
            5 => {
                client.delete(&path).await.expect(200);
                deletes += 1;
                round += 1;
                continue;
            }
            step => {
                let label = if step % 2 == 1 { "yes" } else { "no" };
                let patch = json!({"metadata": {"labels": {CHOSEN: label}}, "data": {"round": round.to_string()}});
                client.patch(&path, MERGE_PATCH, &patch).await.expect(200)
            }
        };
        puts.push((name, version(&object)));
        round += 1;
    }
    (puts, deletes)
}

/// Lists and watches, breaking off at random, until everything up to `end` is seen; it is zero while that is not known.
async fn follow(client: Client, seed: u64, chosen: bool, end: Arc<AtomicU64>) -> Vec<Stretch> {
    let mut random = seed;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let selector = if chosen { format!("&labelSelector={CHOSEN}%3Dyes") } else { String::new() };
    let mut stretches = Vec::new();
    let mut resume = None;
    loop {
        let mut stretch = match resume.take() {
            Some(from) => Stretch { from, to: from, listed: None, events: Vec::new() },
            None => {
                let list = client.get(&format!("{MAPS}?{selector}")).await.expect(200);
                let from = version(&list);
                let items = list["items"].as_array().into_iter().flatten();
                let listed = items
                    .map(|o| (o["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version(o)))
                    .collect();
                Stretch { from, to: from, listed: Some(listed), events: Vec::new() }
            }
        };
        let end = end.load(Ordering::SeqCst);
        let path = format!("{MAPS}?watch=1&resourceVersion={}{selector}", stretch.from);
        let lasts = if end > 0 { Duration::from_secs(20) } else { Duration::from_millis(next() % 400) };
        let broken_off = tokio::time::timeout(lasts, async {
            let mut watch = client.watch(&path).await.expect("a watch");
            while end == 0 || stretch.to < end {
                let event = watch.next().await.expect("an event");
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                if kind == "ERROR" {
                    assert_eq!(event["object"]["code"], 410, "{event}");
                    return;
                }
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                stretch.to = version(&event["object"]);
                stretch.events.push((kind, name, stretch.to));
            }
        })
        .await
        .is_err();
        // Whoever was told that the past is gone, or has luck, starts over with a list.
        resume = (broken_off && next() % 3 > 0).then_some(stretch.to);
        let done = end > 0 && stretch.to >= end;
        stretches.push(stretch);
        if done {
            return stretches;
        }
    }
}

/// An event as a client is told it: its type, the object's name and its version.
type Told = (String, String, u64);

/// The objects a client must have at a revision, and the events it must have seen up to another.
fn expected(log: &[Change], chosen: bool, from: u64, to: u64) -> (BTreeMap<String, u64>, Vec<Told>) {
    let (mut state, mut events) = (BTreeMap::new(), Vec::new());
    for change in log.iter().take_while(|c| c.version <= to) {
        let before = state.contains_key(&change.name);
        let after = change.chosen.is_some_and(|yes| yes || !chosen);
        let kind = match (before, after) {
            (false, false) => continue,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if change.version > from {
            events.push((kind.to_owned(), change.name.clone(), change.version));
        }
        // Only the state at `from` is wanted, but later kinds depend on what was there.
        match after {
            true => state.insert(change.name.clone(), change.version),
            false => state.remove(&change.name),
        };
    }
    let (listed, _) = if from < to { expected(log, chosen, from, from) } else { (state, Vec::new()) };
    (listed, events)
}

/// Everything that happened, told by one watch that was never broken off.
async fn record(client: Client, from: u64, end: tokio::sync::oneshot::Receiver<u64>) -> Vec<Change> {
    let mut watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await.expect("a watch");
    let mut log: Vec<Change> = Vec::new();
    let (mut end, mut last) = (std::pin::pin!(end), u64::MAX);
    while log.last().is_none_or(|c| c.version < last) {
        tokio::select! {
            event = watch.next() => {
                let event = event.expect("the watch goes on");
                let object = &event["object"];
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let chosen = (event["type"] != "DELETED").then(|| is_chosen(object));
                log.push(Change { version: version(object), name, chosen });
            }
            known = &mut end, if last == u64::MAX => last = known.expect("the end"),
        }
    }
    log
}

async fn under_load(server: &TestServer) {
    let client = server.client();
    let from = version(&client.get(MAPS).await.expect(200));
    let (end, ended) = tokio::sync::oneshot::channel();
    let log = tokio::spawn(record(server.client(), from, ended));
    let known_end = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|i| {
            let client = if i % 5 == 0 { server.client().http1() } else { server.client() };
            let chosen = i % 3 == 0;
            (chosen, tokio::spawn(follow(client, 88172645463325252 + i as u64, chosen, known_end.clone())))
        })
        .collect();
    let until = Instant::now() + WRITING;
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write(server.client(), w, until))).collect();

    let mut acknowledged = BTreeMap::new();
    let mut deletes = 0;
    for writer in writers {
        let (puts, deleted) = writer.await.expect("a writer");
        deletes += deleted;
        for (name, version) in puts {
            assert_eq!(acknowledged.insert(version, name), None, "revision {version} was given twice");
        }
    }
    // A last change that concerns everybody, so that they know where the end is.
    let mut last = configmap("last");
    last["metadata"]["labels"] = json!({CHOSEN: "yes"});
    let last = client.post(MAPS, &last).await.expect(201);
    acknowledged.insert(version(&last), "last".into());
    end.send(version(&last)).expect("the recorder listens");
    let log = log.await.expect("the recorder");
    let put: BTreeMap<u64, String> =
        log.iter().filter(|c| c.chosen.is_some()).map(|c| (c.version, c.name.clone())).collect();
    assert_eq!(put, acknowledged, "one watch sees exactly what was acknowledged");
    assert_eq!(log.iter().filter(|c| c.chosen.is_none()).count(), deletes);
    assert!(log.is_sorted_by(|a, b| a.version < b.version));
    let list = client.get(MAPS).await.expect(200);
    let items = list["items"].as_array().into_iter().flatten();
    let there = items.map(|o| (o["metadata"]["name"].as_str().unwrap_or_default().to_owned(), version(o))).collect();
    assert_eq!(expected(&log, false, u64::MAX, u64::MAX).0, there, "what was told is what is there");

    known_end.store(version(&last), Ordering::SeqCst);
    let (mut stretches, mut events) = (0, 0);
    for (chosen, client) in clients {
        let seen = client.await.expect("a client");
        assert_eq!(seen.last().map(|s| s.to), Some(version(&last)), "everybody gets to the end");
        for stretch in seen {
            let (listed, wanted) = expected(&log, chosen, stretch.from, stretch.to);
            if let Some(list) = stretch.listed {
                assert_eq!(list, listed, "the list at {}", stretch.from);
            }
            assert_eq!(stretch.events, wanted, "from {} to {}", stretch.from, stretch.to);
            stretches += 1;
            events += stretch.events.len();
        }
    }
    eprintln!("{} writes; {CLIENTS} clients saw {events} events in {stretches} stretches", log.len());
    assert!(stretches > 2 * CLIENTS && events > log.len(), "clients broke off and came back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_under_load() {
    under_load(&TestServer::embedded().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_under_load_on_etcd() {
    if !storage_etcd::testing::etcd_is_installed() {
        return;
    }
    let etcd = storage_etcd::testing::Server::start(&[]).await.expect("etcd starts");
    under_load(&TestServer::on_etcd(&etcd).await).await;
}
