//! A writer process killed with SIGKILL at random moments, many times, on one file. It reports what was acknowledged and
//! what its watch saw; after each kill all of that is checked against what the file holds.
//!
//! This program starts itself as the writer, so it brings its own `main`.
#![allow(clippy::print_stdout, reason = "the reports of the writer, and the result as the test harness prints it")]

mod support;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use storage::{Durability, Error, Outcome, Revision, Store, WatchEvent};
use storage_embedded::{EmbeddedStore, Options};
use support::{Contents, Ledger, Random, contents, intended, observed, random_transaction, replay};

const KILLS: u64 = 60;
const WRITERS: u64 = 6;
const STORE: &str = "FERRY_KILLED_STORE";
const LIFE: &str = "FERRY_KILLED_LIFE";

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("runtime");
    match (std::env::var(STORE), std::env::var(LIFE)) {
        (Ok(path), Ok(life)) => runtime.block_on(write_until_killed(Path::new(&path), life.parse().expect("a number"))),
        _ => {
            runtime.block_on(kill_again_and_again());
            println!("test a_writer_killed_{KILLS}_times_loses_nothing ... ok");
        }
    }
}

fn options(path: &Path) -> Options {
    Options { relaxed_delay: Duration::from_millis(20), ..Options::new(path) }
}

/// One line per thing seen: `durable|relaxed|watched <revision> <key>[=<value>]…`, separated by tabs.
fn report(what: &str, revision: Revision, contents: &Contents) {
    let mut line = format!("{what}\t{revision}");
    for (key, value) in contents {
        line.push('\t');
        line.push_str(key);
        if let Some(value) = value {
            line.push('=');
            line.push_str(value);
        }
    }
    line.push('\n');
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
}

async fn write_until_killed(path: &Path, life: u64) {
    let store = Arc::new(EmbeddedStore::open(options(path)).expect("open"));
    let current = store.current_revision().await.expect("current revision");
    let mut watch = store.watch("", current).await.expect("watch");
    for writer in 0..WRITERS {
        let store = store.clone();
        tokio::spawn(async move {
            let mut random = Random(life * 1000 + writer);
            for i in 0u64.. {
                let mut transaction = random_transaction(&mut random, &format!("{life}/{writer}/{i}"));
                // Every third life hardly syncs, so that it has something to lose.
                if life.is_multiple_of(3) && !random.chance(2) {
                    transaction = transaction.relaxed();
                }
                let what = if transaction.durability == Durability::Durable { "durable" } else { "relaxed" };
                let intended = intended(&transaction);
                let Ok(Outcome::Committed(revision)) = store.commit(transaction).await else { panic!("not committed") };
                report(what, revision, &intended);
                if random.chance(2) {
                    let _ = store.compact(Revision(revision.0.saturating_sub(500))).await;
                }
            }
        });
    }
    while let Some(event) = watch.next().await {
        if let WatchEvent::Changes { revision, changes } = event.expect("event") {
            report("watched", revision, &observed(&changes));
        }
    }
}

/// What one life of the writer reported.
#[derive(Default)]
struct Reports {
    seen: Vec<(u64, Contents)>,
    durable: Vec<u64>,
}

fn parse(line: &str, reports: &mut Reports) -> Option<()> {
    let mut fields = line.split('\t');
    let (what, revision) = (fields.next()?, fields.next()?.parse().ok()?);
    let contents = fields.map(|field| match field.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (field.to_owned(), None),
    });
    reports.seen.push((revision, contents.collect()));
    if what == "durable" {
        reports.durable.push(revision);
    }
    Some(())
}

/// Starts a writer, and kills it some time after one of its first reports: a slow machine gets as far as a fast one.
fn one_life(path: &Path, life: u64, random: &mut Random) -> Reports {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(STORE, path)
        .env(LIFE, life.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start the writer");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut reports = Reports::default();
    let mut line = String::new();
    let mut read_line = |line: &mut String| {
        line.clear();
        lines.read_line(line).expect("read");
        // The last line may be cut off by the kill.
        if line.ends_with('\n') {
            parse(line.trim_end(), &mut reports).expect("a whole line is a report");
        }
        line.ends_with('\n')
    };
    for _ in 0..=random.below(60) {
        assert!(read_line(&mut line), "the writer ended by itself");
    }
    let killer = thread::spawn({
        let delay = Duration::from_micros(random.below(5000));
        move || {
            thread::sleep(delay);
            child.kill().expect("kill");
            child.wait().expect("wait");
        }
    });
    while read_line(&mut line) {}
    killer.join().expect("killer");
    reports
}

async fn kill_again_and_again() {
    let folder = tempfile::tempdir().expect("a folder for the store");
    let path = folder.path().join("store");
    let mut random = Random(std::process::id().into());
    let (mut ledger, mut forever) = (Ledger::default(), Ledger::default());
    let (mut acknowledged, mut lost) = (0, 0);
    for life in 0..KILLS {
        let reports = one_life(&path, life, &mut random);
        let store = EmbeddedStore::open(options(&path)).expect("a store whose writer was killed opens");
        for (revision, contents) in &reports.seen {
            forever.record(*revision, contents.clone());
            ledger.record(*revision, contents.clone());
        }
        let survivor = verify(&store, &mut ledger, &mut forever, &reports).await;
        acknowledged += reports.durable.len();
        lost += reports.seen.iter().filter(|(revision, _)| *revision > survivor).count();
        ledger.lose_after(survivor);
        store.close().await.expect("close");
    }
    let report = storage_embedded::check(&path).expect("check");
    assert_eq!(report.problems, [""; 0]);
    println!("{KILLS} kills, {acknowledged} durable commits acknowledged, {lost} reports of relaxed ones lost");
    assert!(acknowledged > KILLS as usize, "the writers hardly wrote");
}

/// Answers the newest revision that survived.
async fn verify(store: &EmbeddedStore, ledger: &mut Ledger, forever: &mut Ledger, reports: &Reports) -> u64 {
    assert_eq!(store.check().await.expect("check").problems, [""; 0]);
    let oldest = match store.watch("", Revision(0)).await {
        Err(Error::Compacted { oldest, .. }) => oldest.0,
        _ => 0,
    };
    let replayed: BTreeMap<u64, Contents> = replay(store, oldest).await.into_iter().collect();
    for (revision, contents) in &replayed {
        // Whatever is in the file agrees with what anybody ever saw; what nobody saw before is known from now on.
        forever.record(*revision, contents.clone());
        ledger.record(*revision, contents.clone());
    }
    let survivor = replayed.keys().next_back().copied().unwrap_or(oldest);
    for revision in reports.durable.iter().filter(|revision| **revision > oldest) {
        assert!(replayed.contains_key(revision), "revision {revision} was acknowledged as durable and is gone");
    }
    let known = ledger.revisions.range(oldest + 1..).map(|(revision, _)| *revision).filter(|known| *known <= survivor);
    assert_eq!(known.collect::<Vec<_>>(), replayed.keys().copied().collect::<Vec<_>>(), "a hole in the history");
    assert!(contents(store).await == ledger.state_at(survivor), "the state is not that of revision {survivor}");

    let current = store.current_revision().await.expect("current revision").0;
    for (revision, _) in reports.seen.iter().filter(|(revision, _)| *revision > survivor) {
        assert!(current > *revision, "{revision} would be used again; the store is at {current}");
        let answer = store.watch("", Revision(*revision)).await.err();
        assert!(matches!(answer, Some(Error::Compacted { .. })), "continuing from {revision}: {answer:?}");
    }
    survivor
}
