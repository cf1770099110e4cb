//! Transactions that wait for the committer. It is woken when it has nothing else to do, or when as many have come as it
//! is gathering, not for each of them.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use storage::{Operation, Outcome, Transaction};
use tokio::sync::oneshot;

/// A valid transaction, and who waits for its outcome.
pub(crate) type Waiting = (Transaction, oneshot::Sender<Outcome>);

/// How much is taken at a time.
const BATCH_TRANSACTIONS: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// The committer sleeps until so many wait; zero if it does not sleep.
    wanted: usize,
    /// It shall look up, whatever it does.
    interrupted: bool,
    closing: bool,
    ended: bool,
}

/// Who is worth waiting for, once somebody has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gather {
    pub writers: usize,
    pub at_most: Duration,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whether anybody will look at it.
    pub(crate) fn push(&self, waiting: Waiting) -> bool {
        let mut state = self.state();
        if state.ended {
            return false;
        }
        state.waiting.push_back(waiting);
        let wake = state.wanted != 0 && state.waiting.len() >= state.wanted;
        if wake {
            state.wanted = 0;
        }
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        true
    }

    pub(crate) fn interrupt(&self) {
        self.state().interrupted = true;
        self.arrived.notify_one();
    }

    pub(crate) fn close(&self) {
        self.state().closing = true;
        self.arrived.notify_one();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.state().closing
    }

    /// Nobody will answer any more.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.ended = true;
        state.waiting.clear();
    }

    /// Waits for at most `pause` (forever if there is none), then takes what is there.
    pub(crate) fn take(&self, pause: Option<Duration>, gather: Gather) -> Vec<Waiting> {
        let mut state = self.state();
        if state.waiting.is_empty() {
            state = self.sleep(state, 1, pause);
        }
        if !state.waiting.is_empty() && state.waiting.len() < gather.writers {
            state = self.sleep(state, gather.writers, Some(gather.at_most));
        }
        state.interrupted = false;
        let mut bytes = 0;
        let mut batch = Vec::with_capacity(state.waiting.len().min(BATCH_TRANSACTIONS));
        while batch.len() < BATCH_TRANSACTIONS
            && bytes < BATCH_BYTES
            && let Some(next) = state.waiting.pop_front()
        {
            bytes += next.0.operations.iter().map(operation_bytes).sum::<usize>();
            batch.push(next);
        }
        batch
    }

    fn sleep<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wanted: usize,
        pause: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let until = pause.map(|pause| Instant::now() + pause);
        state.wanted = wanted;
        while state.waiting.len() < wanted && !state.interrupted && !state.closing {
            let Some(until) = until else {
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                break;
            }
            state = self.arrived.wait_timeout(state, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.wanted = 0;
        state
    }
}

fn operation_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Put { key, value, .. } => key.len() + value.len(),
        Operation::Delete { key } => key.len(),
    }
}
