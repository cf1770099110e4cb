//! The log: what it costs, and what is read back from it when parts are torn, lost, damaged or not its own.

mod support;

use std::{fs, time::Duration};

use storage::{Outcome, Store, Transaction};
use storage_embedded::{CheckError, EmbeddedStore, OpenError, Options, check};
use support::{
    contents,
    disk::{Disk, Image},
    open_on, replay,
};

const BLOCK: usize = 4096;

/// Nothing leaves the log by itself.
fn options() -> Options {
    Options { relaxed_delay: Duration::from_secs(3600), ..Options::new("log") }
}

async fn commit(store: &EmbeddedStore, transaction: Transaction) -> u64 {
    match store.commit(transaction).await.expect("commit") {
        Outcome::Committed(revision) => revision.0,
        Outcome::Conflict(actual) => panic!("conflict: {actual:?}"),
    }
}

fn put(i: u64) -> Transaction {
    Transaction::default().put(format!("/{i}"), format!("{i}")).put("/last", format!("{i}"))
}

/// The disk after a kill of a store with `puts`, a block of the log each.
async fn killed_after(puts: u64) -> Image {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    for i in 1..=puts {
        assert_eq!(commit(&store, put(i)).await, i);
    }
    disk.image()
}

async fn last(image: Image) -> (EmbeddedStore, Option<String>) {
    let store = open_on(&Disk::with(image), options()).expect("open");
    let last = contents(&store).await.remove("/last");
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    (store, last)
}

#[tokio::test]
async fn a_durable_commit_is_one_write_and_one_sync() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    commit(&store, put(1)).await;
    let (position, syncs) = (disk.position(), disk.syncs());
    for i in 2..=11 {
        commit(&store, put(i)).await;
    }
    assert_eq!((disk.position() - position, disk.syncs() - syncs), (20, 10));
    commit(&store, put(12).relaxed()).await;
    assert_eq!((disk.position() - position, disk.syncs() - syncs), (21, 10), "a relaxed commit is not synced");
}

#[tokio::test]
async fn a_kill_loses_not_even_what_is_relaxed() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    commit(&store, put(1)).await;
    commit(&store, put(2).relaxed()).await;
    let (store, found) = last(disk.image()).await;
    assert_eq!(found.as_deref(), Some("2"));
    assert_eq!(replay(&store, 0).await.len(), 2, "with its history");
}

#[tokio::test]
async fn every_torn_end_is_cut_off() {
    let whole = killed_after(3).await;
    let third = 2 * BLOCK;
    let length = u32::from_le_bytes(whole[1][third + 4..third + 8].try_into().expect("four bytes")) as usize;
    assert!((64..BLOCK).contains(&length));
    for byte in 0..length {
        let mut torn = whole.clone();
        torn[1][third + byte] ^= 0x10;
        assert_eq!(last(torn).await.1.as_deref(), Some("2"), "byte {byte}");
    }
}

/// That the store on `image` is refused for its log, with advice.
fn assert_no_log(image: Image, why: &str) {
    let refused = open_on(&Disk::with(image), options()).expect_err(why);
    assert!(matches!(refused, OpenError::NoLog { .. }), "{why}: {refused:?}");
    assert!(refused.to_string().contains("put that file back"), "{refused}");
}

#[tokio::test]
async fn a_log_that_is_gone_is_noticed() {
    let (whole, other) = (killed_after(3).await, killed_after(3).await);
    for file in [1, 2] {
        let changed = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut image = whole.clone();
            change(&mut image[file]);
            image
        };
        assert_no_log(changed(&|log| log.clear()), "deleted");
        assert_no_log(changed(&|log| log.truncate(3 * BLOCK)), "cut short");
        assert_no_log(changed(&|log| log.fill(0)), "emptied");
        assert_no_log(changed(&|log| log.clone_from(&other[file])), "of another store");
    }
    assert_eq!(last(whole).await.1.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_log_that_has_grown_is_noticed_when_it_is_cut() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    let grown = disk.image()[1].len();
    while disk.image()[1].len() == grown {
        commit(&store, Transaction::default().put("/big", vec![b'x'; 100_000])).await;
    }
    store.check().await.expect("everything is in the tables, and how long the log is");
    commit(&store, put(1)).await;
    let mut image = disk.image();
    image[1].truncate(grown);
    assert_no_log(image, "cut to what it was at first");
}

#[tokio::test]
async fn a_closed_store_needs_no_log() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    commit(&store, put(1)).await;
    store.close().await.expect("close");
    let mut image = disk.image();
    (image[1], image[2]) = (Vec::new(), killed_after(3).await[1].clone());
    let disk = Disk::with(image);
    let store = open_on(&disk, options()).expect("open");
    assert_eq!(contents(&store).await["/last"], "1", "the log of another store means nothing");
    commit(&store, put(2)).await;
    assert_eq!(last(disk.synced_image()).await.1.as_deref(), Some("2"), "the new log counts");
    let mut image = disk.image();
    image[1].clear();
    assert_no_log(image, "deleted");
}

#[tokio::test]
async fn a_durable_commit_that_changes_nothing_is_durable() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    commit(&store, put(1)).await;
    commit(&store, Transaction::default().delete("/last").relaxed()).await;
    assert_eq!(last(disk.synced_image()).await.1.as_deref(), Some("1"), "it is not durable yet");
    commit(&store, Transaction::default().delete("/last")).await;
    assert_eq!(last(disk.synced_image()).await.1, None, "whoever deleted it durably was told that it is gone");
    let syncs = disk.syncs();
    commit(&store, Transaction::default().delete("/last")).await;
    assert_eq!(disk.syncs(), syncs, "there is nothing to sync");
}

#[tokio::test]
async fn what_was_durable_and_is_gone_is_damage() {
    // Each block says that the one before was durable when it was written.
    let whole = killed_after(4).await;
    for block in 0..3 {
        for byte in [0, 4, 16, 24, 32, 80] {
            let mut damaged = whole.clone();
            damaged[1][block * BLOCK + byte] ^= 1;
            let refused = open_on(&Disk::with(damaged), options()).expect_err("damaged");
            assert!(matches!(refused, OpenError::Damaged { .. }), "block {block}, byte {byte}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn what_an_earlier_use_has_left_is_not_replayed() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    for i in 1..=5 {
        commit(&store, put(i)).await;
    }
    // Moves everything into the tables; the log starts again and overwrites one block of five.
    store.check().await.expect("check");
    let (writes, before) = (disk.position(), disk.image());
    assert_eq!(commit(&store, put(6)).await, 6);
    assert_eq!(disk.position() - writes, 2);
    let mut image = disk.image();
    assert!(image[1][..BLOCK] != before[1][..BLOCK] && image[1][BLOCK..] == before[1][BLOCK..]);
    let (again, found) = last(image.clone()).await;
    assert_eq!(found.as_deref(), Some("6"));
    assert_eq!(replay(&again, 0).await.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    // The new block was lost, and the old one is still there.
    image[1] = before[1].clone();
    assert_eq!(last(image).await.1.as_deref(), Some("5"));
}

#[tokio::test]
async fn files_that_do_not_belong_together_are_noticed() {
    let disk = Disk::default();
    let store = open_on(&disk, options()).expect("open");
    let empty = disk.image();
    commit(&store, put(1)).await;
    store.check().await.expect("check");
    commit(&store, put(2)).await;
    let mut old_tables = disk.image();
    old_tables[0] = empty[0].clone();
    let refused = open_on(&Disk::with(old_tables), options()).expect_err("the log begins after what the tables have");
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_check_of_a_killed_store_reads_its_log() {
    let folder = tempfile::tempdir().expect("folder");
    let image = killed_after(4).await;
    let paths = ["store", "store.log-0", "store.log-1"].map(|name| folder.path().join(name));
    for (path, contents) in paths.iter().zip(&image) {
        fs::write(path, contents).expect("write");
    }
    let report = check(&paths[0]).expect("check");
    assert_eq!((report.versions, report.problems), (8, vec![]));
    assert!(fs::read(&paths[0]).expect("read") == image[0], "a check changes nothing");
    let restored = folder.path().join("restored");
    storage_embedded::restore(&paths[0], &restored).expect("restore");
    let store = EmbeddedStore::open(Options::new(&restored)).expect("open");
    assert_eq!(contents(&store).await["/last"], "4", "a restored copy has what was in the log");
    let in_use = check(&restored);
    assert!(matches!(in_use, Err(CheckError::Open(OpenError::InUse { .. }))), "{in_use:?}");

    let mut damaged = image[1].clone();
    damaged[BLOCK + 80] ^= 1;
    fs::write(&paths[1], damaged).expect("write");
    assert_ne!(check(&paths[0]).expect("check").problems, [""; 0]);
    fs::remove_file(&paths[1]).expect("remove");
    let problems = check(&paths[0]).expect("check").problems;
    assert!(matches!(&problems[..], [missing] if missing.contains("store.log-0")), "{problems:?}");
    let refused = EmbeddedStore::open(Options::new(&paths[0])).expect_err("the log is missing");
    assert!(matches!(refused, OpenError::NoLog { .. }), "{refused:?}");
    fs::write(&paths[1], &image[1]).expect("write");
    let store = EmbeddedStore::open(Options::new(&paths[0])).expect("open");
    assert_eq!(contents(&store).await["/last"], "4", "it was put back");
}
