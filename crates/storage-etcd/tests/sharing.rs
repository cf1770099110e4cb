//! Several engines, several users and large events on one etcd; progress; leases.

mod harness;

use std::time::Duration;

use harness::{changes, committed, item, open, options, put, read_until};
use storage::{Change, Revision, Store, Transaction, Watch, WatchEvent};
use storage_etcd::{
    Etcd, Options,
    testing::{Server, etcd_is_installed},
};
use tokio::time::{sleep, timeout};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_engines_see_each_others_writes_in_one_order() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let engines = [open(options(&[&server])), open(options(&[&server]))];
    let start = engines[0].current_revision().await.expect("current revision");
    let mut watches = Vec::new();
    for engine in &engines {
        watches.push(engine.watch("/both/", start).await.expect("watch"));
    }
    let writing = engines.iter().enumerate().map(|(number, engine)| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let mut written = Vec::new();
            for i in 0..100 {
                written.push(committed(&*engine, put(&format!("/both/{number}"), &format!("{i}"))).await);
            }
            written
        })
    });
    let mut written = Vec::new();
    for task in writing.collect::<Vec<_>>() {
        written.extend(task.await.expect("writer"));
    }
    written.sort();
    let last = *written.last().expect("writes");
    let seen = [read_until(&mut watches[0], last).await, read_until(&mut watches[1], last).await];
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), written);
    // Neither sees what lies below another prefix, or beside its own.
    let other = open(Options { prefix: "/ferry2".into(), ..options(&[&server]) });
    committed(&*other, put("/both/0", "other")).await;
    assert_eq!(engines[0].get("/both/0", None).await.expect("get").value.expect("exists").value, "99");
    assert_eq!(other.range(storage::Range::default()).await.expect("range").value.items.len(), 1);
}

#[tokio::test]
async fn revisions_larger_than_a_message_arrive_whole() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let start = store.current_revision().await.expect("current revision");
    let mut live = store.watch("/large/", start).await.expect("watch");
    let mut last = start;
    for i in 0..8u8 {
        let value = vec![b'a' + i; 600_000];
        let three = ["/large/a", "/large/b", "/large/c"];
        last = committed(&*store, three.iter().fold(Transaction::default(), |all, key| all.put(*key, value.clone())))
            .await;
    }
    // etcd sends this history in messages of about two megabytes.
    let mut history = store.watch("/large/", start).await.expect("watch");
    for watch in [&mut live, &mut history] {
        let seen = read_until(watch, last).await;
        assert_eq!(seen.len(), 8);
        for (revision, changes) in seen {
            let letter = b'a' + u8::try_from(revision.0 - start.0 - 1).expect("few");
            assert_eq!(changes.len(), 3);
            for change in changes {
                let Change::Put(kv) = change else { panic!("nothing was deleted") };
                assert!(kv.value.len() == 600_000 && kv.value.iter().all(|byte| *byte == letter));
            }
        }
    }
}

async fn progress(watch: &mut Watch) -> Revision {
    loop {
        if let WatchEvent::Progress(revision) = item(watch).await.expect("the watch goes on") {
            return revision;
        }
    }
}

/// Both ways to know a watch's progress, while the revision is moved by somebody else's keys.
#[tokio::test]
async fn progress_reaches_the_current_revision_whoever_moved_it() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let stranger = open(Options { prefix: "/stranger".into(), ..options(&[&server]) });
    let trusting = Etcd::open_trusting_progress_answers(options(&[&server])).expect("valid options");
    for (name, store) in [("event", &*open(options(&[&server]))), ("answer", &trusting)] {
        let start = committed(store, put("/mine", "1")).await;
        let mut watches =
            [store.watch("/", start).await.expect("watch"), store.watch("/no", start).await.expect("watch")];
        store.request_progress().await.expect("request progress");
        for watch in &mut watches {
            assert_eq!(progress(watch).await, start, "{name}: nothing happened, so nothing is written");
        }
        assert_eq!(store.current_revision().await, Ok(start), "{name}: asking for progress wrote something");
        let foreign = committed(&*stranger, put("/theirs", "1")).await;
        store.request_progress().await.expect("request progress");
        for watch in &mut watches {
            assert!(progress(watch).await >= foreign, "{name}");
        }
        let mine = committed(store, put("/mine", "2")).await;
        assert_eq!(changes(&mut watches[0]).await.expect("event").0, mine, "{name}");
        assert_eq!(store.range(storage::Range::default()).await.expect("range").value.items.len(), 1, "{name}");
    }
}

async fn leases(server: &Server) -> Vec<String> {
    let listed: serde_json::Value =
        serde_json::from_str(&server.post("/v3/lease/leases", "{}").await.expect("leases")).expect("json");
    let id = |lease: &serde_json::Value| lease["ID"].as_str().expect("an id").to_owned();
    listed["leases"].as_array().map(|leases| leases.iter().map(id).collect()).unwrap_or_default()
}

#[tokio::test]
async fn expiring_keys_share_leases_and_outlive_the_loss_of_one() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let hour = Duration::from_secs(3600);
    for i in 0..50 {
        committed(&*store, Transaction::default().put_with_ttl(format!("/events/{i}"), "x", hour)).await;
    }
    let all = leases(&server).await;
    assert_eq!(all.len(), 1, "fifty keys of one hour share a lease");
    let mut watch =
        store.watch("/events/", store.current_revision().await.expect("current revision")).await.expect("watch");
    server.post("/v3/lease/revoke", &format!("{{\"ID\":\"{}\"}}", all[0])).await.expect("revoke");
    assert_eq!(changes(&mut watch).await.expect("event").1.len(), 50, "all deletions come as one revision");
    let again = committed(&*store, Transaction::default().put_with_ttl("/events/again", "x", hour)).await;
    assert_eq!(changes(&mut watch).await.expect("event").0, again);
}

#[tokio::test]
async fn limits_of_etcd_are_told_with_advice() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&["--max-request-bytes", "10000"]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let many = (0..129).fold(Transaction::default(), |all, i| all.put(format!("/{i}"), "x"));
    let refused = store.commit(many).await.expect_err("too many").to_string();
    assert!(refused.contains("--max-txn-ops"), "{refused}");
    let large = Transaction::default().put("/large", vec![b'x'; 20_000]);
    let refused = store.commit(large).await.expect_err("too large").to_string();
    assert!(refused.contains("--max-request-bytes"), "{refused}");
}

/// A reader that does not read holds up nobody else, and its events wait in etcd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_hold_up_nobody() {
    if !etcd_is_installed() {
        return;
    }
    let server = Server::start(&[]).await.expect("etcd starts");
    let store = open(options(&[&server]));
    let start = store.current_revision().await.expect("current revision");
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(store.watch("/", start).await.expect("watch"));
    }
    let mut last = start;
    let value = "x".repeat(30_000);
    for i in 0..600 {
        let written = timeout(Duration::from_secs(60), committed(&*store, put(&format!("/{}", i % 20), &value)));
        last = written.await.expect("writes go on");
    }
    sleep(Duration::from_millis(100)).await;
    for watch in &mut slow {
        let seen = read_until(watch, last).await;
        assert_eq!(seen.len(), 600);
    }
}
