//! What the tests on real etcd servers share: writers that remember what was acknowledged, the check that watches
//! neither lost nor repeated anything, and a cable that can be cut.

#![allow(dead_code, reason = "every test file uses its own part")]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use storage::{Change, Error, Outcome, Revision, Store, Transaction, Watch, WatchEvent};
use storage_etcd::{Etcd, Options, testing::Server};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

pub const PREFIX: &str = "/ferry";

pub fn options(servers: &[&Server]) -> Options {
    Options { prefix: PREFIX.into(), ..Options::new(servers.iter().map(|server| server.endpoint())) }
}

pub fn open(options: Options) -> Arc<Etcd> {
    Arc::new(Etcd::open(options).expect("valid options"))
}

pub fn put(key: &str, value: &str) -> Transaction {
    Transaction::default().put(key, value.to_owned())
}

pub async fn committed(store: &dyn Store, transaction: Transaction) -> Revision {
    match store.commit(transaction).await.expect("commit") {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict(actual) => panic!("unexpected conflict: {actual:?}"),
    }
}

/// The next item of a watch, within 30 seconds.
pub async fn item(watch: &mut Watch) -> Result<WatchEvent, Error> {
    timeout(Duration::from_secs(60), watch.next()).await.expect("an item in time").expect("the store is open")
}

/// The next changes of a watch; progress is skipped.
pub async fn changes(watch: &mut Watch) -> Result<(Revision, Vec<Change>), Error> {
    loop {
        if let WatchEvent::Changes { revision, changes } = item(watch).await? {
            return Ok((revision, changes));
        }
    }
}

/// Reads a watch up to the revision of `last`.
pub async fn read_until(watch: &mut Watch, last: Revision) -> Vec<(Revision, Vec<Change>)> {
    let mut seen = Vec::new();
    loop {
        let (revision, changes) = changes(watch).await.expect("the watch goes on");
        seen.push((revision, changes));
        if revision >= last {
            return seen;
        }
    }
}

/// Tasks that write until told to stop, through whatever happens to etcd.
pub struct Writers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<BTreeMap<Revision, (String, String)>>>,
}

impl Writers {
    pub fn start(store: &Arc<Etcd>, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..count).map(|writer| tokio::spawn(write(store.clone(), writer, stop.clone()))).collect();
        Self { stop, tasks }
    }

    /// What was acknowledged, by revision.
    pub async fn stop(self) -> BTreeMap<Revision, (String, String)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = BTreeMap::new();
        for task in self.tasks {
            for (revision, write) in task.await.expect("writer") {
                assert_eq!(all.insert(revision, write), None, "two writes were acknowledged at {revision}");
            }
        }
        all
    }
}

async fn write(store: Arc<Etcd>, writer: usize, stop: Arc<AtomicBool>) -> BTreeMap<Revision, (String, String)> {
    let mut acknowledged = BTreeMap::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let (key, value) = (format!("/written/{writer}/{}", number % 10), format!("{number}"));
        number += 1;
        match store.commit(put(&key, &value)).await {
            Ok(Outcome::Committed(revision)) => drop(acknowledged.insert(revision, (key, value))),
            Ok(Outcome::Conflict(actual)) => panic!("a conflict without compares: {actual:?}"),
            // Written or not: nobody knows, and nothing is promised.
            Err(Error::Unavailable(_)) => {}
            Err(other) => panic!("{other}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    acknowledged
}

/// That `seen` has every acknowledged write at its revision, each revision once and in order, and is what history
/// tells now.
pub async fn assert_complete(
    store: &dyn Store,
    after: Revision,
    seen: &[(Revision, Vec<Change>)],
    acknowledged: &BTreeMap<Revision, (String, String)>,
) {
    assert!(seen.is_sorted_by(|(a, _), (b, _)| a < b), "events were repeated or out of order");
    let by_revision: BTreeMap<_, _> = seen.iter().map(|(revision, changes)| (*revision, changes)).collect();
    for (revision, (key, value)) in acknowledged {
        match by_revision.get(revision).map(|changes| changes.as_slice()) {
            Some([Change::Put(kv)]) => assert_eq!((&kv.key, &kv.value[..]), (key, value.as_bytes())),
            other => panic!("the acknowledged write of {key} at {revision} was seen as {other:?}"),
        }
    }
    let last = seen.last().expect("something was seen").0;
    let mut again = store.watch("/written/", after).await.expect("watch");
    assert!(read_until(&mut again, last).await == seen, "history differs from what was delivered");
}

/// A connection between an engine and a server that can be cut and mended.
pub struct Cable {
    pub endpoint: String,
    cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Cable {
    pub async fn to(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let target: SocketAddr = server.endpoint().parse().expect("an address");
        let (cut, is_cut) = watch::channel(false);
        let task = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, target, is_cut.clone()));
            }
        });
        Self { endpoint, cut, task }
    }

    /// Ends all connections and takes no more.
    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn carry(mut near: TcpStream, target: SocketAddr, mut is_cut: watch::Receiver<bool>) {
    if *is_cut.borrow_and_update() {
        return;
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
        _ = is_cut.wait_for(|cut| *cut) => {}
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}
