//! Compare and commit.

use std::sync::Arc;

use super::{committed, conflict, delete, put, value};
use crate::{Error, Expected, KeyValue, MAX_VALUE_BYTES, Outcome, Revision, Store, Transaction};

pub async fn revisions_rise_by_transaction(store: Arc<dyn Store>) {
    let start = store.current_revision().await.expect("current revision");
    let first = committed(&*store, put("/r/a", "1")).await;
    let second = committed(&*store, put("/r/b", "1").put("/r/c", "1")).await;
    let third = committed(&*store, delete("/r/a")).await;
    assert_eq!([start.0 + 1, start.0 + 2, start.0 + 3], [first.0, second.0, third.0]);
    assert_eq!(store.current_revision().await, Ok(third));
    let both = [store.get("/r/b", None).await, store.get("/r/c", None).await];
    for found in both {
        let found = found.expect("get");
        assert_eq!(found.revision, third);
        assert_eq!(found.value.map(|kv| kv.mod_revision), Some(second), "all keys of a transaction carry its revision");
    }
}

pub async fn failed_compares_tell_the_actual_values(store: Arc<dyn Store>) {
    let created = committed(&*store, put("/c/a", "old")).await;
    let changed = committed(&*store, put("/c/a", "new")).await;
    let attempt = put("/c/b", "never")
        .require("/c/a", Expected::ModRevision(created))
        .require("/c/missing", Expected::Absent)
        .require("/c/also-missing", Expected::ModRevision(created));
    let actual = conflict(&*store, attempt).await;
    assert_eq!(actual.revision, changed);
    let current = KeyValue { key: "/c/a".into(), value: "new".into(), create_revision: created, mod_revision: changed };
    assert_eq!(actual.value, [Some(current), None, None], "one entry per compare, in their order");
    assert_eq!(value(&*store, "/c/b", None).await, None);
    assert_eq!(store.current_revision().await, Ok(changed), "a conflict takes no revision");
}

pub async fn compares_hold_on_absence_and_mod_revision(store: Arc<dyn Store>) {
    let absent = |key: &str| Transaction::default().require(key, Expected::Absent);
    let created = committed(&*store, absent("/m/a").put("/m/a", "1")).await;
    conflict(&*store, absent("/m/a").put("/m/a", "2")).await;
    let at = |revision| Transaction::default().require("/m/a", Expected::ModRevision(revision));
    let updated = committed(&*store, at(created).put("/m/a", "2")).await;
    conflict(&*store, at(created).put("/m/a", "3")).await;
    conflict(&*store, at(Revision(updated.0 + 100)).put("/m/a", "3")).await;
    // A compare may be on another key than the change, and there may be several.
    committed(&*store, at(updated).require("/m/b", Expected::Absent).put("/m/c", "1")).await;
    committed(&*store, at(updated).delete("/m/a")).await;
    conflict(&*store, at(updated).put("/m/a", "4")).await;
    committed(&*store, absent("/m/a").put("/m/a", "5")).await;
    assert_eq!(value(&*store, "/m/a", None).await.as_deref(), Some("5"));
}

pub async fn transactions_apply_all_or_nothing(store: Arc<dyn Store>) {
    committed(&*store, put("/t/a", "a1").put("/t/b", "b1")).await;
    let refused =
        put("/t/a", "a2").delete("/t/b").put("/t/c", "c2").require("/t/d", Expected::ModRevision(Revision(1)));
    conflict(&*store, refused).await;
    assert_eq!(value(&*store, "/t/a", None).await.as_deref(), Some("a1"));
    assert_eq!(value(&*store, "/t/b", None).await.as_deref(), Some("b1"));
    assert_eq!(value(&*store, "/t/c", None).await, None);
    let applied = put("/t/a", "a3").delete("/t/b").put("/t/c", "c3").require("/t/d", Expected::Absent);
    let revision = committed(&*store, applied).await;
    assert_eq!(value(&*store, "/t/a", None).await.as_deref(), Some("a3"));
    assert_eq!(value(&*store, "/t/b", None).await, None);
    let created = store.get("/t/c", None).await.expect("get").value.expect("created");
    assert_eq!((created.create_revision, created.mod_revision), (revision, revision));
}

pub async fn malformed_transactions_are_refused(store: Arc<dyn Store>) {
    let before = store.current_revision().await;
    let twice = [put("/d/a", "1").put("/d/a", "2"), put("/d/a", "1").put("/d/b", "1").delete("/d/a")];
    for transaction in twice.into_iter().chain([put("", "1"), put("/d/\0", "1"), delete("")]) {
        let answer = store.commit(transaction.clone()).await;
        assert!(matches!(answer, Err(Error::Invalid(_))), "{transaction:?} was answered with {answer:?}");
    }
    assert_eq!(store.current_revision().await, before);
    assert_eq!(value(&*store, "/d/a", None).await, None);
}

pub async fn transactions_that_change_nothing_take_no_revision(store: Arc<dyn Store>) {
    let written = committed(&*store, put("/n/a", "1")).await;
    assert_eq!(committed(&*store, Transaction::default()).await, written);
    assert_eq!(committed(&*store, delete("/n/missing").delete("/n/missing-too")).await, written);
    assert_eq!(
        committed(&*store, Transaction::default().require("/n/a", Expected::ModRevision(written))).await,
        written
    );
    assert_eq!(store.current_revision().await, Ok(written));
    let mixed = committed(&*store, delete("/n/missing").put("/n/b", "1")).await;
    assert!(mixed > written);
    let again = committed(&*store, put("/n/b", "1")).await;
    assert!(again > mixed, "a put of the same value is a change");
}

pub async fn recreated_keys_have_a_new_create_revision(store: Arc<dyn Store>) {
    let created = committed(&*store, put("/k/a", "1")).await;
    let updated = committed(&*store, put("/k/a", "2")).await;
    let kv = store.get("/k/a", None).await.expect("get").value.expect("exists");
    assert_eq!((kv.create_revision, kv.mod_revision), (created, updated));
    committed(&*store, delete("/k/a")).await;
    let recreated = committed(&*store, put("/k/a", "3")).await;
    let kv = store.get("/k/a", None).await.expect("get").value.expect("exists");
    assert_eq!((kv.create_revision, kv.mod_revision), (recreated, recreated));
}

pub async fn big_values_are_kept_whole_and_bigger_ones_refused(store: Arc<dyn Store>) {
    let mut big: Vec<u8> = (0..MAX_VALUE_BYTES).map(|i| (i % 251) as u8).collect();
    let revision = committed(&*store, Transaction::default().put("/big", big.clone())).await;
    let kept = store.get("/big", None).await.expect("get").value.expect("exists");
    assert_eq!(kept.mod_revision, revision);
    assert!(kept.value == big, "the value came back changed");
    let mut watch = store.watch("/big", Revision(revision.0 - 1)).await.expect("watch");
    let (seen, _) = super::next(&mut watch).await.expect("the event of the big value");
    assert_eq!(seen, revision);
    let bytes = big.len() + 1;
    big.push(0);
    let refused = store.commit(Transaction::default().put("/big", big)).await;
    assert_eq!(refused, Err(Error::TooLarge { key: "/big".into(), bytes }));
    assert_eq!(store.current_revision().await, Ok(revision));
    committed(&*store, Transaction::default().put("/empty", "")).await;
    assert_eq!(value(&*store, "/empty", None).await.as_deref(), Some(""));
    let none = store.commit(Transaction::default()).await;
    assert!(matches!(none, Ok(Outcome::Committed(_))));
}
