//! Restarts, crashes, lost leaders and compaction underneath: no event is lost or repeated, and no acknowledged write
//! is missing.

mod harness;

use std::{process::Command, sync::Arc, time::Duration};

use harness::{Cable, Writers, assert_complete, changes, committed, open, options, put, read_until};
use storage::{Change, Error, Revision, Store, Transaction};
use storage_etcd::{
    Etcd, Options,
    testing::{Server, etcd_is_installed},
};
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashes_of_etcd_lose_and_repeat_nothing() {
    if !etcd_is_installed() {
        return;
    }
    let mut server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let start = committed(&*store, put("/before", "1")).await;
    let mut watch = store.watch("/written/", start).await.expect("watch");
    let writers = Writers::start(&store, 4);
    for _ in 0..3 {
        sleep(Duration::from_millis(300)).await;
        server.kill();
        sleep(Duration::from_millis(100)).await;
        // A read waits for etcd to come back.
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.get("/before", None).await }
        });
        server.restart().await.expect("etcd starts again");
        assert!(waiting.await.expect("task").expect("the read waited").value.is_some());
    }
    sleep(Duration::from_millis(300)).await;
    let acknowledged = writers.stop().await;
    let last = committed(&*store, put("/written/last", "last")).await;
    let seen = read_until(&mut watch, last).await;
    assert!(!acknowledged.is_empty(), "nothing was written");
    assert_complete(&*store, start, &seen, &acknowledged).await;
}

async fn leader(servers: &[Server]) -> usize {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        for (index, server) in servers.iter().enumerate().filter(|(_, server)| server.process_id().is_some()) {
            let Ok(status) = server.post("/v3/maintenance/status", "{}").await else { continue };
            let status: serde_json::Value = serde_json::from_str(&status).expect("json");
            if status["leader"].is_string() && status["leader"] == status["header"]["member_id"] {
                return index;
            }
        }
        assert!(Instant::now() < deadline, "no leader was elected");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_leaders_and_lost_quorum_lose_and_repeat_nothing() {
    if !etcd_is_installed() {
        return;
    }
    let quick = ["--heartbeat-interval", "50", "--election-timeout", "500"];
    let mut servers = Server::cluster(3, &quick).await.expect("a cluster starts");
    let store = open(options(&servers.iter().collect::<Vec<_>>()));
    let start = store.current_revision().await.expect("current revision");
    // Watches connected to each of the members, so that some lose their own and some a foreign one.
    let mut watches = Vec::new();
    let mut engines: Vec<Arc<Etcd>> = Vec::new();
    for server in &servers {
        let mut endpoints: Vec<String> = servers.iter().map(Server::endpoint).collect();
        endpoints.sort_by_key(|endpoint| *endpoint != server.endpoint());
        let engine = open(Options { endpoints, ..options(&[]) });
        watches.push(engine.watch("/written/", start).await.expect("watch"));
        engines.push(engine);
    }
    let writers = Writers::start(&store, 4);
    sleep(Duration::from_millis(300)).await;

    let first = leader(&servers).await;
    servers[first].kill();
    let second = leader(&servers).await;
    assert_ne!(first, second);
    sleep(Duration::from_millis(300)).await;
    // One of three is left: nobody may write until one comes back.
    servers[second].kill();
    sleep(Duration::from_millis(1500)).await;
    for index in [first, second] {
        servers[index].restart().await.expect("a member starts again");
    }
    leader(&servers).await;
    sleep(Duration::from_millis(500)).await;

    let acknowledged = writers.stop().await;
    assert!(!acknowledged.is_empty(), "nothing was written");
    let last = committed(&*store, put("/written/last", "last")).await;
    for watch in &mut watches {
        let seen = read_until(watch, last).await;
        assert_complete(&*store, start, &seen, &acknowledged).await;
    }
}

#[tokio::test]
async fn an_etcd_that_stands_still_is_waited_for() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let before = committed(&*store, put("/still", "1")).await;
    let mut watch = store.watch("/still", before).await.expect("watch");
    let signal = |name: &str| {
        let process = server.process_id().expect("it runs").to_string();
        assert!(Command::new("kill").args([name, &process]).status().expect("kill").success());
    };
    signal("-STOP");
    let writing = tokio::spawn({
        let store = store.clone();
        async move { committed(&*store, put("/still", "2")).await }
    });
    let reading = tokio::spawn({
        let store = store.clone();
        async move { store.current_revision().await }
    });
    sleep(Duration::from_millis(1200)).await;
    assert!(!writing.is_finished() && !reading.is_finished());
    signal("-CONT");
    let written = writing.await.expect("the write waited");
    assert!(reading.await.expect("task").expect("the read waited") >= before);
    assert_eq!(changes(&mut watch).await.expect("event").0, written);
}

#[tokio::test]
async fn patience_ends_and_the_answer_says_why() {
    let options = Options { patience: Duration::from_millis(300), ..Options::new(["127.0.0.1:1"]) };
    let store = open(options);
    for answer in [store.get("/a", None).await.err(), store.commit(put("/a", "1")).await.err()] {
        match answer {
            Some(Error::Unavailable(reason)) => assert!(reason.contains("refused"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}

/// An engine whose watch is cut off, and one that goes on.
struct CutOff {
    _server: Server,
    cable: Cable,
    near: Arc<Etcd>,
    far: Arc<Etcd>,
}

impl CutOff {
    async fn new() -> Self {
        let server = Server::start(&[]).await.expect("etcd starts");
        let cable = Cable::to(&server).await;
        let near = open(options(&[&server]));
        let far = open(Options { endpoints: vec![cable.endpoint.clone()], ..options(&[]) });
        Self { _server: server, cable, near, far }
    }
}

#[tokio::test]
async fn cut_watches_resume_unless_their_history_is_compacted() {
    if !etcd_is_installed() {
        return;
    }
    let it = CutOff::new().await;
    let first = committed(&*it.near, put("/x/a", "1")).await;
    let mut watch = it.far.watch("/x/", Revision(first.0 - 1)).await.expect("watch");
    assert_eq!(changes(&mut watch).await.expect("event").0, first);

    // Compacted up to what was delivered: nothing is missing.
    it.cable.cut();
    let second = committed(&*it.near, Transaction::default().delete("/x/a").put("/x/b", "2")).await;
    let third = committed(&*it.near, put("/x/a", "3")).await;
    it.near.compact(first).await.expect("compact");
    it.cable.mend();
    let (revision, both) = changes(&mut watch).await.expect("event");
    assert_eq!((revision, both.len()), (second, 2));
    assert_eq!(changes(&mut watch).await.expect("event").0, third);

    // Compacted beyond it: the reader must know.
    it.cable.cut();
    committed(&*it.near, put("/x/a", "4")).await;
    let fifth = committed(&*it.near, put("/x/a", "5")).await;
    it.near.compact(fifth).await.expect("compact");
    it.cable.mend();
    let ended = changes(&mut watch).await.expect_err("the fourth write is lost");
    assert_eq!(ended, Error::Compacted { requested: third, oldest: fifth });
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn a_deletion_at_the_compacted_revision_is_not_lost_silently() {
    if !etcd_is_installed() {
        return;
    }
    let it = CutOff::new().await;
    let first = committed(&*it.near, put("/x/a", "1").put("/x/b", "1")).await;
    let mut watch = it.far.watch("/x/", Revision(first.0 - 1)).await.expect("watch");
    assert_eq!(changes(&mut watch).await.expect("event").0, first);
    it.cable.cut();
    let deleted = committed(&*it.near, Transaction::default().delete("/x/a")).await;
    it.near.compact(deleted).await.expect("compact");
    it.cable.mend();
    match changes(&mut watch).await {
        Err(ended) => assert_eq!(ended, Error::Compacted { requested: first, oldest: deleted }),
        Ok((revision, changes)) => {
            assert_eq!((revision, changes), (deleted, vec![Change::Delete { key: "/x/a".into(), revision: deleted }]));
        }
    }
}

#[tokio::test]
async fn closing_the_store_ends_its_watches() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let mut connected = store.watch("/", committed(&*store, put("/a", "1")).await).await.expect("watch");
    let second = committed(&*store, put("/a", "2")).await;
    assert_eq!(changes(&mut connected).await.expect("event").0, second);
    drop(store);
    assert_eq!(connected.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_past_is_forgotten_by_itself() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let first = committed(&*store, put("/k", "1")).await;
    committed(&*store, put("/k", "2")).await;
    let keeping = tokio::spawn(storage_etcd::keep_compact(Arc::downgrade(&store), Duration::from_millis(20)));
    let forgotten = async {
        while store.get("/k", Some(first)).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
        store.get("/k", Some(first)).await
    };
    let forgotten = timeout(Duration::from_secs(60), forgotten).await.expect("compaction in time");
    assert!(matches!(forgotten, Err(Error::Compacted { .. })), "{forgotten:?}");
    assert_eq!(store.get("/k", None).await.expect("get").value.expect("the present").value, "2");
    drop(store);
    timeout(Duration::from_secs(60), keeping).await.expect("it ends with its store").expect("no panic");
}
