//! Watches: history, then live, without gap or repetition.

use std::{sync::Arc, time::Duration};

use super::{committed, delete, delete_change, in_time, next, put, put_change};
use crate::{Change, Error, Expected, Revision, Store, Transaction, Watch, WatchEvent};

pub async fn watches_deliver_history_then_live_events(store: Arc<dyn Store>) {
    let first = committed(&*store, put("/w/a", "1")).await;
    let second = committed(&*store, put("/w/a", "2")).await;
    let mut watch = store.watch("/w/", Revision(first.0 - 1)).await.expect("watch");
    assert_eq!(next(&mut watch).await, Ok((first, vec![put_change("/w/a", "1", first, first)])));
    let third = committed(&*store, delete("/w/a")).await;
    assert_eq!(next(&mut watch).await, Ok((second, vec![put_change("/w/a", "2", first, second)])));
    assert_eq!(next(&mut watch).await, Ok((third, vec![delete_change("/w/a", third)])));
    let fourth = committed(&*store, put("/w/a", "4")).await;
    assert_eq!(next(&mut watch).await, Ok((fourth, vec![put_change("/w/a", "4", fourth, fourth)])));

    let mut live = store.watch("/w/", fourth).await.expect("watch");
    let fifth = committed(&*store, put("/w/b", "5").relaxed()).await;
    for watch in [&mut watch, &mut live] {
        assert_eq!(next(watch).await, Ok((fifth, vec![put_change("/w/b", "5", fifth, fifth)])));
    }
}

pub async fn watches_resume_where_they_ended(store: Arc<dyn Store>) {
    let start = store.current_revision().await.expect("current revision");
    let mut written = Vec::new();
    let mut resumed_at = start;
    for round in 0..5 {
        for i in 0..4 {
            written.push(committed(&*store, put(&format!("/resume/{i}"), &format!("{round}"))).await);
        }
        // Read three events, then drop the watch with events still to come.
        let mut watch = store.watch("/resume/", resumed_at).await.expect("watch");
        for _ in 0..3 {
            let (revision, _) = next(&mut watch).await.expect("event");
            let expected = written.iter().find(|written| **written > resumed_at).copied();
            assert_eq!(Some(revision), expected);
            resumed_at = revision;
        }
    }
}

pub async fn watches_deliver_a_revision_in_one_event(store: Arc<dyn Store>) {
    let before = committed(&*store, put("/one/a", "1")).await;
    let mut live = store.watch("/one/", before).await.expect("watch");
    let mut many = Transaction::default().delete("/one/a").delete("/one/missing");
    for i in 0..40 {
        many = many.put(format!("/one/n{i:02}"), "x");
    }
    let revision = committed(&*store, many).await;
    let mut history = store.watch("/one/", before).await.expect("watch");
    let mut expected = vec![delete_change("/one/a", revision)];
    expected.extend((0..40).map(|i| put_change(&format!("/one/n{i:02}"), "x", revision, revision)));
    assert_eq!(next(&mut live).await, Ok((revision, expected.clone())));
    assert_eq!(next(&mut history).await, Ok((revision, expected)));
}

pub async fn watches_select_by_prefix(store: Arc<dyn Store>) {
    let start = store.current_revision().await.expect("current revision");
    let mut live = store.watch("/s/a/", start).await.expect("watch");
    let first = committed(&*store, put("/s/a/1", "1").put("/s/b/1", "1")).await;
    committed(&*store, put("/s/b/2", "2").delete("/s/b/1")).await;
    committed(&*store, put("/s/a", "not below the prefix")).await;
    let last = committed(&*store, put("/s/a/2", "3")).await;
    let mut history = store.watch("/s/a/", start).await.expect("watch");
    for watch in [&mut live, &mut history] {
        assert_eq!(next(watch).await, Ok((first, vec![put_change("/s/a/1", "1", first, first)])));
        assert_eq!(next(watch).await, Ok((last, vec![put_change("/s/a/2", "3", last, last)])));
    }
    let mut everything = store.watch("", start).await.expect("watch");
    for expected in [2, 2, 1, 1] {
        assert_eq!(next(&mut everything).await.expect("event").1.len(), expected);
    }
}

pub async fn watches_of_the_future_are_refused(store: Arc<dyn Store>) {
    let current = committed(&*store, put("/f/a", "1")).await;
    let requested = Revision(current.0 + 10);
    let refused = match store.watch("/f/", requested).await {
        Ok(mut watch) => next(&mut watch).await.expect_err("a watch of the future must not wait for it"),
        Err(refused) => refused,
    };
    assert_eq!(refused, Error::FutureRevision { requested, current });
}

/// Asks for progress until the watch reports it at `at_least` or later; earlier events must have come before.
async fn progress(store: &dyn Store, watch: &mut Watch, at_least: Revision) -> Vec<Revision> {
    let mut seen = Vec::new();
    let report = async {
        loop {
            store.request_progress().await.expect("request progress");
            let pause = tokio::time::sleep(Duration::from_secs(1));
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    event = watch.next() => match event.expect("the store is open").expect("event") {
                        WatchEvent::Changes { revision, .. } => seen.push(revision),
                        WatchEvent::Progress(revision) if revision >= at_least => return,
                        WatchEvent::Progress(_) => {}
                    },
                    () = &mut pause => break,
                }
            }
        }
    };
    in_time("progress", report).await;
    seen
}

pub async fn watches_report_progress_on_request(store: Arc<dyn Store>) {
    let start = store.current_revision().await.expect("current revision");
    let mut busy = store.watch("/progress/", start).await.expect("watch");
    let mut idle = store.watch("/nothing-here/", start).await.expect("watch");
    let mut written = Vec::new();
    for i in 0..20 {
        written.push(committed(&*store, put("/progress/a", &format!("{i}"))).await);
    }
    let last = written[19];
    assert_eq!(progress(&*store, &mut busy, last).await, written, "progress comes after what it covers");
    assert_eq!(progress(&*store, &mut idle, last).await, []);
    let next_revision = committed(&*store, put("/progress/a", "more")).await;
    assert_eq!(next(&mut busy).await.expect("event").0, next_revision);
}

pub async fn watches_opened_among_writers_miss_and_repeat_nothing(store: Arc<dyn Store>) {
    const WRITERS: usize = 8;
    const WRITES: usize = 60;
    let start = store.current_revision().await.expect("current revision");
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut own = Vec::new();
                for i in 0..WRITES {
                    let key = format!("/among/{writer}/{}", i % 7);
                    let mut transaction = if i % 5 == 4 { delete(&key) } else { put(&key, &format!("{i}")) };
                    transaction = transaction.put(format!("/among/{writer}/last"), format!("{i}"));
                    if i % 3 == 0 {
                        transaction = transaction.relaxed();
                    }
                    own.push(committed(&*store, transaction).await);
                }
                own
            })
        })
        .collect();
    let watchers: Vec<_> = (0..12)
        .map(|watcher| {
            let store = store.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(3 * watcher)).await;
                let mut watch = store.watch("/among/", start).await.expect("watch");
                let mut seen = Vec::new();
                while seen.len() < WRITERS * WRITES {
                    seen.push(next(&mut watch).await.expect("event"));
                }
                seen
            })
        })
        .collect();
    let mut written = Vec::new();
    for writer in writers {
        written.extend(writer.await.expect("writer"));
    }
    written.sort();
    let mut first: Option<Vec<(Revision, Vec<Change>)>> = None;
    for watcher in watchers {
        let seen = watcher.await.expect("watcher");
        assert_eq!(seen.iter().map(|(revision, _)| *revision).collect::<Vec<_>>(), written);
        let expected = first.get_or_insert_with(|| seen.clone());
        assert!(*expected == seen, "two watches saw different contents");
    }
}

pub async fn slow_watches_never_lose_silently(store: Arc<dyn Store>) {
    const WRITERS: u64 = 32;
    const WRITES: u64 = 64;
    let start = committed(&*store, put("/slow/start", "0")).await;
    let mut watch = store.watch("/slow/", start).await.expect("watch");
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for i in 0..WRITES {
                    let key = |part| format!("/slow/{writer}/{i}/{part}");
                    let filler = vec![b'x'; 1024];
                    let transaction = Transaction::default()
                        .require(key(0), Expected::Absent)
                        .put(key(0), filler.clone())
                        .put(key(1), filler);
                    committed(&*store, transaction).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("writer");
    }
    let mut expected = start.0 + 1;
    while expected <= start.0 + WRITERS * WRITES {
        match next(&mut watch).await {
            Ok((revision, changes)) => {
                assert_eq!(revision.0, expected, "events were lost or repeated");
                assert_eq!(changes.len(), 2);
                expected += 1;
            }
            Err(refused) => {
                assert!(matches!(refused, Error::Compacted { .. } | Error::Unavailable(_)), "{refused:?}");
                break;
            }
        }
    }
}
