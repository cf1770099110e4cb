//! What only this engine does: restarts, its file, backups, time and trimming, failing disks.

mod support;

use std::{
    fs, io,
    os::unix::fs::{FileExt, PermissionsExt},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use storage::{Change, Error, Outcome, Range, Revision, Store, Transaction, WatchEvent};
use storage_embedded::{BackupError, Clock, EmbeddedStore, LogFile, OpenError, Options, check, restore};
use support::{
    Random, contents,
    disk::{Disk, Failing},
    next_changes, open_on, random_transaction, replay,
};

fn open(path: &Path) -> EmbeddedStore {
    EmbeddedStore::open(Options::new(path)).expect("open")
}

async fn commit(store: &EmbeddedStore, transaction: Transaction) -> Revision {
    match store.commit(transaction).await.expect("commit") {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict(actual) => panic!("conflict: {actual:?}"),
    }
}

fn put(key: &str, value: &str) -> Transaction {
    Transaction::default().put(key, value.to_owned())
}

/// Time passes when the test says so.
#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl ManualClock {
    fn advance(&self, duration: Duration) {
        self.0.fetch_add(u64::try_from(duration.as_millis()).expect("short"), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_secs(1_800_000_000) + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// A transaction that changes nothing makes the store look at the clock; what is due is done when the next one is.
async fn look_at_the_clock(store: &EmbeddedStore) {
    for _ in 0..2 {
        commit(store, Transaction::default()).await;
    }
}

async fn oldest_kept(store: &EmbeddedStore) -> u64 {
    match store.watch("", Revision(0)).await {
        Err(Error::Compacted { oldest, .. }) => oldest.0,
        _ => 0,
    }
}

#[tokio::test]
async fn a_restart_keeps_everything_and_watches_resume() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("store");
    let store = open(&path);
    let first = commit(&store, put("/a", "1")).await;
    let second = commit(&store, put("/a", "2").relaxed()).await;
    let third = commit(&store, Transaction::default().delete("/a").put("/b", "3").relaxed()).await;
    store.close().await.expect("close");
    assert!(matches!(store.get("/b", None).await, Err(Error::Unavailable(_))), "it is closed");
    assert!(matches!(store.commit(put("/a", "4")).await, Err(Error::Unavailable(_))), "it is closed");

    let store = open(&path);
    assert_eq!(store.current_revision().await, Ok(third), "a clean restart skips no revision");
    let mut watch = store.watch("/", first).await.expect("watch");
    assert_eq!(next_changes(&mut watch).await.expect("event").0, second.0);
    let (revision, changes) = next_changes(&mut watch).await.expect("event");
    assert_eq!((revision, changes.len()), (third.0, 2));
    let fourth = commit(&store, put("/a", "4")).await;
    assert_eq!(fourth.0, third.0 + 1);
    assert_eq!(next_changes(&mut watch).await.expect("event").0, fourth.0);
    assert_eq!(store.get("/a", Some(second)).await.expect("get").value.expect("was there").value, "2");
    drop(store);
    assert!(watch.next().await.is_none(), "a closed store ends its watches");
    assert_eq!(open(&path).current_revision().await, Ok(fourth), "dropping closes");
}

#[tokio::test]
async fn two_processes_cannot_use_one_file() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("store");
    let _store = open(&path);
    let second = EmbeddedStore::open(Options::new(&path)).expect_err("it is in use");
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains("stop"), "{second} says what to do");
    assert!(matches!(check(&path), Err(storage_embedded::CheckError::Open(OpenError::InUse { .. }))));
    let mode = fs::metadata(&path).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "only its user reads a store");
}

#[tokio::test]
async fn what_is_not_a_store_of_this_format_is_refused() {
    let folder = tempfile::tempdir().expect("folder");
    let other = folder.path().join("other");
    fs::write(&other, vec![7; 10_000]).expect("write");
    let refused = EmbeddedStore::open(Options::new(&other)).expect_err("not a store");
    assert!(matches!(refused, OpenError::NotAStore { .. }), "{refused:?}");
    assert_eq!(fs::read(&other).expect("read"), vec![7; 10_000], "it was not touched");

    let emptied = folder.path().join("emptied");
    fs::write(&emptied, "").expect("write");
    let refused = EmbeddedStore::open(Options::new(&emptied)).expect_err("a store that somebody emptied");
    assert!(matches!(refused, OpenError::NotAStore { .. }), "{refused:?}");

    let missing = EmbeddedStore::open(Options::new(folder.path().join("missing/store"))).expect_err("no folder");
    assert!(matches!(missing, OpenError::Io { .. }), "{missing:?}");

    let foreign = folder.path().join("foreign");
    let table = redb::TableDefinition::<u64, u64>::new("something");
    write_table(&foreign, |transaction| drop(transaction.open_table(table).expect("table").insert(1, 1)));
    let refused = EmbeddedStore::open(Options::new(&foreign)).expect_err("a database, but not a store");
    assert!(matches!(refused, OpenError::NotAStore { .. }), "{refused:?}");

    let newer = folder.path().join("newer");
    open(&newer).close().await.expect("close");
    let meta = redb::TableDefinition::<&str, u64>::new("meta");
    write_table(&newer, |transaction| drop(transaction.open_table(meta).expect("table").insert("format", 3)));
    let refused = EmbeddedStore::open(Options::new(&newer)).expect_err("a newer format");
    assert!(matches!(refused, OpenError::NewerFormat { found: 3, supported: 2, .. }), "{refused:?}");
}

fn write_table(path: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let database = redb::Database::create(path).expect("create");
    let transaction = database.begin_write().expect("begin");
    change(&transaction);
    transaction.commit().expect("commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_busy_store_is_one_of_its_states() {
    let folder = tempfile::tempdir().expect("folder");
    let (path, copy) = (folder.path().join("store"), folder.path().join("backup"));
    let store = Arc::new(open(&path));
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            let mut random = Random(1);
            for i in 0..400 {
                commit(&store, random_transaction(&mut random, &format!("{i}"))).await;
            }
        }
    });
    while store.current_revision().await.expect("current revision").0 < 50 {
        tokio::task::yield_now().await;
    }
    let revision = store.backup(&copy).await.expect("backup");
    assert!(matches!(store.backup(&copy).await, Err(BackupError::Exists(_))));
    writer.await.expect("writer");
    let page = store.range(Range { revision: Some(revision), ..Range::default() }).await.expect("range").value;
    let history = replay(&store, 0).await;

    let refused = EmbeddedStore::open(Options::new(&copy)).expect_err("a backup is not opened");
    assert!(matches!(refused, OpenError::IsBackup { .. }), "{refused:?}");
    assert_eq!(check(&copy).expect("check").problems, [""; 0]);
    let restored_path = folder.path().join("restored");
    let restored_at = restore(&copy, &restored_path).expect("restore");
    assert!(matches!(restore(&copy, &restored_path), Err(BackupError::Exists(_))));
    let restored = open(&restored_path);
    assert_eq!(restored.current_revision().await, Ok(restored_at));
    assert_eq!(restored.range(Range::default()).await.expect("range").value, page);
    let kept = history.into_iter().filter(|(at, _)| *at <= revision.0).collect::<Vec<_>>();
    assert_eq!(replay(&restored, 0).await, kept, "history is restored, too");

    // The original went on; whoever followed it must list again, and its revisions are not used again.
    let last_of_original = store.current_revision().await.expect("current revision");
    let refused = restored.watch("", last_of_original).await.expect_err("lost");
    assert_eq!(refused, Error::Compacted { requested: last_of_original, oldest: restored_at });
    assert!(commit(&restored, put("/a", "restored")).await > last_of_original);
    assert_eq!(restored.check().await.expect("check").problems, [""; 0]);
}

#[tokio::test]
async fn check_finds_damage() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("store");
    let store = open(&path);
    for i in 0..200 {
        commit(&store, put(&format!("/damage/{i}"), &format!("value {i} {}", "v".repeat(1000)))).await;
    }
    store.close().await.expect("close");
    assert_eq!(check(&path).expect("check").problems, [""; 0]);
    let sound = fs::read(&path).expect("read");
    assert_eq!(check(&path).map(|report| report.versions).expect("check"), 200);
    assert!(fs::read(&path).expect("read") == sound, "a check changes nothing");

    // One bit of a value.
    let at = sound.windows(9).position(|window| window == b"value 77 ").expect("the value is in the file");
    let file = fs::OpenOptions::new().write(true).open(&path).expect("open");
    file.write_all_at(b"w", at as u64).expect("write");
    assert_ne!(check(&path).expect("check").problems, [""; 0]);
    assert!(matches!(restore(&path, folder.path().join("restored")), Err(BackupError::Damaged { .. })));
    fs::write(&path, &sound).expect("write");
    assert_eq!(check(&path).expect("check").problems, [""; 0]);

    // Sound pages whose contents contradict each other.
    let index = redb::TableDefinition::<&[u8], (u64, u64, u32)>::new("index");
    write_table(&path, |transaction| {
        let mut index = transaction.open_table(index).expect("index");
        assert!(index.pop_first().expect("pop").is_some());
    });
    assert_ne!(check(&path).expect("check").problems, [""; 0]);
    fs::write(&path, &sound[..sound.len() / 2]).expect("write");
    assert!(check(&path).is_err_and(|_| true) || check(&path).is_ok_and(|report| !report.problems.is_empty()));
}

#[tokio::test]
async fn keys_expire_by_the_clock_also_after_a_restart() {
    let clock = Arc::new(ManualClock::default());
    let disk = Disk::default();
    let options = || Options { clock: clock.clone(), ..Options::new("expiry") };
    let store = open_on(&disk, options()).expect("open");
    let minute = Duration::from_secs(60);
    let created = commit(&store, Transaction::default().put_with_ttl("/a", "1", minute)).await;
    commit(&store, Transaction::default().put_with_ttl("/b", "1", minute * 3)).await;
    clock.advance(minute);
    look_at_the_clock(&store).await;
    assert_eq!(contents(&store).await.len(), 2, "times are kept in whole milliseconds, and nothing expires early");
    store.close().await.expect("close");

    clock.advance(Duration::from_millis(1));
    let store = open_on(&Disk::with(disk.image()), options()).expect("open");
    let mut watch = store.watch("/", created).await.expect("watch");
    assert!(matches!(&next_changes(&mut watch).await.expect("event").1[..], [Change::Put(kv)] if kv.key == "/b"));
    assert!(
        matches!(&next_changes(&mut watch).await.expect("event").1[..], [Change::Delete { key, .. }] if key == "/a")
    );
    assert_eq!(contents(&store).await.into_keys().collect::<Vec<_>>(), ["/b"]);
    clock.advance(minute * 2);
    look_at_the_clock(&store).await;
    assert_eq!(contents(&store).await.len(), 0);
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
}

#[tokio::test]
async fn history_is_trimmed_by_age() {
    let clock = Arc::new(ManualClock::default());
    let options = Options { clock: clock.clone(), history: Duration::from_secs(300), ..Options::new("age") };
    let store = open_on(&Disk::default(), options).expect("open");
    for i in 0..10 {
        commit(&store, put("/a", &format!("{i}"))).await;
        clock.advance(Duration::from_secs(60));
    }
    look_at_the_clock(&store).await;
    // Ten revisions, a minute apart; the newest that is five minutes old is the sixth.
    assert_eq!(oldest_kept(&store).await, 6);
    let kept = replay(&store, 6).await.into_iter().map(|(revision, _)| revision).collect::<Vec<_>>();
    assert_eq!(kept, [7, 8, 9, 10]);
    clock.advance(Duration::from_secs(600));
    look_at_the_clock(&store).await;
    assert_eq!(oldest_kept(&store).await, 10);
    assert_eq!(store.get("/a", None).await.expect("get").value.expect("stays").value, "9");
    let report = store.check().await.expect("check");
    assert_eq!((report.versions, report.problems), (1, vec![]), "only the current version is kept");
}

#[tokio::test]
async fn history_is_trimmed_by_size_and_the_file_stops_growing() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("store");
    let options =
        Options { history_bytes: 1 << 20, overlay_bytes: 128 << 10, log_bytes: 1 << 20, ..Options::new(&path) };
    let store = EmbeddedStore::open(options).expect("open");
    let mut sizes = Vec::new();
    for round in 0..12 {
        for i in 0..100 {
            commit(&store, Transaction::default().put(format!("/{i}"), vec![round; 20_000])).await;
        }
        // So that how far the tables are behind does not depend on the speed of the machine.
        assert_eq!(store.check().await.expect("check").problems, [""; 0]);
        sizes.push(fs::metadata(&path).expect("metadata").len());
    }
    let (current, oldest) = (store.current_revision().await.expect("current revision"), oldest_kept(&store).await);
    assert!(oldest > current.0 - 100, "much more than a MiB is kept: {oldest} to {current}");
    assert!(oldest < current.0 - 30, "much less than a MiB is kept: {oldest} to {current}");
    // 24 MB were written, and the file grows by doubling.
    assert!(sizes[11] <= 20 << 20, "the file grows: {sizes:?}");
}

/// Waits until `settled` says so; there is no other limit than patience.
async fn eventually(what: &str, mut settled: impl FnMut() -> bool) {
    let wait = async {
        while !settled() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn an_idle_store_leaves_the_disk_alone() {
    let disk = Disk::default();
    let long = Options { relaxed_delay: Duration::from_secs(3600), ..Options::new("idle") };
    let store = open_on(&disk, long).expect("open");
    commit(&store, put("/a", "1")).await;
    let before = disk.syncs();
    commit(&store, put("/a", "2").relaxed()).await;
    assert_eq!(disk.syncs(), before, "relaxed commits wait");
    drop(store);

    let disk = Disk::default();
    let short = Options { relaxed_delay: Duration::from_millis(50), ..Options::new("idle") };
    let store = open_on(&disk, short).expect("open");
    commit(&store, put("/a", "3").relaxed()).await;
    let is_durable = || disk.synced_image()[0].windows(2).any(|bytes| bytes == b"a3");
    eventually("relaxed commits become durable by themselves", is_durable).await;
    // Settling may not have ended. After it nothing happens, however long that is watched.
    let mut position = disk.position();
    eventually("a second without a write", || {
        std::thread::sleep(Duration::from_secs(1));
        std::mem::replace(&mut position, disk.position()) == disk.position()
    })
    .await;
    let crashed = open_on(&Disk::with(disk.image()), Options::new("idle")).expect("open");
    assert_eq!(crashed.get("/a", None).await.expect("get").value.expect("exists").value, "3");
}

#[tokio::test]
async fn a_watch_that_fell_far_behind_reads_from_disk_or_is_told() {
    let store = open_on(&Disk::default(), Options::new("behind")).expect("open");
    let start = commit(&store, put("/start", "")).await;
    let mut patient = store.watch("/", start).await.expect("watch");
    let mut unlucky = store.watch("/", start).await.expect("watch");
    // More than any buffer or window in memory holds.
    for i in 0..200 {
        commit(&store, Transaction::default().put(format!("/{i}"), vec![0; 50_000]).relaxed()).await;
    }
    for i in 1..=200 {
        assert_eq!(next_changes(&mut patient).await.expect("event").0, start.0 + i);
    }
    let current = store.current_revision().await.expect("current revision");
    store.compact(current).await.expect("compact");
    let mut expected = start.0 + 1;
    let end = loop {
        match next_changes(&mut unlucky).await {
            Ok((revision, _)) => {
                assert_eq!(revision, expected);
                expected += 1;
            }
            Err(end) => break end,
        }
    };
    assert!(matches!(end, Error::Compacted { .. }), "{end:?}");
    assert!(expected < current.0);
    // The other one is up to date and goes on.
    let next = commit(&store, put("/next", "")).await;
    assert_eq!(next_changes(&mut patient).await.expect("event").0, next.0);
}

#[tokio::test]
async fn a_failing_disk_is_reported_and_nothing_acknowledged_is_lost() {
    let disk = Disk::default();
    let store = open_on(&disk, Options::new("failing")).expect("open");
    let acknowledged = commit(&store, put("/a", "1")).await;
    let mut watch = store.watch("/", acknowledged).await.expect("watch");
    disk.fail(Some(io::ErrorKind::Other));
    let refused = store.commit(put("/a", "2")).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(matches!(store.commit(put("/a", "3")).await, Err(Error::Unavailable(_))));
    assert!(matches!(watch.next().await, Some(Err(Error::Unavailable(_)))));
    assert!(store.close().await.is_err());
    disk.fail(None);
    drop(store);
    let store = open_on(&Disk::with(disk.image()), Options::new("failing")).expect("open");
    let found = store.get("/a", None).await.expect("get").value.expect("exists");
    assert!(found.value == "1" || found.value == "2", "a write that got no answer may or may not be there");
    assert!(commit(&store, put("/a", "4")).await.0 > acknowledged.0 + 1);
}

/// What the store answers when something of the disk fails, a full disk or a panic. It must be the end: the watch is told.
async fn ends_with(failing: Failing) -> String {
    let disk = Disk::default();
    let store = open_on(&disk, Options::new("ending")).expect("open");
    let acknowledged = commit(&store, put("/a", "1")).await;
    let mut watch = store.watch("/", acknowledged).await.expect("watch");
    disk.fail_at(Some(failing));
    // One needs the log, the other the tables.
    let _ = tokio::join!(store.commit(put("/a", "2")), store.check());
    let end = loop {
        match watch.next().await.expect("the watch is told") {
            Ok(_) => {}
            Err(Error::Unavailable(why) | Error::Corrupt(why)) => break why,
            Err(other) => panic!("{other:?}"),
        }
    };
    disk.fail_at(None);
    for _ in 0..2 {
        let refused = store.commit(put("/a", "3")).await;
        assert!(matches!(refused, Err(Error::Unavailable(_) | Error::Corrupt(_))), "{refused:?}");
    }
    assert!(store.close().await.is_err());
    let store = open_on(&Disk::with(disk.image()), Options::new("ending")).expect("open");
    let found = store.get("/a", None).await.expect("get").value.expect("exists");
    assert!(found.value == "1" || found.value == "2", "{found:?}");
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    end
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged_whatever_its_reason() {
    // The tables, and the log.
    for file in [0, 1] {
        for how in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            let end = ends_with(Failing { file: Some(file), syncs_only: true, how: Some(how) }).await;
            assert!(end.contains("sync failed"), "{end}");
        }
    }
}

#[tokio::test]
async fn a_panic_of_either_thread_is_an_answer() {
    for file in [0, 1] {
        let end = ends_with(Failing { file: Some(file), syncs_only: false, how: None }).await;
        assert!(end.contains("panicked"), "{end}");
    }
}

#[tokio::test]
async fn a_panic_while_the_store_is_opened_again_is_an_answer() {
    let (disk, opened) = (Disk::default(), AtomicU64::new(0));
    let open = {
        let disk = disk.clone();
        move || -> (_, [Box<dyn LogFile>; 2]) {
            assert_eq!(opened.fetch_add(1, Ordering::SeqCst), 0, "opened again");
            (disk.file(0), [Box::new(disk.file(1)), Box::new(disk.file(2))])
        }
    };
    let store = EmbeddedStore::open_on(open, Options::new("panic")).expect("open");
    disk.fail(Some(io::ErrorKind::StorageFull));
    for _ in 0..2 {
        let refused = store.commit(put("/a", "1")).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    assert!(store.close().await.is_err());
}

#[tokio::test]
async fn more_keys_than_are_deleted_at_a_time_expire() {
    let clock = Arc::new(ManualClock::default());
    let options = Options { clock: clock.clone(), relaxed_delay: Duration::from_secs(3600), ..Options::new("many") };
    let store = open_on(&Disk::default(), options).expect("open");
    let minute = Duration::from_secs(60);
    let keys = |from: u32, transaction: Transaction| {
        (from..from + 700).fold(transaction, |all, i| all.put_with_ttl(format!("/{i}"), "", minute))
    };
    // Some in the tables, some not; of some a newer version that stays.
    commit(&store, keys(0, Transaction::default())).await;
    store.check().await.expect("check");
    commit(&store, keys(700, Transaction::default())).await;
    let stays = (650..750).fold(Transaction::default(), |all, i| all.put(format!("/{i}"), "stays"));
    let replaced = commit(&store, stays).await;
    let mut watch = store.watch("/", replaced).await.expect("watch");
    clock.advance(minute + Duration::from_millis(1));
    look_at_the_clock(&store).await;
    let mut deleted = Vec::new();
    while deleted.len() < 1300 {
        deleted.extend(next_changes(&mut watch).await.expect("event").1);
    }
    assert!(deleted.iter().all(|change| matches!(change, Change::Delete { .. })) && deleted.len() == 1300);
    assert_eq!(contents(&store).await.len(), 100);
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
}

/// Fills the disk until a write fails, makes space, and writes `value` when that works again.
async fn run_out_of_space(store: &EmbeddedStore, disk: &Disk, value: &str, lose_unsynced: bool) -> Revision {
    disk.fail(Some(io::ErrorKind::StorageFull));
    if lose_unsynced {
        disk.lose_unsynced();
    }
    for _ in 0..2 {
        let refused = store.commit(put("/a", "refused")).await;
        assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    }
    disk.fail(None);
    let again = async {
        loop {
            match store.commit(put("/a", value)).await {
                Ok(Outcome::Committed(revision)) => return revision,
                Ok(conflict) => panic!("{conflict:?}"),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), again).await.expect("the store comes back by itself")
}

#[tokio::test]
async fn a_full_disk_stops_the_store_only_until_there_is_space() {
    let disk = Disk::default();
    let store = open_on(&disk, Options::new("full")).expect("open");
    let first = commit(&store, put("/a", "1").put("/b", "1")).await;
    let mut watch = store.watch("/", first).await.expect("watch");
    let second = run_out_of_space(&store, &disk, "2", false).await;
    assert_eq!(next_changes(&mut watch).await.expect("nothing was lost, so the watch goes on").0, second.0);

    let kept = commit(&store, put("/b", "1").relaxed()).await;
    assert_eq!(next_changes(&mut watch).await.expect("event").0, kept.0);
    let third = run_out_of_space(&store, &disk, "3", false).await;
    assert_eq!(next_changes(&mut watch).await.expect("what is in the log is not lost").0, third.0);

    let relaxed = commit(&store, put("/b", "relaxed").relaxed()).await;
    assert_eq!(next_changes(&mut watch).await.expect("event").0, relaxed.0);
    let fourth = run_out_of_space(&store, &disk, "4", true).await;
    assert!(fourth > relaxed);
    let lost = next_changes(&mut watch).await.expect_err("the watch saw what was lost");
    assert!(matches!(lost, Error::Compacted { .. }), "{lost:?}");
    assert!(matches!(store.get("/b", Some(relaxed)).await, Err(Error::Compacted { .. })));
    assert_eq!(
        contents(&store).await,
        [("/a", "4"), ("/b", "1")].map(|(key, value)| (key.into(), value.into())).into()
    );
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    store.close().await.expect("close");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweeping_does_not_disturb_readers_and_writers() {
    let store = Arc::new(open_on(&Disk::default(), Options::new("sweep")).expect("open"));
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut random = Random(writer);
                for i in 0..300 {
                    let revision =
                        commit(&store, random_transaction(&mut random, &format!("{writer}/{i}")).relaxed()).await;
                    if i % 10 == 9 {
                        store.compact(Revision(revision.0 - 5)).await.expect("compact");
                    }
                    // Never an answer that is neither the state at that revision nor an error.
                    let found = store.get("/last", None).await.expect("reading now never fails").value;
                    assert!(found.expect("it is always there").mod_revision >= revision);
                    match store.get("/last", Some(revision)).await {
                        Ok(found) => assert_eq!(found.value.expect("was there").mod_revision, revision),
                        Err(refused) => assert!(matches!(refused, Error::Compacted { .. }), "{refused:?}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("writer");
    }
    let current = store.current_revision().await.expect("current revision");
    store.compact(current).await.expect("compact");
    let live = contents(&store).await.len() as u64;
    tokio::time::timeout(Duration::from_secs(60), async {
        while store.check().await.expect("check").versions != live {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("the sweep ends with only current versions left");
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    let mut watch = store.watch("", current).await.expect("watch");
    store.request_progress().await.expect("request progress");
    assert_eq!(watch.next().await, Some(Ok(WatchEvent::Progress(current))));
}
