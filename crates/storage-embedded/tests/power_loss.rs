//! The power fails at any moment; the disk then holds everything synced and any part of the rest. The store comes back with
//! every acknowledged durable write, no half transaction, and never uses a revision again that anybody has seen.

mod support;

use std::{sync::Arc, time::Duration};

use storage::{Durability, Error, Outcome, Revision, Store};
use storage_embedded::Options;
use support::{
    Contents, Ledger, Random, contents,
    disk::{Disk, Image},
    intended, next_changes, observed, open_on, random_transaction, replay,
};

const STORES: u64 = 12;
const LIVES: usize = 30;

/// Something that somebody saw, and how much had happened on the disk by then.
#[derive(Clone, Debug)]
struct Seen {
    position: usize,
    revision: u64,
    contents: Contents,
    must_survive: bool,
}

/// Some stores settle and start their log again all the time; with others the two files of a small log take turns, or the
/// tables are changed all the time without a sync.
fn options(seed: u64) -> Options {
    let (relaxed_delay, log_bytes, overlay_bytes) = match seed % 3 {
        0 => (3, 1 << 20, 1 << 20),
        1 => (40, 16 << 10, 1 << 20),
        _ => (40, 64 << 10, 2 << 10),
    };
    let relaxed_delay = Duration::from_millis(relaxed_delay);
    Options { relaxed_delay, log_bytes, overlay_bytes, ..Options::new("power-loss") }
}

/// One life of a store: some writers, a watch, some compaction. Answers what was seen.
async fn live(disk: &Disk, options: Options, life: &str, random: &mut Random) -> Vec<Seen> {
    let store = Arc::new(open_on(disk, options).expect("open"));
    let current = store.current_revision().await.expect("current revision");
    let mut watch = store.watch("", current).await.expect("watch");
    let watcher = tokio::spawn({
        let disk = disk.clone();
        async move {
            let mut seen = Vec::new();
            while let Some(Ok(event)) = watch.next().await {
                if let storage::WatchEvent::Changes { revision, changes } = event {
                    let (position, contents) = (disk.position(), observed(&changes));
                    seen.push(Seen { position, revision: revision.0, contents, must_survive: false });
                }
            }
            seen
        }
    });
    let writers: Vec<_> = (0..1 + random.below(4))
        .map(|writer| {
            let (store, disk, mut random) = (store.clone(), disk.clone(), Random(random.next()));
            let tag = format!("{life}/{writer}");
            tokio::spawn(async move {
                let mut seen = Vec::new();
                for i in 0..random.below(12) {
                    let transaction = random_transaction(&mut random, &format!("{tag}/{i}"));
                    let contents = intended(&transaction);
                    let must_survive = transaction.durability == Durability::Durable;
                    let outcome = store.commit(transaction).await.expect("commit");
                    let Outcome::Committed(revision) = outcome else { panic!("a conflict without compares") };
                    seen.push(Seen { position: disk.position(), revision: revision.0, contents, must_survive });
                    if random.chance(15) {
                        store.compact(Revision(revision.0.saturating_sub(random.below(10)))).await.expect("compact");
                    }
                }
                seen
            })
        })
        .collect();
    let mut seen = Vec::new();
    for writer in writers {
        seen.extend(writer.await.expect("writer"));
    }
    if random.chance(50) {
        tokio::time::sleep(Duration::from_millis(random.below(6))).await;
    }
    store.close().await.expect("close");
    seen.extend(watcher.await.expect("watcher"));
    seen
}

/// Opens what the power loss left and checks it against what was seen. Answers the newest revision that survived.
async fn survive(image: Image, options: Options, before: &Ledger, seen: &[Seen], position: usize) -> u64 {
    let store = open_on(&Disk::with(image), options).expect("a store after a power loss opens");
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    let mut all = before.clone();
    for seen in seen {
        all.record(seen.revision, seen.contents.clone());
    }
    let known = seen.iter().filter(|seen| seen.position <= position);
    let must_survive = known.clone().filter(|seen| seen.must_survive).map(|seen| seen.revision).max();
    let oldest_possible = must_survive.or(before.revisions.keys().next_back().copied()).unwrap_or(0);

    // All of the state is that of one revision: nothing durable is missing, no transaction is there by half.
    let state = contents(&store).await;
    let possible = [0].into_iter().chain(all.revisions.keys().copied()).filter(|revision| *revision >= oldest_possible);
    let survivor = possible.rev().find(|revision| all.state_at(*revision) == state);
    let survivor = survivor.unwrap_or_else(|| panic!("no state since {oldest_possible} is {:?}", state.get("/last")));

    // What anybody saw is not used again, and nobody continues from what is lost.
    let current = store.current_revision().await.expect("current revision");
    for lost in known.clone().filter(|seen| seen.revision > survivor) {
        assert!(current.0 > lost.revision, "{} would be used again; the store is at {current}", lost.revision);
        let answers = [
            store.watch("", Revision(lost.revision)).await.err(),
            store.get("/last", Some(Revision(lost.revision))).await.err(),
        ];
        for answer in answers {
            assert!(matches!(answer, Some(Error::Compacted { .. })), "continuing from {}: {answer:?}", lost.revision);
        }
    }

    // History is what it was.
    let oldest = match store.watch("", Revision(0)).await {
        Err(Error::Compacted { oldest, .. }) => oldest.0,
        _ => 0,
    };
    let expected: Vec<u64> =
        all.revisions.keys().copied().filter(|revision| (oldest + 1..=survivor).contains(revision)).collect();
    let replayed = replay(&store, oldest).await;
    assert_eq!(replayed.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), expected);
    for (revision, contents) in replayed {
        all.record(revision, contents);
    }
    store.close().await.expect("close");
    survivor
}

async fn lives_of_a_store(seed: u64) {
    let mut random = Random(seed);
    // A new file gets its name only when it is complete, so a life begins with an empty store, not with an empty file.
    let disk = Disk::default();
    open_on(&disk, options(seed)).expect("open").close().await.expect("close");
    let mut image = disk.image();
    let mut ledger = Ledger::default();
    // Over all lives, also of what was lost: nothing that was seen is ever seen with other contents.
    let mut forever = Ledger::default();
    for life in 0..LIVES {
        let disk = Disk::with(image.clone());
        let seen = live(&disk, options(seed), &format!("{seed}/{life}"), &mut random).await;
        // Several ways for the power to fail in this life; it goes on from the last.
        for last in [false, false, true] {
            let position = random.below(disk.position() as u64 + 1) as usize;
            image = disk.after_power_loss(position, &mut random);
            if random.chance(30) {
                // It fails again while the store recovers.
                let recovering = Disk::with(image);
                open_on(&recovering, options(seed)).expect("open").close().await.expect("close");
                image =
                    recovering.after_power_loss(random.below(recovering.position() as u64 + 1) as usize, &mut random);
            }
            let survivor = survive(image.clone(), options(seed), &ledger, &seen, position).await;
            if last {
                for seen in seen.iter().filter(|seen| seen.position <= position || seen.revision <= survivor) {
                    forever.record(seen.revision, seen.contents.clone());
                    ledger.record(seen.revision, seen.contents.clone());
                }
                ledger.lose_after(survivor);
            }
        }
    }
    assert!(!forever.revisions.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_survives_power_losses() {
    let seed = std::env::var("FERRY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds = seed.map_or(0..STORES, |seed: u64| seed..seed + 1);
    for seed in seeds {
        tokio::spawn(lives_of_a_store(seed)).await.unwrap_or_else(|_| panic!("repeat with FERRY_SEED={seed}"));
    }
}

#[tokio::test]
async fn a_watch_continues_from_before_the_loss_but_not_from_within() {
    let disk = Disk::default();
    let store = open_on(&disk, Options::new("gap")).expect("open");
    let put = |value: &'static str| storage::Transaction::default().put("/a", value);
    let Ok(Outcome::Committed(durable)) = store.commit(put("durable")).await else { panic!("not committed") };
    let Ok(Outcome::Committed(relaxed)) = store.commit(put("relaxed").relaxed()).await else { panic!("not committed") };
    assert_eq!(store.get("/a", None).await.expect("get").value.expect("exists").value, "relaxed");

    let reopened = open_on(&Disk::with(disk.synced_image()), Options::new("gap")).expect("open");
    assert_eq!(reopened.get("/a", None).await.expect("get").value.expect("exists").value, "durable");
    let lost = reopened.watch("/", relaxed).await.expect_err("the relaxed write is lost");
    let current = reopened.current_revision().await.expect("current revision");
    assert_eq!(lost, Error::Compacted { requested: relaxed, oldest: current });
    let mut from_before = reopened.watch("/", durable).await.expect("watch");
    let mut from_now = reopened.watch("/", current).await.expect("watch");
    let Ok(Outcome::Committed(next)) = reopened.commit(put("next")).await else { panic!("not committed") };
    assert!(next > current && current > relaxed);
    for watch in [&mut from_before, &mut from_now] {
        assert_eq!(next_changes(watch).await.expect("event").0, next.0);
    }
}
