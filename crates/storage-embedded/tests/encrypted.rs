//! Encryption over a real engine: the suite of all stores, and the rotation of keys.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use storage::{
    Change, Error, Expected, Outcome, Range, Store, Transaction, WatchEvent,
    encryption::{Cipher, Encrypted, Form, Key, Rule, Rules},
    suite::Fixture,
};
use storage_embedded::{EmbeddedStore, Options};

/// Seals below `prefix` under the first key; reads all of them, and plain text if `plain`.
fn rules(keys: &[(&str, u8)], prefix: &str, plain: bool) -> Rules {
    let keys = keys.iter().map(|(name, byte)| Key::new(Cipher::AesGcm, *name, &[*byte; 32]).expect("a valid key"));
    let forms = keys.map(Form::Sealed).chain(plain.then_some(Form::Plain)).collect();
    Rules::new(vec![Rule { prefixes: vec![prefix.to_owned()], forms }])
}

fn encrypted(inner: &Arc<dyn Store>, keys: &[(&str, u8)], prefix: &str) -> Encrypted {
    Encrypted::new(inner.clone(), rules(keys, prefix, true))
}

fn embedded() -> (Arc<dyn Store>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder for the store");
    let store = EmbeddedStore::open(Options::new(folder.path().join("store"))).expect("open");
    (Arc::new(store), folder)
}

async fn open() -> Fixture {
    let (inner, folder) = embedded();
    let store = Encrypted::new(inner, rules(&[("k1", 1)], "", false));
    Fixture::new(Arc::new(store), folder)
}

storage::suite!(layer open);

async fn put(store: &dyn Store, key: &str, value: impl Into<Bytes>) -> Result<Outcome, Error> {
    store.commit(Transaction::default().put(key, value)).await
}

async fn value(store: &dyn Store, key: &str) -> Bytes {
    store.get(key, None).await.expect("get").value.expect("exists").value
}

#[tokio::test]
async fn only_the_chosen_prefixes_are_sealed() {
    let (inner, _folder) = embedded();
    let store = encrypted(&inner, &[("k1", 1)], "/registry/secrets/");
    for key in ["/registry/secrets/default/a", "/registry/configmaps/default/a"] {
        put(&store, key, "hunter2").await.expect("put");
        assert_eq!(value(&store, key).await, "hunter2");
    }
    assert!(value(&*inner, "/registry/secrets/default/a").await.starts_with(b"k8s:enc:aesgcm:v1:k1:"));
    assert_eq!(value(&*inner, "/registry/configmaps/default/a").await, "hunter2");

    let absent = Transaction::default().require("/registry/secrets/default/a", Expected::Absent);
    match store.commit(absent).await.expect("commit") {
        Outcome::Conflict(actual) => assert_eq!(actual.value[0].as_ref().expect("exists").value, "hunter2"),
        committed => panic!("{committed:?}"),
    }
}

#[tokio::test]
async fn values_swapped_below_are_refused_everywhere() {
    let (inner, _folder) = embedded();
    let store = encrypted(&inner, &[("k1", 1)], "/");
    for (key, text) in [("/a", "mine"), ("/b", "yours")] {
        put(&store, key, text).await.expect("put");
    }
    let revision = store.current_revision().await.expect("current revision");
    let mut watch = store.watch("/", revision).await.expect("watch");
    let moved = value(&*inner, "/b").await;
    put(&*inner, "/a", moved).await.expect("put");
    put(&store, "/b", "after").await.expect("put");
    let named = |error: Error| assert!(matches!(error, Error::Unreadable { key, .. } if key == "/a"));
    named(store.get("/a", None).await.expect_err("moved"));
    named(store.range(Range::default()).await.expect_err("moved"));
    named(watch.next().await.expect("an item").expect_err("moved"));
    assert_eq!(watch.next().await, None, "the error has ended the watch");
    // The way out: delete it, unread.
    store.commit(Transaction::default().delete("/a")).await.expect("delete");
    assert_eq!(store.range(Range::default()).await.expect("range").value.items.len(), 1);
}

#[tokio::test]
async fn rewriting_lets_old_keys_and_plain_text_go() {
    let (inner, _folder) = embedded();
    for i in 0..700 {
        put(&*inner, &format!("/secrets/plain/{i:03}"), format!("{i}")).await.expect("put");
    }
    put(&*inner, "/others/a", "plain").await.expect("put");
    let first = encrypted(&inner, &[("k1", 1)], "/secrets/");
    for i in 0..700 {
        put(&first, &format!("/secrets/sealed/{i:03}"), format!("{i}")).await.expect("put");
    }

    let rotated = encrypted(&inner, &[("k2", 2), ("k1", 1)], "/secrets/");
    put(&rotated, "/secrets/new", "new").await.expect("put");
    let before = rotated.current_revision().await.expect("current revision");
    let mut watch = rotated.watch("/secrets/sealed/000", before).await.expect("watch");
    let done = rotated.rewrite("/").await.expect("rewrite");
    assert_eq!((done.seen, done.rewritten, done.unreadable), (1402, 1400, vec![]));
    assert_eq!(rotated.rewrite("/").await.expect("rewrite").rewritten, 0, "nothing is left to do");
    assert!(!rotated.has_read_stale(), "nobody has read through it");
    match watch.next().await.expect("an item").expect("an event") {
        WatchEvent::Changes { changes, .. } => assert_eq!(changes.len(), 1, "a rewrite is a write like any other"),
        progress => panic!("{progress:?}"),
    }

    let without_old = Encrypted::new(inner.clone(), rules(&[("k2", 2)], "/secrets/", false));
    let all = without_old.range(Range::prefix("/secrets/")).await.expect("range").value.items;
    assert_eq!(all.len(), 1401);
    assert_eq!(value(&without_old, "/secrets/plain/123").await, "123");
    assert_eq!(value(&without_old, "/others/a").await, "plain");

    // Encryption can be turned off again.
    let off = encrypted(&inner, &[("k2", 2)], "/nothing/");
    assert_eq!(off.rewrite("").await.expect("rewrite").rewritten, 1401);
    assert_eq!(value(&*inner, "/secrets/new").await, "new");
}

/// What is rewritten goes when it would have gone.
#[tokio::test]
async fn rewriting_keeps_the_time_of_expiry() {
    let (inner, _folder) = embedded();
    let store = encrypted(&inner, &[("k1", 1)], "/");
    let short = Transaction::default().put_with_ttl("/expires", "1", Duration::from_millis(1500)).put("/stays", "1");
    store.commit(short).await.expect("put");
    store.replace(rules(&[("k2", 2), ("k1", 1)], "/", false));
    value(&store, "/stays").await;
    assert!(store.has_read_stale());
    let after = store.rewrite("/").await.expect("rewrite");
    assert_eq!(after.rewritten, 2);
    assert!(value(&*inner, "/expires").await.starts_with(b"k8s:enc:aesgcm:v1:k2:"));
    let now = store.current_revision().await.expect("current revision");
    let mut watch = store.watch("/", now).await.expect("watch");
    match watch.next().await.expect("an item").expect("an event") {
        WatchEvent::Changes { changes, .. } => {
            assert!(matches!(&changes[..], [Change::Delete { key, .. }] if key == "/expires"), "{changes:?}");
        }
        progress => panic!("{progress:?}"),
    }
}

#[tokio::test]
async fn rewriting_reports_what_it_cannot_open() {
    let (inner, _folder) = embedded();
    let lost = encrypted(&inner, &[("lost", 9)], "/");
    put(&lost, "/a", "1").await.expect("put");
    put(&*inner, "/b", "2").await.expect("put");
    let store = encrypted(&inner, &[("k1", 1)], "/");
    let done = store.rewrite("/").await.expect("rewrite");
    assert_eq!((done.seen, done.rewritten), (2, 1));
    assert!(done.unreadable[0].to_string().contains("\"lost\""), "{:?}", done.unreadable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rewriting_undoes_nobodys_write() {
    let (inner, _folder) = embedded();
    let old = encrypted(&inner, &[("k1", 1)], "/");
    put(&old, "/counter", "0").await.expect("put");
    let counting = tokio::spawn(async move {
        for i in 1..=300 {
            put(&old, "/counter", format!("{i}")).await.expect("put");
        }
    });
    let store = encrypted(&inner, &[("k2", 2), ("k1", 1)], "/");
    while !counting.is_finished() {
        store.rewrite("/").await.expect("rewrite");
    }
    counting.await.expect("counter");
    assert_eq!(value(&store, "/counter").await, "300");
}
