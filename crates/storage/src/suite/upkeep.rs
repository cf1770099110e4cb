//! Compaction and expiry.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{committed, delete, delete_change, in_time, next, put, put_change, value};
use crate::{Error, Expected, Lifetime, Operation, Range, Revision, Store, Transaction};

pub async fn compaction_forgets_the_past_and_keeps_the_present(store: Arc<dyn Store>) {
    let oldest = committed(&*store, put("/x/kept", "kept").put("/x/a", "1")).await;
    let second = committed(&*store, put("/x/a", "2").put("/x/gone", "1")).await;
    committed(&*store, delete("/x/gone")).await;
    let compacted = committed(&*store, put("/x/a", "4")).await;
    let after = committed(&*store, put("/x/a", "5")).await;
    in_time("compaction", store.compact(compacted)).await.expect("compact");

    for revision in [oldest, second, Revision(compacted.0 - 1)] {
        let refused = |answer: Error| match answer {
            Error::Compacted { requested, .. } => assert_eq!(requested, revision),
            other => panic!("reading at {revision} answered {other:?}"),
        };
        refused(store.get("/x/a", Some(revision)).await.expect_err("compacted"));
        refused(store.range(Range { revision: Some(revision), ..Range::default() }).await.expect_err("compacted"));
    }
    let watched = match store.watch("/x/", oldest).await {
        Ok(mut watch) => next(&mut watch).await.expect_err("the history of this watch is compacted"),
        Err(refused) => refused,
    };
    assert!(matches!(watched, Error::Compacted { .. }), "{watched:?}");

    assert_eq!(value(&*store, "/x/a", Some(compacted)).await.as_deref(), Some("4"));
    assert_eq!(value(&*store, "/x/a", None).await.as_deref(), Some("5"));
    assert_eq!(value(&*store, "/x/kept", None).await.as_deref(), Some("kept"));
    assert_eq!(value(&*store, "/x/kept", Some(compacted)).await.as_deref(), Some("kept"));
    assert_eq!(value(&*store, "/x/gone", None).await, None);
    let kept = store.get("/x/kept", None).await.expect("get").value.expect("kept");
    assert_eq!((kept.create_revision, kept.mod_revision), (oldest, oldest));
    assert_eq!(store.current_revision().await, Ok(after), "compaction takes no revision");
    store.compact(compacted).await.expect("compacting again is fine");
    store.compact(oldest).await.expect("compacting less is fine");
    store.compact(after).await.expect("compacting up to now");
    assert_eq!(value(&*store, "/x/a", Some(after)).await.as_deref(), Some("5"));
    assert_eq!(store.range(Range::prefix("/x/")).await.expect("range").value.items.len(), 2);
}

pub async fn compaction_lets_later_watches_run_on(store: Arc<dyn Store>) {
    let first = committed(&*store, put("/y/a", "1")).await;
    let mut open = store.watch("/y/", first).await.expect("watch");
    let second = committed(&*store, put("/y/a", "2")).await;
    assert_eq!(next(&mut open).await.expect("event").0, second);
    let third = committed(&*store, delete("/y/a").put("/y/b", "3")).await;
    store.compact(second).await.expect("compact");
    let mut opened_after = store.watch("/y/", second).await.expect("watch");
    let fourth = committed(&*store, put("/y/a", "4")).await;
    for watch in [&mut open, &mut opened_after] {
        let expected = vec![delete_change("/y/a", third), put_change("/y/b", "3", third, third)];
        assert_eq!(next(watch).await, Ok((third, expected)));
        assert_eq!(next(watch).await, Ok((fourth, vec![put_change("/y/a", "4", fourth, fourth)])));
    }
}

/// The shortest that every engine grants.
const TTL: Duration = Duration::from_secs(2);

pub async fn expired_keys_are_deleted_with_an_event(store: Arc<dyn Store>) {
    let start = store.current_revision().await.expect("current revision");
    let mut watch = store.watch("/ttl/", start).await.expect("watch");
    let begun = Instant::now();
    let both = Transaction::default().put_with_ttl("/ttl/a", "1", TTL).put("/ttl/stays", "1");
    let created = committed(&*store, both).await;
    assert_eq!(next(&mut watch).await.expect("event").0, created);
    let (deleted, changes) = next(&mut watch).await.expect("event");
    // Not at once. No closer: keys expire by the wall clock, which may be steered against the clock of this measurement.
    assert!(begun.elapsed() >= TTL / 2, "expired after {:?}", begun.elapsed());
    assert!(deleted > created);
    assert_eq!(changes, [delete_change("/ttl/a", deleted)]);
    assert_eq!(value(&*store, "/ttl/a", None).await, None);
    assert_eq!(value(&*store, "/ttl/a", Some(created)).await.as_deref(), Some("1"));
    assert_eq!(value(&*store, "/ttl/stays", None).await.as_deref(), Some("1"));
}

pub async fn putting_again_extends_or_ends_a_ttl(store: Arc<dyn Store>) {
    // So long that a busy machine gets everything below done before it ends.
    let short = Duration::from_secs(8);
    let long = Duration::from_secs(3600);
    let all = Transaction::default()
        .put_with_ttl("/again/extended", "1", short)
        .put_with_ttl("/again/ended", "1", short)
        .put_with_ttl("/again/recreated", "1", short)
        .put_with_ttl("/again/shortened", "1", long)
        .put_with_ttl("/again/kept", "1", short)
        .put_with_ttl("/again/witness", "1", short);
    committed(&*store, all).await;
    committed(&*store, delete("/again/recreated")).await;
    let again = put("/again/ended", "2")
        .put("/again/recreated", "2")
        .put_with_ttl("/again/extended", "2", long)
        .put_with_ttl("/again/shortened", "2", TTL);
    committed(&*store, again).await;
    let kept = store.get("/again/kept", None).await.expect("get").value.expect("not expired yet").mod_revision;
    let mut keeping = Transaction::default().require("/again/kept", Expected::ModRevision(kept));
    keeping.operations.push(Operation::Put { key: "/again/kept".into(), value: "2".into(), lifetime: Lifetime::Kept });
    let mut watch = store.watch("/again/", committed(&*store, keeping).await).await.expect("watch");
    let mut expired = Vec::new();
    while expired.len() < 3 {
        for change in next(&mut watch).await.expect("event").1 {
            expired.push(super::changed_key(&change).to_owned());
        }
    }
    expired.sort();
    assert_eq!(expired, ["/again/kept", "/again/shortened", "/again/witness"]);
    for key in ["/again/extended", "/again/ended", "/again/recreated"] {
        assert_eq!(value(&*store, key, None).await.as_deref(), Some("2"), "{key}");
    }
}
