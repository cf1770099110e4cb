use std::task::{Context, Poll};

use serde_json::Value;
use storage::KeyValue;

use super::*;

const PREFIX: &str = "/registry/core/pods/";

fn cache() -> Arc<ResourceCache> {
    let node = |pod: &Value| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
    let selectable = [SelectableField::Read { name: "spec.nodeName", read: node }];
    Arc::new(ResourceCache::new(PREFIX, selectable.into()))
}

fn put(revision: u64, name: &str, node: &str, size: usize) -> Change {
    let pad = "x".repeat(size);
    let value = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}},"pad":"{pad}","spec":{{"nodeName":"{node}"}}}}"#
    );
    let (key, revision) = (format!("{PREFIX}default/{name}"), Revision(revision));
    Change::Put(KeyValue { key, value: value.into(), create_revision: revision, mod_revision: revision })
}

/// Applies changes as one revision; returns how many watchers waited for it.
fn apply(cache: &ResourceCache, revision: u64, changes: &[Change]) -> usize {
    let mut waiting = Vec::new();
    cache.apply(Revision(revision), changes, &mut waiting);
    waiting.len()
}

fn on_node(name: &str) -> Scope {
    Scope::Field { position: 0, value: name.into() }
}

fn wait(watcher: &Watcher) -> Poll<()> {
    watcher.poll_filled(&mut Context::from_waker(Waker::noop()))
}

/// Everything that is there, as names and revisions.
fn take(watcher: &mut Watcher) -> Vec<(String, u64)> {
    let mut seen = Vec::new();
    while let Some(event) = watcher.take().expect("the window has it") {
        let entry = event.after.as_ref().or(event.before.as_ref()).expect("a state");
        seen.push((entry.name.to_string(), event.revision.0));
    }
    seen
}

#[test]
fn an_event_concerns_its_own_watchers_only() {
    let cache = cache();
    let nodes: Vec<_> = (0..1000)
        .map(|i| cache.watch(on_node(&format!("n{i}")), Revision(0)).expect("a watch"))
        .inspect(|watcher| assert!(wait(watcher).is_pending()))
        .collect();
    let scopes = [
        Scope::Namespace("default".into()),
        Scope::Namespace("other".into()),
        Scope::Object { namespace: "default".into(), name: "a".into() },
        Scope::Object { namespace: "default".into(), name: "b".into() },
    ];
    let others = scopes.map(|scope| cache.watch(scope, Revision(0)).expect("a watch"));
    others.iter().for_each(|watcher| assert!(wait(watcher).is_pending()));
    assert_eq!(apply(&cache, 1, &[put(1, "a", "n7", 0)]), 3, "its node, its namespace, itself");
    assert!(wait(&nodes[7]).is_ready() && wait(&nodes[8]).is_pending());
    // It moves: both nodes see that.
    assert_eq!(apply(&cache, 2, &[put(2, "a", "n8", 0)]), 1, "the others have something to read already");
    assert!(wait(&nodes[8]).is_ready());
    drop((nodes, others));
    assert!(cache.hub().watchers.is_empty());
}

#[test]
fn a_full_queue_goes_on_from_the_window() {
    let cache = cache();
    let mut slow = cache.watch(Scope::All, Revision(0)).expect("a watch");
    let mut narrow = cache.watch(on_node("n1"), Revision(0)).expect("a watch");
    // Two objects in each revision; the watcher stops reading between two of one revision.
    let both = |revision| [put(revision, "a", "n0", 0), put(revision, "b", "n1", 0)];
    apply(&cache, 1, &both(1));
    let first = slow.take().expect("the window has it").expect("an event");
    assert_eq!(first.revision, Revision(1));
    let last = 2 * QUEUE_EVENTS as u64;
    for revision in 2..=last {
        apply(&cache, revision, &both(revision));
    }
    assert!(slow.queue.events_waiting() <= QUEUE_EVENTS);
    let pairs = (1..=last).flat_map(|revision| [("a".to_owned(), revision), ("b".to_owned(), revision)]);
    assert_eq!(take(&mut slow), pairs.skip(1).collect::<Vec<_>>(), "nothing is missed, repeated or reordered");
    // What comes from the window is not selected by scope: the watcher's selection does that.
    let own: Vec<_> = take(&mut narrow).into_iter().filter(|(name, _)| name == "b").collect();
    assert_eq!(own, (1..=last).map(|revision| ("b".to_owned(), revision)).collect::<Vec<_>>());
}

#[test]
fn a_slow_watcher_pins_little_and_is_told() {
    let cache = cache();
    let mut slow = cache.watch(Scope::All, Revision(0)).expect("a watch");
    let size = 100 << 10;
    let fits = QUEUE_BYTES / size + 2;
    for revision in 1..=fits as u64 {
        apply(&cache, revision, &[put(revision, "a", "n", size)]);
        assert!(slow.queue.events_waiting() < fits, "large events count for what they weigh");
    }
    assert_eq!(take(&mut slow).len(), fits, "the window still has them");
    for revision in 100..100 + 2 * (WINDOW_BYTES / size) as u64 {
        apply(&cache, revision, &[put(revision, "a", "n", size)]);
    }
    assert!(cache.hub().window_bytes <= WINDOW_BYTES);
    assert!(matches!(slow.take(), Err(Error::Compacted { .. })));
    assert!(matches!(cache.watch(Scope::All, Revision(fits as u64)), Err(Error::Compacted { .. })));
}

#[test]
fn a_quiet_watcher_survives_a_burst() {
    let cache = cache();
    let mut quiet = cache.watch(on_node("n1"), Revision(0)).expect("a watch");
    // The window moves on by what does not concern it.
    let size = 100 << 10;
    for revision in 1..=2 * (WINDOW_BYTES / size) as u64 {
        apply(&cache, revision, &[put(revision, "a", "n0", size)]);
    }
    assert!(cache.hub().oldest > Revision(0));
    let burst = 1000..1000 + QUEUE_EVENTS as u64 + 10;
    for revision in burst.clone() {
        apply(&cache, revision, &[put(revision, "b", "n1", 0)]);
    }
    assert_eq!(take(&mut quiet), burst.map(|revision| ("b".to_owned(), revision)).collect::<Vec<_>>());
}

/// What the cache holds can be read as a value; an object that could not be is none, and no empty one.
#[test]
fn what_nobody_could_read_is_no_entry() {
    let read = |levels: usize| {
        let spec = format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        let stored = format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a]\"}}[["}},"spec":{spec}}}"#);
        Entry::read("/registry/core/pods/a", "a", stored.as_bytes(), Revision(1), &[])
    };
    let deepest = read(object_model::codec::MAX_DEPTH).expect("an object");
    assert!(deepest.object("Pod")["spec"].is_array());
    assert!(read(object_model::codec::MAX_DEPTH + 1).is_err());
    assert!(read(200).is_err());
}

/// Nor does its name stand for what it was before.
#[test]
fn what_nobody_can_read_any_more_is_gone() {
    let cache = cache();
    let mut watcher = cache.watch(Scope::All, Revision(0)).expect("a watch");
    apply(&cache, 1, &[put(1, "a", "n", 0)]);
    let Change::Put(mut unreadable) = put(2, "a", "n", 0) else { unreachable!("it is put") };
    unreadable.value = "{".into();
    apply(&cache, 2, &[Change::Put(unreadable)]);
    assert!(cache.get("default/a").is_none());
    let events: Vec<_> = std::iter::from_fn(|| watcher.take().expect("the window has it")).collect();
    assert!(events.len() == 2 && events[1].before.is_some() && events[1].after.is_none());
}
