//! The work queue: which keys want work, each at most once, none by two workers at a time.
//!
//! The rules are in [`state`], without any waiting; here workers wait for their turn.

mod state;
#[cfg(test)]
mod tests;

use std::{
    fmt::Debug,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use state::{LONGEST_DELAY, State};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

pub use state::Stats;

const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Cheap to clone; all clones are one queue.
pub struct WorkQueue<Q> {
    shared: Arc<Shared<Q>>,
}

struct Shared<Q> {
    state: Mutex<State<Q>>,
    changed: Notify,
}

impl<Q> Clone for WorkQueue<Q> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<Q: Clone + Eq + Hash + Ord + Debug> Default for WorkQueue<Q> {
    fn default() -> Self {
        Self::with_longest_delay(LONGEST_DELAY)
    }
}

impl<Q: Clone + Eq + Hash + Ord + Debug> WorkQueue<Q> {
    /// A queue in which no failure delays a key for longer than this.
    pub fn with_longest_delay(longest: Duration) -> Self {
        let state = Mutex::new(State::new(Instant::now(), longest));
        Self { shared: Arc::new(Shared { state, changed: Notify::new() }) }
    }

    /// Wants work on a key. While it is being worked on, it comes again afterwards.
    pub fn add(&self, key: Q) {
        self.state().add(key, Instant::now());
        self.shared.changed.notify_one();
    }

    /// The same, but not before some time has passed. The earliest time asked for counts. Who asks for a very long time is looked
    /// at earlier: times come from people, and clocks have an end.
    pub fn add_after(&self, key: Q, delay: Duration) {
        self.state().add_at(key, Instant::now() + delay.min(LONGEST_WAIT));
        self.shared.changed.notify_one();
    }

    /// The same, later with every failure.
    pub fn add_after_failure(&self, key: Q) {
        self.state().add_after_failure(key, Instant::now());
        self.shared.changed.notify_one();
    }

    /// The key has not failed.
    pub fn forget_failures(&self, key: &Q) {
        self.state().forget_failures(key);
    }

    /// How often a key has failed since it was last forgotten.
    pub fn failures(&self, key: &Q) -> u32 {
        self.state().failures(key)
    }

    pub fn stats(&self) -> Stats {
        self.state().stats()
    }

    /// No more keys are handed out, and those who wait are told.
    pub fn shut_down(&self) {
        self.state().shut_down();
        self.shared.changed.notify_waiters();
        self.shared.changed.notify_one();
    }

    /// The next key that wants work, `None` after the shutdown. It is done when the item is dropped.
    pub async fn next(&self) -> Option<Item<Q>> {
        loop {
            let changed = self.shared.changed.notified();
            let due = {
                let mut state = self.state();
                if state.is_shut_down() {
                    // One notification wakes one worker: pass it on.
                    self.shared.changed.notify_one();
                    return None;
                }
                if let Some(key) = state.take(Instant::now()) {
                    if state.has_ready() {
                        self.shared.changed.notify_one();
                    }
                    return Some(Item { key, queue: self.clone() });
                }
                state.next_due()
            };
            match due {
                None => changed.await,
                Some(due) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(due) => {}
                },
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<Q>> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key in work.
pub struct Item<Q: Clone + Eq + Hash + Ord + Debug> {
    key: Q,
    queue: WorkQueue<Q>,
}

impl<Q: Clone + Eq + Hash + Ord + Debug> Item<Q> {
    pub fn key(&self) -> &Q {
        &self.key
    }
}

impl<Q: Clone + Eq + Hash + Ord + Debug> Drop for Item<Q> {
    fn drop(&mut self) {
        self.queue.state().done(&self.key);
        self.queue.shared.changed.notify_one();
    }
}
