//! The suite that every engine passes. Behind the cargo feature `suite`.
//!
//! An engine runs it from an integration test with one line, which makes one test per case:
//!
//! ```ignore
//! async fn open() -> storage::suite::Fixture { … }
//! storage::suite!(open);
//! ```
//!
//! `open` may also give an `Option`: `None`, after saying loudly why, when this machine lacks what the engine needs.
//! The test crate needs tokio with `macros` and `rt-multi-thread`. A fixture is a store that is empty of keys and that
//! nobody else writes to or compacts during the case; whatever keeps it alive or exclusive goes into the guard.
//! Revisions need not start at zero.

mod load;
mod reads;
mod transactions;
mod upkeep;
mod watches;

use std::{any::Any, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;

pub use self::{load::*, reads::*, transactions::*, upkeep::*, watches::*};
use crate::{At, Change, Error, KeyValue, Outcome, Revision, Store, Transaction, Watch, WatchEvent};

/// An empty store for one case, and what must live as long as it.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    _guard: Box<dyn Any + Send>,
}

impl Fixture {
    pub fn new(store: Arc<dyn Store>, guard: impl Any + Send) -> Self {
        Self { store, _guard: Box::new(guard) }
    }
}

/// One `#[tokio::test]` per case of the suite, against the stores that `$open` opens. `suite!(layer open)` is for layers
/// that add to values: all cases but the one about the exact size of the largest value.
#[macro_export]
macro_rules! suite {
    ($open:path) => {
        $crate::suite! { layer $open }
        $crate::suite! { @cases $open: big_values_are_kept_whole_and_bigger_ones_refused }
    };
    (layer $open:path) => {
        $crate::suite! { @cases $open:
            revisions_rise_by_transaction
            failed_compares_tell_the_actual_values
            compares_hold_on_absence_and_mod_revision
            transactions_apply_all_or_nothing
            malformed_transactions_are_refused
            transactions_that_change_nothing_take_no_revision
            recreated_keys_have_a_new_create_revision
            ranges_select_by_prefix_after_and_limit
            ranges_page_at_one_revision_while_writers_write
            reads_at_old_revisions_see_the_past
            reads_of_the_future_are_refused
            watches_deliver_history_then_live_events
            watches_resume_where_they_ended
            watches_deliver_a_revision_in_one_event
            watches_select_by_prefix
            watches_of_the_future_are_refused
            watches_report_progress_on_request
            watches_opened_among_writers_miss_and_repeat_nothing
            slow_watches_never_lose_silently
            compaction_forgets_the_past_and_keeps_the_present
            compaction_lets_later_watches_run_on
            expired_keys_are_deleted_with_an_event
            putting_again_extends_or_ends_a_ttl
            concurrent_counters_lose_no_update
            acknowledged_writes_are_seen_by_every_later_read
            a_hundred_thousand_keys_are_listed_completely
        }
    };
    (@cases $open:path: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let fixture: Option<$crate::suite::Fixture> = $open().await.into();
                let Some(fixture) = fixture else { return };
                $crate::suite::$case(fixture.store.clone()).await;
            }
        )*
    };
}

const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

async fn committed(store: &dyn Store, transaction: Transaction) -> Revision {
    match in_time("a commit", store.commit(transaction)).await.expect("commit") {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict(actual) => panic!("unexpected conflict: {actual:?}"),
    }
}

async fn conflict(store: &dyn Store, transaction: Transaction) -> At<Vec<Option<KeyValue>>> {
    match in_time("a commit", store.commit(transaction)).await.expect("commit") {
        Outcome::Committed(revision) => panic!("committed at {revision} despite its compares"),
        Outcome::Conflict(actual) => actual,
    }
}

fn put(key: &str, value: &str) -> Transaction {
    Transaction::default().put(key, Bytes::copy_from_slice(value.as_bytes()))
}

fn delete(key: &str) -> Transaction {
    Transaction::default().delete(key)
}

async fn value(store: &dyn Store, key: &str, revision: Option<Revision>) -> Option<String> {
    let found = in_time("a get", store.get(key, revision)).await.expect("get").value;
    found.map(|kv| String::from_utf8(kv.value.to_vec()).expect("the values of these cases are text"))
}

/// The next changes of a watch, progress skipped. Changes are sorted by key: the order inside a revision is free.
async fn next(watch: &mut Watch) -> Result<(Revision, Vec<Change>), Error> {
    loop {
        match in_time("a watch event", watch.next()).await.expect("the store is open")? {
            WatchEvent::Changes { revision, mut changes } => {
                assert!(!changes.is_empty(), "the event of revision {revision} is empty");
                changes.sort_by(|a, b| changed_key(a).cmp(changed_key(b)));
                return Ok((revision, changes));
            }
            WatchEvent::Progress(_) => {}
        }
    }
}

fn changed_key(change: &Change) -> &str {
    match change {
        Change::Put(kv) => &kv.key,
        Change::Delete { key, .. } => key,
    }
}

fn put_change(key: &str, value: &str, create: Revision, modified: Revision) -> Change {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Change::Put(KeyValue { key: key.into(), value, create_revision: create, mod_revision: modified })
}

fn delete_change(key: &str, revision: Revision) -> Change {
    Change::Delete { key: key.into(), revision }
}
