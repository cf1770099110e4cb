//! How an index keeps up with the watch cache.
//!
//! An index is brought up to date when it is read: what is compared are snapshots that share all that has not changed, so
//! there is no task and no queue, and a decision knows all that the cache knows at that moment.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::watch_cache::{Entry, ResourceCache, Snapshot};

/// What is known of several resources, and up to which state of each.
pub struct Followed<I> {
    resources: Box<[Arc<ResourceCache>]>,
    state: RwLock<State<I>>,
}

struct State<I> {
    seen: Vec<Arc<Snapshot>>,
    index: I,
}

/// An index over resources that are told apart by their position.
pub trait Index: Default {
    /// The object with this key (`namespace/name` or `name`) is new or different, or is gone.
    fn apply(&mut self, resource: usize, key: &str, entry: Option<&Entry>);
}

impl<I: Index> Followed<I> {
    pub fn new(resources: impl Into<Box<[Arc<ResourceCache>]>>) -> Self {
        let resources = resources.into();
        let seen = resources.iter().map(|_| Arc::default()).collect();
        Self { resources, state: RwLock::new(State { seen, index: I::default() }) }
    }

    /// Reads the index as of now.
    pub fn read<T>(&self, read: impl FnOnce(&I) -> T) -> T {
        let state = self.state();
        if state.is_current(&self.resources) {
            return read(&state.index);
        }
        drop(state);
        self.catch_up();
        read(&self.state().index)
    }

    fn state(&self) -> RwLockReadGuard<'_, State<I>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn catch_up(&self) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let State { seen, index } = &mut *state;
        for (position, (resource, seen)) in self.resources.iter().zip(seen).enumerate() {
            let now = resource.snapshot();
            for (key, entry) in seen.changes_to(&now) {
                index.apply(position, key, entry.map(|e| &**e));
            }
            *seen = now;
        }
    }
}

impl<I> State<I> {
    fn is_current(&self, resources: &[Arc<ResourceCache>]) -> bool {
        resources.iter().zip(&self.seen).all(|(resource, seen)| resource.is_at(seen))
    }
}
