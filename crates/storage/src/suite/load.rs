//! Many keys and many writers.

use std::{collections::HashSet, sync::Arc};

use super::{committed, in_time, put, value};
use crate::{Expected, Outcome, Range, Store, Transaction};

pub async fn concurrent_counters_lose_no_update(store: Arc<dyn Store>) {
    const WRITERS: u32 = 8;
    const INCREMENTS: u32 = 25;
    let tasks: Vec<_> = (0..WRITERS)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut revisions = Vec::new();
                for _ in 0..INCREMENTS {
                    let mut current = store.get("/counter", None).await.expect("get").value;
                    revisions.push(loop {
                        let (count, expected) = match &current {
                            Some(kv) => {
                                let text = std::str::from_utf8(&kv.value).expect("text");
                                (text.parse::<u32>().expect("a number"), Expected::ModRevision(kv.mod_revision))
                            }
                            None => (0, Expected::Absent),
                        };
                        let attempt = put("/counter", &format!("{}", count + 1)).require("/counter", expected);
                        match store.commit(attempt).await.expect("commit") {
                            Outcome::Committed(revision) => break revision,
                            Outcome::Conflict(actual) => current = actual.value.into_iter().next().flatten(),
                        }
                    });
                }
                revisions
            })
        })
        .collect();
    let mut revisions = HashSet::new();
    for task in tasks {
        for revision in in_time("the counters", task).await.expect("task") {
            assert!(revisions.insert(revision), "two writers were given {revision}");
        }
    }
    let total = WRITERS * INCREMENTS;
    assert_eq!(value(&*store, "/counter", None).await, Some(total.to_string()));
    assert_eq!(revisions.len(), total as usize);
}

pub async fn acknowledged_writes_are_seen_by_every_later_read(store: Arc<dyn Store>) {
    let tasks: Vec<_> = (0..8)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let key = format!("/seen/{writer}");
                for i in 0..40 {
                    let transaction = put(&key, &format!("{i}"));
                    let transaction = if i % 2 == 0 { transaction.relaxed() } else { transaction };
                    let revision = committed(&*store, transaction).await;
                    let found = store.get(&key, None).await.expect("get");
                    assert!(found.revision >= revision);
                    assert_eq!(found.value.map(|kv| kv.mod_revision), Some(revision));
                    let page = store.range(Range::prefix(key.clone())).await.expect("range");
                    assert!(page.revision >= revision);
                    assert_eq!(page.value.items[0].mod_revision, revision);
                    assert!(store.current_revision().await.expect("current revision") >= revision);
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("the writers", task).await.expect("task");
    }
}

pub async fn a_hundred_thousand_keys_are_listed_completely(store: Arc<dyn Store>) {
    const KEYS: usize = 100_000;
    const WRITERS: usize = 10;
    const BATCH: usize = 100;
    let key = |i: usize| format!("/many/{i:06}");
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for batch in (writer * KEYS / WRITERS..(writer + 1) * KEYS / WRITERS).step_by(BATCH) {
                    let puts =
                        (batch..batch + BATCH).fold(Transaction::default(), |t, i| t.put(key(i), format!("{i}")));
                    committed(&*store, puts).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("writer");
    }
    committed(&*store, put("/many", "before").put("/manz", "behind")).await;

    let mut range = Range { limit: Some(3_000), ..Range::prefix("/many/") };
    let mut listed = 0;
    loop {
        let page = in_time("a page", store.range(range.clone())).await.expect("range");
        for kv in &page.value.items {
            assert_eq!(kv.key, key(listed));
            assert_eq!(kv.value, format!("{listed}"));
            listed += 1;
        }
        assert_eq!(page.value.remaining, (KEYS - listed) as u64);
        if page.value.remaining == 0 {
            break;
        }
        range.revision = Some(page.revision);
        range.after = page.value.items.last().map(|kv| kv.key.clone());
    }
    assert_eq!(listed, KEYS);
    let one = store.range(Range { limit: Some(1), ..Range::prefix("/many/") }).await.expect("range").value;
    assert_eq!((one.items.len(), one.remaining), (1, KEYS as u64 - 1));
}
