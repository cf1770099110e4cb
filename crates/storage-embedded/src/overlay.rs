//! What is committed and not in the tables yet, in memory; it lies over the tables.
//!
//! The committer adds entries at the newest end, before they are durable: nobody reads them as long as the current
//! revision is below theirs. The applier removes the oldest ones once the tables have them. So whoever looks here first
//! and opens a snapshot of the tables afterwards misses nothing; what is in both is the same, by its revision.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    format::{Entry, Position},
    history::Sample,
};

/// How many entries are removed before others get the lock.
const REMOVED_AT_A_TIME: usize = 256;

#[derive(Debug)]
pub(crate) struct Overlay {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The tables have everything up to this revision; everything after it is here.
    base: u64,
    /// By revision.
    entries: VecDeque<Arc<Entry>>,
    /// By key; of each the oldest first.
    versions: BTreeMap<Arc<str>, VecDeque<Arc<Entry>>>,
    /// Those that expire.
    expiring: BTreeMap<(u64, Position), Arc<Entry>>,
    samples: VecDeque<Sample>,
    bytes: usize,
}

/// What the applier moves into the tables.
#[derive(Debug)]
pub(crate) struct Load {
    pub entries: Vec<Arc<Entry>>,
    pub samples: Vec<Sample>,
    /// The last revision among them.
    pub until: u64,
}

impl Overlay {
    pub(crate) fn new(base: u64) -> Self {
        Self { state: Mutex::new(State { base, ..State::default() }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store has been opened again, and the tables have everything up to `base`.
    pub(crate) fn reset(&self, base: u64) {
        *self.state() = State { base, ..State::default() };
    }

    /// Adds the newest entry.
    pub(crate) fn push(&self, entry: Arc<Entry>) {
        let mut state = self.state();
        state.bytes += entry.bytes();
        if entry.version.expiry != 0 {
            state.expiring.insert((entry.version.expiry, entry.version.position()), entry.clone());
        }
        match state.versions.get_mut(&entry.key) {
            Some(versions) => versions.push_back(entry.clone()),
            None => drop(state.versions.insert(entry.key.clone(), [entry.clone()].into())),
        }
        state.entries.push_back(entry);
    }

    pub(crate) fn push_sample(&self, sample: Sample) {
        self.state().samples.push_back(sample);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.state().bytes
    }

    pub(crate) fn base(&self) -> u64 {
        self.state().base
    }

    /// The newest version of `key` that is not newer than `revision`; and up to where the tables have everything, for
    /// when there is none here.
    pub(crate) fn find(&self, key: &str, revision: u64) -> (Option<Arc<Entry>>, u64) {
        let state = self.state();
        (state.versions.get(key).and_then(|versions| newest_at(versions, revision)).cloned(), state.base)
    }

    /// Of the keys with `prefix` that come after `after`, the newest version not newer than `revision`, in order.
    pub(crate) fn range(&self, prefix: &str, after: Option<&str>, revision: u64) -> Vec<Arc<Entry>> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let state = self.state();
        let keys = state.versions.range::<str, _>((start, Bound::Unbounded));
        let keys = keys.take_while(|(key, _)| key.starts_with(prefix));
        keys.filter_map(|(_, versions)| newest_at(versions, revision)).cloned().collect()
    }

    /// The entries after `after` and up to `until`, of about `enough` bytes but whole revisions; and the revision up to
    /// which the tables have everything. What comes after that is here.
    pub(crate) fn entries(&self, after: u64, until: u64, enough: usize) -> (Vec<Arc<Entry>>, u64) {
        let state = self.state();
        let start = state.entries.partition_point(|entry| entry.version.revision <= after.max(state.base));
        let entries = state.entries.range(start..).take_while(|entry| entry.version.revision <= until);
        (take_enough(entries, enough), state.base)
    }

    /// The oldest entries that are not newer than `current`, of about `enough` bytes.
    pub(crate) fn load(&self, current: u64, enough: usize) -> Load {
        let state = self.state();
        let entries = take_enough(state.entries.iter().take_while(|entry| entry.version.revision <= current), enough);
        let until = entries.last().map_or(state.base, |entry| entry.version.revision);
        let samples = state.samples.iter().take_while(|sample| sample.revision <= until).copied().collect();
        Load { entries, samples, until }
    }

    /// The tables have what was loaded.
    pub(crate) fn unload(&self, load: Load) {
        let until = load.until;
        drop(load);
        {
            let mut state = self.state();
            state.base = until;
            let samples = state.samples.partition_point(|sample| sample.revision <= until);
            state.samples.drain(..samples);
        }
        let mut removed = Vec::with_capacity(REMOVED_AT_A_TIME);
        loop {
            let mut state = self.state();
            while removed.len() < REMOVED_AT_A_TIME
                && let Some(entry) = state.entries.pop_front_if(|entry| entry.version.revision <= until)
            {
                state.forget(&entry);
                removed.push(entry);
            }
            if state.entries.is_empty() {
                *state = State { base: state.base, ..State::default() };
            }
            drop(state);
            if removed.is_empty() {
                return;
            }
            removed.clear();
        }
    }

    /// The versions whose time has come at `now`, and when the next one's comes.
    pub(crate) fn expiring(&self, now: u64) -> (Vec<Arc<Entry>>, Option<u64>) {
        let state = self.state();
        let next = state.expiring.range((now + 1, (0, 0))..).next().map(|((expiry, _), _)| *expiry);
        (state.expiring.range(..(now + 1, (0, 0))).map(|(_, entry)| entry.clone()).collect(), next)
    }
}

impl State {
    fn forget(&mut self, entry: &Entry) {
        self.bytes -= entry.bytes();
        if entry.version.expiry != 0 {
            self.expiring.remove(&(entry.version.expiry, entry.version.position()));
        }
        if let Some(versions) = self.versions.get_mut(&entry.key) {
            versions.pop_front();
            if versions.is_empty() {
                self.versions.remove(&entry.key);
            }
        }
    }
}

fn newest_at(versions: &VecDeque<Arc<Entry>>, revision: u64) -> Option<&Arc<Entry>> {
    versions.iter().rev().find(|entry| entry.version.revision <= revision)
}

/// From the front whole revisions, until they have `enough` bytes.
fn take_enough<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>, enough: usize) -> Vec<Arc<Entry>> {
    let mut taken: Vec<Arc<Entry>> = Vec::new();
    let mut bytes = 0;
    for entry in entries {
        if bytes >= enough && taken.last().is_some_and(|last| last.version.revision != entry.version.revision) {
            break;
        }
        bytes += entry.bytes();
        taken.push(entry.clone());
    }
    taken
}
