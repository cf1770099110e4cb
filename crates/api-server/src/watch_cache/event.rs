//! What happened to one object, shared by all watchers of it.

use std::sync::{Arc, OnceLock};

use storage::Revision;

use super::Entry;

/// A change of one object from one state to the next.
#[derive(Debug)]
pub struct Event {
    /// Its place among all events of the resource: there is no gap, and one revision can have several.
    pub number: u64,
    pub revision: Revision,
    pub before: Option<Arc<Entry>>,
    pub after: Option<Arc<Entry>>,
    /// The state before, told at this event's revision: what a watcher is shown when the object leaves its selection.
    gone: OnceLock<Arc<Entry>>,
}

/// What a watcher is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Added => "ADDED",
            Kind::Modified => "MODIFIED",
            Kind::Deleted => "DELETED",
        }
    }
}

impl Event {
    pub fn new(number: u64, revision: Revision, before: Option<Arc<Entry>>, after: Option<Arc<Entry>>) -> Self {
        Self { number, revision, before, after, gone: OnceLock::new() }
    }

    /// What a watcher with this selection sees of the event, if anything.
    pub fn seen_by(&self, selects: impl Fn(&Entry) -> bool) -> Option<(Kind, Arc<Entry>)> {
        let before = self.before.as_ref().filter(|e| selects(e));
        let after = self.after.as_ref().filter(|e| selects(e));
        match (before, after) {
            (None, Some(after)) => Some((Kind::Added, after.clone())),
            (Some(_), Some(after)) => Some((Kind::Modified, after.clone())),
            (Some(before), None) => {
                let gone = self.gone.get_or_init(|| Arc::new(before.at(self.revision)));
                Some((Kind::Deleted, gone.clone()))
            }
            (None, None) => None,
        }
    }

    pub fn weight(&self) -> usize {
        self.after.as_ref().map_or(128, |e| e.weight())
    }
}
