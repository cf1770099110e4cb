//! Who watches, and what has been committed lately.
//!
//! Watches pull: the committer publishes each batch of events to one shared window, bounded by number and bytes, and wakes
//! the watches that an event concerns. A watch takes from the window what it has not seen yet. If the window has moved
//! on, it reads the missing part from disk; if that is compacted, it ends with an error. So no event is ever dropped
//! silently, and slow watches cost no memory. The window empties as soon as nobody waits for anything in it.
//!
//! Invariants: the window holds every event after `window_after` and up to `published`. A slot's `pending` is a revision
//! up to which the watch has everything; with none, it has everything up to `published`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use storage::{Change, Error, Revision, WatchEvent};
use tokio::sync::Notify;

const WINDOW_EVENTS: usize = 4096;
const WINDOW_BYTES: usize = 1 << 20;
/// What a watch takes at a time, so that slow ones do not pin the window's contents.
const TURN_EVENTS: usize = 64;

/// All changes of one revision.
#[derive(Debug)]
pub(crate) struct Event {
    revision: u64,
    changes: Vec<Change>,
    bytes: usize,
}

impl Event {
    pub(crate) fn new(revision: u64) -> Self {
        Self { revision, changes: Vec::new(), bytes: 0 }
    }

    pub(crate) fn push(&mut self, change: Change) {
        let value = if let Change::Put(kv) = &change { kv.value.len() } else { 0 };
        self.bytes += size_of::<Change>() + changed_key(&change).len() + value;
        self.changes.push(change);
    }

    fn concerns(&self, prefix: &str) -> bool {
        self.changes.iter().any(|change| changed_key(change).starts_with(prefix))
    }

    fn select(&self, prefix: &str) -> Option<WatchEvent> {
        let selected = self.changes.iter().filter(|change| changed_key(change).starts_with(prefix));
        let changes: Vec<Change> = selected.cloned().collect();
        (!changes.is_empty()).then_some(WatchEvent::Changes { revision: Revision(self.revision), changes })
    }
}

fn changed_key(change: &Change) -> &str {
    match change {
        Change::Put(kv) => &kv.key,
        Change::Delete { key, .. } => key,
    }
}

#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    published: u64,
    window: VecDeque<Arc<Event>>,
    window_bytes: usize,
    window_after: u64,
    slots: BTreeMap<u64, Slot>,
    next_slot: u64,
    end: Option<End>,
}

#[derive(Debug)]
struct Slot {
    prefix: String,
    pending: Option<u64>,
    progress: bool,
    wake: Arc<Notify>,
}

/// Why all watches end: the store was closed, or it failed.
#[derive(Clone, Debug)]
pub(crate) enum End {
    Closed,
    Failed(Error),
}

/// What a watch does next.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Wait to be woken.
    Idle,
    Deliver(Vec<WatchEvent>),
    /// Read from disk what came after the one revision and up to the other.
    CatchUp {
        after: u64,
        until: u64,
    },
    End(End),
}

impl Hub {
    pub(crate) fn new(published: u64) -> Self {
        let state = State {
            published,
            window: VecDeque::new(),
            window_bytes: 0,
            window_after: published,
            slots: BTreeMap::new(),
            next_slot: 0,
            end: None,
        };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_watched(&self) -> bool {
        !self.state().slots.is_empty()
    }

    /// A new watch that has everything up to `after`.
    pub(crate) fn join(&self, prefix: String, after: u64) -> (u64, Arc<Notify>) {
        let mut state = self.state();
        let id = state.next_slot;
        state.next_slot += 1;
        let wake = Arc::new(Notify::new());
        state.slots.insert(id, Slot { prefix, pending: Some(after), progress: false, wake: wake.clone() });
        (id, wake)
    }

    pub(crate) fn leave(&self, id: u64) {
        let mut state = self.state();
        state.slots.remove(&id);
        state.forget_what_nobody_awaits();
    }

    /// Everything up to `until` is committed; `events` are all its changes, or `None` if they were not collected because
    /// nobody watched when the batch began.
    pub(crate) fn publish(&self, events: Option<Vec<Arc<Event>>>, until: u64) {
        let mut state = self.state();
        let State { published, window, window_bytes, window_after, slots, .. } = &mut *state;
        match events {
            Some(events) => {
                for slot in slots.values_mut().filter(|slot| slot.pending.is_none()) {
                    if let Some(first) = events.iter().find(|event| event.concerns(&slot.prefix)) {
                        slot.pending = Some(first.revision - 1);
                        slot.wake.notify_one();
                    }
                }
                for event in events {
                    *window_bytes += event.bytes;
                    window.push_back(event);
                }
                while *window_bytes > WINDOW_BYTES || window.len() > WINDOW_EVENTS {
                    let Some(oldest) = window.pop_front() else { break };
                    *window_bytes -= oldest.bytes;
                    *window_after = oldest.revision;
                }
            }
            None => {
                window.clear();
                *window_bytes = 0;
                *window_after = until;
                for slot in slots.values_mut() {
                    slot.pending.get_or_insert(*published);
                    slot.wake.notify_one();
                }
            }
        }
        *published = until;
        state.forget_what_nobody_awaits();
    }

    /// The next thing to do for the watch `id`.
    pub(crate) fn turn(&self, id: u64) -> Turn {
        let mut state = self.state();
        let State { published, window, window_after, slots, end, .. } = &mut *state;
        if let Some(end) = end {
            return Turn::End(end.clone());
        }
        let Some(slot) = slots.get_mut(&id) else { return Turn::End(End::Closed) };
        let mut delivery = Vec::new();
        if let Some(after) = slot.pending.take() {
            if after < *window_after {
                return Turn::CatchUp { after, until: *published };
            }
            let start = window.partition_point(|event| event.revision <= after);
            for event in window.range(start..) {
                if delivery.len() == TURN_EVENTS {
                    slot.pending = Some(event.revision - 1);
                    return Turn::Deliver(delivery);
                }
                delivery.extend(event.select(&slot.prefix));
            }
        }
        if std::mem::take(&mut slot.progress) {
            delivery.push(WatchEvent::Progress(Revision(*published)));
        }
        state.forget_what_nobody_awaits();
        if delivery.is_empty() { Turn::Idle } else { Turn::Deliver(delivery) }
    }

    pub(crate) fn request_progress(&self) {
        for slot in self.state().slots.values_mut() {
            slot.progress = true;
            slot.wake.notify_one();
        }
    }

    /// The store is back at `current` after a failure; what was published last may be lost. So every watch looks on disk
    /// for what comes after the last that it has, and finds out.
    pub(crate) fn resume(&self, current: u64) {
        self.publish(None, current);
    }

    pub(crate) fn end(&self, end: End) {
        let mut state = self.state();
        state.end.get_or_insert(end);
        for slot in state.slots.values() {
            slot.wake.notify_one();
        }
    }
}

impl State {
    fn forget_what_nobody_awaits(&mut self) {
        if !self.window.is_empty() && self.slots.values().all(|slot| slot.pending.is_none()) {
            self.window.clear();
            self.window_bytes = 0;
            self.window_after = self.published;
        }
    }
}
