//! An open store that nobody uses costs less than 8 MB of memory, however much it holds and has done.
//!
//! The store is filled by another process (this program, started again), so that filling it does not count.
#![allow(clippy::print_stdout, reason = "the figures, and the result as the test harness prints it")]

use std::{fs, path::Path, process::Command};

use storage::{Range, Store, Transaction};
use storage_embedded::{EmbeddedStore, Options};

const KEYS: usize = 10_000;
const LIMIT_KIB: u64 = 8 << 10;
const FILL: &str = "FERRY_FILL_STORE";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_time()
        .build()
        .expect("runtime");
    match std::env::var(FILL) {
        Ok(path) => runtime.block_on(fill(Path::new(&path))),
        Err(_) => runtime.block_on(measure()),
    }
}

fn key(i: usize) -> String {
    format!("/registry/configmaps/default/object-{i:06}")
}

async fn fill(path: &Path) {
    let store = EmbeddedStore::open(Options::new(path)).expect("open");
    for batch in (0..KEYS).step_by(100) {
        let puts = (batch..batch + 100).fold(Transaction::default(), |t, i| t.put(key(i), vec![b'x'; 1500]));
        store.commit(puts).await.expect("commit");
    }
    store.close().await.expect("close");
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("resident memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number of KiB")
}

async fn measure() {
    let folder = tempfile::tempdir().expect("a folder for the store");
    let path = folder.path().join("store");
    let filled = Command::new(std::env::current_exe().expect("this program")).env(FILL, &path).status().expect("start");
    assert!(filled.success());
    let before = resident_kib();
    let store = EmbeddedStore::open(Options::new(&path)).expect("open");
    let opened = resident_kib() - before;
    let mut range = Range { limit: Some(50), ..Range::default() };
    loop {
        let page = store.range(range.clone()).await.expect("range").value;
        range.after = page.items.last().map(|kv| kv.key.clone());
        if page.remaining == 0 {
            break;
        }
    }
    let current = store.current_revision().await.expect("current revision");
    let watches = ["/registry/", "/registry/configmaps/"].map(|prefix| store.watch(prefix, current));
    for watch in watches {
        let mut watch = watch.await.expect("watch");
        tokio::spawn(async move { while let Some(Ok(_)) = watch.next().await {} });
    }
    for i in 0..1000 {
        store.commit(Transaction::default().put(key(i), vec![b'y'; 1500]).relaxed()).await.expect("commit");
    }
    let busy = resident_kib() - before;
    // Everything is in the tables then, as it is by itself after a while.
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    let used = resident_kib() - before;
    println!("{KEYS} keys: {opened} KiB after opening, {busy} KiB after listing all and writing 1000, {used} KiB idle");
    assert!(used < LIMIT_KIB, "{used} KiB");
    println!("test an_idle_store_is_small ... ok");
}
