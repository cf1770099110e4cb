//! One watch of one client: a bounded queue that the cache fills and the connection drains.
//!
//! A queue that overflows is emptied, and remembers the first event that it had; its watcher then continues with that from
//! the cache's window. Only when the window has moved on as well does the watcher end, with `Compacted`: no event is ever
//! skipped.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use storage::{Error, Revision};

use super::{Event, ResourceCache, Scope};

/// How many events wait in a queue at the most, and how much they weigh: what waits is kept in memory for as long as the
/// client does not read, whatever the window does.
pub(super) const QUEUE_EVENTS: usize = 1024;
pub(super) const QUEUE_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The number of the event from which on all are in the window only. Until it is filled again, nothing is added.
    overflowed: Option<u64>,
    closed: Option<Error>,
    /// Who waits for the next event.
    waiting: Option<Waker>,
}

impl Queue {
    /// Returns who waits for it. Waking them is left to the caller, who may have more for them.
    #[must_use]
    pub(super) fn push(&self, event: &Arc<Event>) -> Option<Waker> {
        let mut state = self.lock();
        if state.overflowed.is_some() {
            return None;
        }
        if state.events.len() >= QUEUE_EVENTS || state.bytes >= QUEUE_BYTES {
            let waited = std::mem::take(&mut state.events);
            state.bytes = 0;
            state.overflowed = Some(waited.front().map_or(event.number, |first| first.number));
        } else {
            state.bytes += event.weight();
            state.events.push_back(event.clone());
        }
        state.waiting.take()
    }

    /// Replaces what waits; what is left in the window begins with the event of number `rest`.
    pub(super) fn refill(&self, events: VecDeque<Arc<Event>>, rest: Option<u64>) {
        let mut state = self.lock();
        state.bytes = events.iter().map(|event| event.weight()).sum();
        state.events = events;
        state.overflowed = rest;
    }

    pub(super) fn close(&self, error: Error) {
        let mut state = self.lock();
        state.closed = Some(error);
        let waiting = state.waiting.take();
        drop(state);
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    #[cfg(test)]
    pub(super) fn events_waiting(&self) -> usize {
        self.lock().events.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of one scope of one resource, in order and without a gap. Dropping it ends the watch.
pub struct Watcher {
    cache: Arc<ResourceCache>,
    scope: Scope,
    pub(super) queue: Arc<Queue>,
    /// Everything up to here has been taken.
    seen: Revision,
}

impl Watcher {
    pub(super) fn new(cache: Arc<ResourceCache>, scope: Scope, queue: Arc<Queue>, seen: Revision) -> Self {
        Self { cache, scope, queue, seen }
    }

    /// The revision of the last event that was taken, or where the watch began.
    pub fn seen(&self) -> Revision {
        self.seen
    }

    /// The next event that touches the scope. Cancel safe.
    pub async fn next(&mut self) -> Result<Arc<Event>, Error> {
        loop {
            if let Some(event) = self.take()? {
                return Ok(event);
            }
            std::future::poll_fn(|cx| self.poll_filled(cx)).await;
        }
    }

    /// Ready when [`Watcher::take`] has something to say.
    pub fn poll_filled(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.queue.lock();
        if !state.events.is_empty() || state.overflowed.is_some() || state.closed.is_some() {
            return Poll::Ready(());
        }
        state.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The next event, if one is there already.
    pub fn take(&mut self) -> Result<Option<Arc<Event>>, Error> {
        loop {
            let mut state = self.queue.lock();
            if let Some(event) = state.events.pop_front() {
                state.bytes = state.bytes.saturating_sub(event.weight());
                drop(state);
                self.seen = event.revision;
                return Ok(Some(event));
            }
            if let Some(error) = &state.closed {
                return Err(error.clone());
            }
            let Some(rest) = state.overflowed else { return Ok(None) };
            drop(state);
            self.cache.refill(&self.queue, rest)?;
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.cache.unwatch(&self.scope, &self.queue);
    }
}
