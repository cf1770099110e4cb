//! The rules of the work queue, as a value: the time is told, nothing waits.
//!
//! A key is in at most one of: ready, in work, in work and wanted again. It may beside that wait for a time. First come,
//! first served. Back-off as Kubernetes' controllers have it: 5 ms doubled with every failure of the key up to 1,000 s,
//! and all failures together 10 in a second after the first 100.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::Hash,
    time::Duration,
};

use tokio::time::Instant;

const FIRST_DELAY: Duration = Duration::from_millis(5);
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(1000);
const FAILURES_AT_ONCE: u32 = 100;
const BETWEEN_FAILURES: Duration = Duration::from_millis(100);

/// Figures of a queue, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// How many keys want work now.
    pub ready: usize,
    pub in_work: usize,
    /// How many keys wait for a time.
    pub waiting: usize,
    /// How many keys have ever been made ready.
    pub added: u64,
    /// How often a key was put back after a failure.
    pub retried: u64,
}

pub(super) struct State<Q> {
    ready: VecDeque<Q>,
    /// In `ready`, or to be put there once done.
    wanted: HashSet<Q>,
    in_work: HashSet<Q>,
    waiting: BTreeSet<(Instant, Q)>,
    due: HashMap<Q, Instant>,
    failures: HashMap<Q, u32>,
    /// When the budget for failures of all keys will be full again.
    budget_full: Instant,
    longest_delay: Duration,
    shut_down: bool,
    added: u64,
    retried: u64,
}

impl<Q: Clone + Eq + Hash + Ord> State<Q> {
    pub fn new(now: Instant, longest_delay: Duration) -> Self {
        Self {
            ready: VecDeque::new(),
            wanted: HashSet::new(),
            in_work: HashSet::new(),
            waiting: BTreeSet::new(),
            due: HashMap::new(),
            failures: HashMap::new(),
            budget_full: now,
            longest_delay,
            shut_down: false,
            added: 0,
            retried: 0,
        }
    }

    pub fn add(&mut self, key: Q, now: Instant) {
        // A wait that is over by now is answered by this.
        if self.due.get(&key).is_some_and(|due| *due <= now) {
            self.stop_waiting(&key);
        }
        if self.shut_down || !self.wanted.insert(key.clone()) {
            return;
        }
        self.added += 1;
        if !self.in_work.contains(&key) {
            self.ready.push_back(key);
        }
    }

    pub fn add_at(&mut self, key: Q, due: Instant) {
        if self.shut_down || self.due.get(&key).is_some_and(|known| *known <= due) {
            return;
        }
        self.stop_waiting(&key);
        self.waiting.insert((due, key.clone()));
        self.due.insert(key, due);
    }

    pub fn add_after_failure(&mut self, key: Q, now: Instant) {
        let failures = self.failures.entry(key.clone()).or_default();
        let own = FIRST_DELAY.saturating_mul(1u32.checked_shl(*failures).unwrap_or(u32::MAX)).min(self.longest_delay);
        *failures = failures.saturating_add(1);
        self.retried += 1;
        self.budget_full = self.budget_full.max(now) + BETWEEN_FAILURES;
        let of_all = (self.budget_full - now).saturating_sub(BETWEEN_FAILURES * FAILURES_AT_ONCE);
        self.add_at(key, now + own.max(of_all));
    }

    pub fn forget_failures(&mut self, key: &Q) {
        self.failures.remove(key);
    }

    pub fn failures(&self, key: &Q) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    /// The next key, which is in work from now on.
    pub fn take(&mut self, now: Instant) -> Option<Q> {
        while let Some((due, key)) = self.waiting.first().cloned().filter(|(due, _)| *due <= now) {
            debug_assert!(self.due.get(&key) == Some(&due));
            self.stop_waiting(&key);
            self.add(key, now);
        }
        let key = self.ready.pop_front()?;
        self.wanted.remove(&key);
        self.in_work.insert(key.clone());
        Some(key)
    }

    pub fn done(&mut self, key: &Q) {
        self.in_work.remove(key);
        if self.wanted.contains(key) && !self.shut_down {
            self.ready.push_back(key.clone());
        }
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the first that waits is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting.first().map(|(due, _)| *due)
    }

    pub fn shut_down(&mut self) {
        self.shut_down = true;
        self.ready.clear();
        self.waiting.clear();
        self.due.clear();
    }

    pub fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    pub fn stats(&self) -> Stats {
        Stats {
            ready: self.ready.len(),
            in_work: self.in_work.len(),
            waiting: self.waiting.len(),
            added: self.added,
            retried: self.retried,
        }
    }

    fn stop_waiting(&mut self, key: &Q) {
        if let Some(due) = self.due.remove(key) {
            self.waiting.remove(&(due, key.clone()));
        }
    }
}
