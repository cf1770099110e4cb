//! The cache of one resource: the newest state of its objects, a window of recent events, and who watches.
//!
//! One writer (the feed of [`super::WatchCache`]) applies revisions in order. Readers take a [`Snapshot`], which shares
//! structure with its successors, and never wait for the writer.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use imbl::{OrdMap, ordmap::DiffItem};
use storage::{Change, Error, Revision};

use super::{
    Entry, Event,
    entry::SelectableField,
    watcher::{QUEUE_BYTES, QUEUE_EVENTS, Queue, Watcher},
};

/// How much history is kept for watchers that come back: the first of these limits that is reached.
const WINDOW_AGE: Duration = Duration::from_secs(300);
const WINDOW_BYTES: usize = 8 << 20;

/// The state of a resource at one revision.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// By the key below the resource's prefix: `namespace/name` or `name`.
    pub objects: OrdMap<Arc<str>, Arc<Entry>>,
    /// The last revision that changed the resource.
    pub revision: Revision,
}

impl Snapshot {
    /// What became of each object that differs in `newer`, by its key. Costs as much as has changed, since the two share
    /// the rest.
    pub fn changes_to<'a>(&'a self, newer: &'a Self) -> impl Iterator<Item = (&'a Arc<str>, Option<&'a Arc<Entry>>)> {
        self.objects.diff(&newer.objects).map(|change| match change {
            DiffItem::Add(key, entry) | DiffItem::Update { new: (key, entry), .. } => (key, Some(entry)),
            DiffItem::Remove(key, _) => (key, None),
        })
    }
}

/// The watchers that an event can concern, so that it is not offered to all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    All,
    Namespace(Box<str>),
    Object {
        namespace: Box<str>,
        name: Box<str>,
    },
    /// Objects whose selectable field (by its position) has this value.
    Field {
        position: usize,
        value: Box<str>,
    },
}

pub struct ResourceCache {
    /// Ends in a slash.
    prefix: Box<str>,
    selectable: Box<[SelectableField]>,
    snapshot: ArcSwap<Snapshot>,
    hub: Mutex<Hub>,
}

#[derive(Default)]
struct Hub {
    window: VecDeque<(Instant, Arc<Event>)>,
    window_bytes: usize,
    /// Every event after this revision is in the window.
    oldest: Revision,
    /// How many events there were; the window has the last of them.
    events: u64,
    watchers: HashMap<Scope, Vec<Arc<Queue>>>,
    /// Which selectable fields have watchers, so that only those are looked up.
    indexed: Vec<usize>,
}

impl ResourceCache {
    pub fn new(prefix: &str, selectable: Box<[SelectableField]>) -> Self {
        Self { prefix: prefix.into(), selectable, snapshot: ArcSwap::default(), hub: Mutex::default() }
    }

    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Is this still the newest state?
    pub fn is_at(&self, snapshot: &Arc<Snapshot>) -> bool {
        Arc::ptr_eq(&self.snapshot.load(), snapshot)
    }

    pub fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.snapshot.load().objects.get(name).cloned()
    }

    /// The position of a selectable field by its path.
    pub fn selectable(&self, path: &str) -> Option<usize> {
        self.selectable.iter().position(|f| f.name() == path)
    }

    /// Watches from `after` (exclusive): first what the window has, then what comes.
    pub fn watch(self: &Arc<Self>, scope: Scope, after: Revision) -> Result<Watcher, Error> {
        let mut hub = self.hub();
        let queue = Arc::new(Queue::default());
        hub.refill(&queue, hub.first_after(after)?);
        hub.watchers.entry(scope.clone()).or_default().push(queue.clone());
        if let Scope::Field { position, .. } = scope
            && !hub.indexed.contains(&position)
        {
            hub.indexed.push(position);
        }
        Ok(Watcher::new(self.clone(), scope, queue, after))
    }

    /// How many watchers are told of a change of this object.
    pub fn watchers(&self, namespace: &str, name: &str) -> usize {
        let hub = self.hub();
        let of = |scope: Scope| hub.watchers.get(&scope).map_or(0, Vec::len);
        if hub.watchers.is_empty() {
            return 0;
        }
        let object = Scope::Object { namespace: namespace.into(), name: name.into() };
        of(Scope::All) + of(Scope::Namespace(namespace.into())) + of(object)
    }

    pub(super) fn unwatch(&self, scope: &Scope, queue: &Arc<Queue>) {
        let mut hub = self.hub();
        if let Some(queues) = hub.watchers.get_mut(scope) {
            queues.retain(|q| !Arc::ptr_eq(q, queue));
            if queues.is_empty() {
                hub.watchers.remove(scope);
            }
        }
    }

    /// Fills a queue from the event of this number on, if the window still has it.
    pub(super) fn refill(&self, queue: &Queue, number: u64) -> Result<(), Error> {
        let hub = self.hub();
        let first = hub.first();
        if number < first {
            return Err(Error::Compacted { requested: Revision::default(), oldest: hub.oldest });
        }
        hub.refill(queue, (number - first) as usize);
        Ok(())
    }

    /// Reads an object from its stored bytes.
    pub fn read(&self, key: &str, value: &[u8], revision: Revision) -> Result<Entry, super::Malformed> {
        let name = key.strip_prefix(&*self.prefix).unwrap_or(key);
        Entry::read(key, name, value, revision, &self.selectable)
    }

    /// Starts over from a listing. Watchers are told to list again.
    pub(super) fn reset(&self, objects: OrdMap<Arc<str>, Arc<Entry>>, revision: Revision) {
        let mut hub = self.hub();
        hub.window.clear();
        hub.window_bytes = 0;
        hub.oldest = revision;
        for queue in hub.watchers.drain().flat_map(|(_, queues)| queues) {
            queue.close(Error::Compacted { requested: Revision::default(), oldest: revision });
        }
        hub.indexed.clear();
        self.snapshot.store(Arc::new(Snapshot { objects, revision }));
    }

    /// Applies all changes of one revision to this resource. Watchers find them in their queues; who waits for them is
    /// added to `waiting`.
    pub(super) fn apply(&self, revision: Revision, changes: &[Change], waiting: &mut Vec<Waker>) {
        let mut hub = self.hub();
        let mut next = Snapshot::clone(&self.snapshot.load());
        let mut events = Vec::with_capacity(changes.len());
        for change in changes {
            let (key, after) = match change {
                Change::Put(kv) => match self.read(&kv.key, &kv.value, revision) {
                    Ok(entry) => (&kv.key, Some(Arc::new(entry))),
                    // What was there before is no longer true either.
                    Err(malformed) => {
                        tracing::error!(%malformed, "left out of the cache");
                        (&kv.key, None)
                    }
                },
                Change::Delete { key, .. } => (key, None),
            };
            let name = &key[self.prefix.len()..];
            let before = match &after {
                Some(entry) => next.objects.insert(name.into(), entry.clone()),
                None => next.objects.remove(name),
            };
            if before.is_some() || after.is_some() {
                events.push(Arc::new(Event::new(hub.number(), revision, before, after)));
            }
        }
        next.revision = revision;
        self.snapshot.store(Arc::new(next));
        for event in events {
            hub.push(event, waiting);
        }
    }

    fn hub(&self) -> MutexGuard<'_, Hub> {
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    /// The number of the next event.
    fn number(&mut self) -> u64 {
        self.events += 1;
        self.events
    }

    /// The number of the first event in the window, or of the next one to come.
    fn first(&self) -> u64 {
        self.window.front().map_or(self.events + 1, |(_, event)| event.number)
    }

    /// Where in the window the events after a revision begin.
    fn first_after(&self, revision: Revision) -> Result<usize, Error> {
        if revision < self.oldest {
            return Err(Error::Compacted { requested: revision, oldest: self.oldest });
        }
        Ok(self.window.partition_point(|(_, event)| event.revision <= revision))
    }

    /// Under the hub's lock, as pushes are, so that nothing falls between the window and the queue.
    fn refill(&self, queue: &Queue, start: usize) {
        let (mut events, mut bytes) = (VecDeque::new(), 0);
        for (_, event) in self.window.range(start.min(self.window.len())..) {
            if events.len() >= QUEUE_EVENTS || bytes >= QUEUE_BYTES {
                return queue.refill(events, Some(event.number));
            }
            bytes += event.weight();
            events.push_back(event.clone());
        }
        queue.refill(events, None);
    }

    fn push(&mut self, event: Arc<Event>, waiting: &mut Vec<Waker>) {
        let now = Instant::now();
        self.offer(&event, waiting);
        self.window_bytes += event.weight();
        self.window.push_back((now, event));
        while let Some((at, first)) = self.window.front() {
            if self.window_bytes <= WINDOW_BYTES && now.duration_since(*at) <= WINDOW_AGE {
                break;
            }
            self.window_bytes -= first.weight();
            self.oldest = first.revision;
            self.window.pop_front();
        }
    }

    /// Hands the event to every watcher whose scope it touches, once each.
    fn offer(&self, event: &Arc<Event>, waiting: &mut Vec<Waker>) {
        let Some(entry) = event.after.as_ref().or(event.before.as_ref()) else { return };
        let mut offer = |scope: &Scope| {
            let queues = self.watchers.get(scope).into_iter().flatten();
            waiting.extend(queues.filter_map(|queue| queue.push(event)));
        };
        offer(&Scope::All);
        let others = self.watchers.len() - usize::from(self.watchers.contains_key(&Scope::All));
        if others == 0 {
            return;
        }
        offer(&Scope::Namespace(entry.namespace.clone()));
        offer(&Scope::Object { namespace: entry.namespace.clone(), name: entry.name.clone() });
        for &position in &self.indexed {
            let value = |e: &Option<Arc<Entry>>| e.as_ref().and_then(|e| e.fields.get(position).cloned());
            let (before, after) = (value(&event.before), value(&event.after));
            if let Some(value) = &before
                && before != after
            {
                offer(&Scope::Field { position, value: value.clone() });
            }
            if let Some(value) = after {
                offer(&Scope::Field { position, value });
            }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
