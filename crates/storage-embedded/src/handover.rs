//! What the committer and the applier tell each other.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

#[derive(Debug, Default)]
pub(crate) struct Handover {
    state: Mutex<State>,
    to_applier: Condvar,
    to_committer: Condvar,
    /// The committer waits for the applier.
    awaited: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Since when there is something that is not settled: in the tables, durable, and quick to recover after a crash.
    since: Option<Instant>,
    hurry: Option<Hurry>,
    requests: Vec<Settling>,
    stop: Option<Stop>,
    applier_sleeps: bool,
    applier_failed: bool,
}

/// Somebody waits until the tables have everything up to `until` and are swept up to `oldest`.
#[derive(Debug)]
pub(crate) struct Settling {
    pub until: u64,
    pub oldest: u64,
    pub done: oneshot::Sender<()>,
}

/// Why the applier should not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hurry {
    /// The overlay is large.
    Overlay,
    /// A file of the log is to be used again: what it holds must be durable in the tables.
    Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Having settled.
    Clean,
    /// As it is: the committer has failed.
    Now,
}

/// What the applier does next.
#[derive(Debug)]
pub(crate) enum Order {
    /// Move some entries into the tables.
    Load(Hurry),
    /// Move all there are, and tell those who wait for it.
    Settle(Vec<Settling>),
    Sweep,
    Stop(Stop),
}

impl Handover {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has been opened (again).
    pub(crate) fn reset(&self) {
        *self.state() = State::default();
    }

    /// There is more to apply.
    pub(crate) fn committed(&self, hurry: Option<Hurry>) {
        let mut state = self.state();
        let wake = state.applier_sleeps && (hurry.is_some() || state.since.is_none());
        state.since.get_or_insert_with(Instant::now);
        state.hurry = state.hurry.max(hurry);
        drop(state);
        if wake {
            self.to_applier.notify_one();
        }
    }

    /// The tables have changed and are not settled.
    pub(crate) fn unsettled(&self) {
        self.state().since.get_or_insert_with(Instant::now);
    }

    /// There is more to sweep.
    pub(crate) fn wake_applier(&self) {
        // Taken so that the applier is either asleep or will look again.
        drop(self.state());
        self.to_applier.notify_one();
    }

    pub(crate) fn settle(&self, request: Settling) {
        let mut state = self.state();
        // Dropping the request says that the store is down.
        if state.stop.is_none() && !state.applier_failed {
            state.requests.push(request);
        }
        drop(state);
        self.to_applier.notify_one();
    }

    pub(crate) fn stop(&self, stop: Stop) {
        let mut state = self.state();
        state.stop = Some(stop);
        state.requests.clear();
        drop(state);
        self.to_applier.notify_one();
    }

    /// What the applier shall do; it sleeps until there is something. `may_sweep` says whether that would be possible.
    pub(crate) fn next(&self, delay: Duration, may_sweep: impl Fn() -> bool) -> Order {
        let mut state = self.state();
        loop {
            if let Some(stop) = state.stop {
                return Order::Stop(stop);
            }
            let due = state.since.map(|since| (since + delay).saturating_duration_since(Instant::now()));
            if due.is_some_and(|due| due.is_zero()) || !state.requests.is_empty() {
                (state.since, state.hurry) = (None, None);
                return Order::Settle(std::mem::take(&mut state.requests));
            }
            if let Some(hurry) = state.hurry.take() {
                return Order::Load(hurry);
            }
            if may_sweep() {
                return Order::Sweep;
            }
            state.applier_sleeps = true;
            state = match due {
                Some(due) => self.to_applier.wait_timeout(state, due).unwrap_or_else(PoisonError::into_inner).0,
                None => self.to_applier.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.applier_sleeps = false;
        }
    }

    /// The overlay is smaller, or the log may be used again.
    pub(crate) fn made_room(&self) {
        drop(self.state());
        self.to_committer.notify_one();
    }

    pub(crate) fn applier_failed(&self) {
        let mut state = self.state();
        state.applier_failed = true;
        state.requests.clear();
        drop(state);
        self.to_committer.notify_one();
    }

    pub(crate) fn has_applier_failed(&self) -> bool {
        self.state().applier_failed
    }

    /// Keeps the committer waiting while something has no room and the applier works.
    pub(crate) fn wait_for_room(&self, is_full: impl Fn() -> Option<Hurry>) {
        let mut state = self.state();
        while !state.applier_failed
            && let Some(full) = is_full()
        {
            self.awaited.store(true, Ordering::Relaxed);
            state.hurry = state.hurry.max(Some(full));
            self.to_applier.notify_one();
            state = self.to_committer.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.awaited.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }
}
