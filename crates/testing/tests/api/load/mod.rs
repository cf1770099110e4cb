//! Watches under load: writers at full speed, and clients of every kind that break off at random and come back. None may
//! miss, repeat or reorder anything.
//!
//! One watch that is never broken off writes down everything that happens. Each client writes down what it was told, in
//! [`clients::Stretch`]es between two revisions; afterwards every stretch is compared with that log.

mod clients;
mod log;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use clients::{Habit, MAPS, follow};
use log::Log;
use serde_json::{Value, json};
use testing::{
    TestServer,
    client::{Client, MERGE_PATCH},
};

use super::{configmap, version};

const WRITERS: usize = 4;
const OBJECTS: usize = 12;
const CLIENTS: usize = 50;
/// Writing goes on until so much was written, and every client has come back so often.
const WRITES: usize = 2000;
const RETURNS: usize = 5;
/// What some clients select by; writers turn it on and off.
const CHOSEN: &str = "chosen";

/// What writers and clients tell each other while they are at it.
#[derive(Default)]
struct Progress {
    writes: AtomicUsize,
    /// How often each client has come back.
    returns: Vec<AtomicUsize>,
    /// The last revision, once it is known.
    end: AtomicU64,
}

impl Progress {
    fn enough(&self) -> bool {
        self.writes.load(Ordering::SeqCst) >= WRITES
            && self.returns.iter().all(|returns| returns.load(Ordering::SeqCst) >= RETURNS)
    }
}

/// What a writer was told: its puts with their revisions, and how many objects it deleted.
#[derive(Default)]
struct Acknowledged {
    puts: Vec<(String, u64)>,
    deletes: usize,
}

/// Writes at full speed: its objects are created, patched in and out of the selection, and deleted, one by one or all at
/// once.
async fn write(client: Client, writer: usize, progress: Arc<Progress>) -> Acknowledged {
    let mut done = Acknowledged::default();
    for round in 0.. {
        if progress.enough() {
            break;
        }
        let at_once = round % 12 == 11;
        if at_once {
            let mine = format!("{MAPS}?labelSelector=writer%3Dw{writer}");
            let gone = client.delete(&mine).await.expect(200);
            assert_eq!(gone["items"].as_array().map(Vec::len), Some(OBJECTS), "all of them go");
            done.deletes += OBJECTS;
            progress.writes.fetch_add(OBJECTS, Ordering::SeqCst);
            continue;
        }
        for i in 0..OBJECTS {
            let name = format!("w{writer}-{i}");
            let path = format!("{MAPS}/{name}");
            let object = match round % 6 {
                0 => {
                    let mut object = configmap(&name);
                    object["metadata"]["labels"] = json!({"writer": format!("w{writer}")});
                    client.post(MAPS, &object).await.expect(201)
                }
                5 => {
                    client.delete(&path).await.expect(200);
                    done.deletes += 1;
                    progress.writes.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                step => {
                    let label = if step % 2 == 1 { "yes" } else { "no" };
                    let patch = json!({"metadata": {"labels": {CHOSEN: label}}, "data": {"round": round.to_string()}});
                    client.patch(&path, MERGE_PATCH, &patch).await.expect(200)
                }
            };
            done.puts.push((name, version(&object)));
            progress.writes.fetch_add(1, Ordering::SeqCst);
        }
    }
    done
}

async fn under_load(server: &TestServer) {
    let client = server.client();
    let from = version(&client.get(MAPS).await.expect(200));
    let (end, ended) = tokio::sync::oneshot::channel();
    let log = tokio::spawn(Log::record(server.client(), from, ended));
    let returns = std::iter::repeat_with(AtomicUsize::default).take(CLIENTS).collect();
    let progress = Arc::new(Progress { returns, ..Progress::default() });
    let clients: Vec<_> = (0..CLIENTS)
        .map(|i| {
            let client = if i % 10 == 0 { server.client().http1() } else { server.client() };
            let habit = Habit::of(i);
            (habit, tokio::spawn(follow(client, i, habit, progress.clone())))
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write(server.client(), w, progress.clone()))).collect();

    let mut acknowledged = BTreeMap::new();
    let mut deletes = 0;
    for writer in writers {
        let done = writer.await.expect("a writer");
        deletes += done.deletes;
        for (name, version) in done.puts {
            assert_eq!(acknowledged.insert(version, name), None, "revision {version} was given twice");
        }
    }
    let last = last_change(&client).await;
    acknowledged.insert(last, clients::LAST.into());
    end.send(last).expect("the recorder listens");
    let log = log.await.expect("the recorder");
    assert_eq!(log.puts(), acknowledged, "one watch sees exactly what was acknowledged");
    assert_eq!(log.deletes(), deletes);
    let list = client.get(MAPS).await.expect(200);
    assert_eq!(log.state(Habit::All, u64::MAX), clients::listed(&list), "what was told is what is there");

    progress.end.store(last, Ordering::SeqCst);
    let (mut stretches, mut events) = (0, 0);
    for (habit, client) in clients {
        let seen = client.await.expect("a client");
        assert_eq!(seen.last().map(|stretch| stretch.to), Some(last), "everybody gets to the end");
        assert!(seen.len() > RETURNS, "clients broke off and came back");
        for stretch in &seen {
            log.check(habit, stretch);
            events += stretch.events.len();
        }
        stretches += seen.len();
    }
    let writes = acknowledged.len() + deletes;
    eprintln!("{writes} writes; {CLIENTS} clients saw {events} events in {stretches} stretches");
    assert!(writes >= WRITES && events > writes);
}

/// A change that concerns everybody, so that they know where the end is.
async fn last_change(client: &Client) -> u64 {
    let mut last: Value = configmap(clients::LAST);
    last["metadata"]["labels"] = json!({CHOSEN: "yes"});
    version(&client.post(MAPS, &last).await.expect(201))
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
