//! What really happened, and what a client must have been told of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use testing::client::Client;

use super::{
    CHOSEN,
    clients::{Begins, Habit, LAST, MAPS, Seen, Stretch, Told},
};
use crate::version;

/// One change, as a watch from the beginning told it.
struct Change {
    version: u64,
    name: String,
    /// Whether the object has the label afterwards; `None` when it is gone.
    chosen: Option<bool>,
}

/// All changes in order.
pub struct Log(Vec<Change>);

impl Log {
    /// Writes down everything until the revision that `end` tells.
    pub async fn record(client: Client, from: u64, end: tokio::sync::oneshot::Receiver<u64>) -> Self {
        let mut watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion={from}")).await.expect("a watch");
        let mut log: Vec<Change> = Vec::new();
        let (mut end, mut last) = (std::pin::pin!(end), u64::MAX);
        while log.last().is_none_or(|change| change.version < last) {
            tokio::select! {
                event = watch.next() => {
                    let event = event.expect("the watch goes on");
                    let object = &event["object"];
                    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                    let chosen = (event["type"] != "DELETED").then(|| is_chosen(object));
                    log.push(Change { version: version(object), name, chosen });
                }
                known = &mut end, if last == u64::MAX => last = known.expect("the end"),
            }
        }
        assert!(log.is_sorted_by(|a, b| a.version < b.version), "every change has a revision of its own");
        Self(log)
    }

    /// What was created or changed, by its revision.
    pub fn puts(&self) -> BTreeMap<u64, String> {
        self.0.iter().filter(|c| c.chosen.is_some()).map(|c| (c.version, c.name.clone())).collect()
    }

    pub fn deletes(&self) -> usize {
        self.0.iter().filter(|c| c.chosen.is_none()).count()
    }

    /// The objects that such a client sees at a revision, with their versions.
    pub fn state(&self, habit: Habit, at: u64) -> BTreeMap<String, u64> {
        let mut state = BTreeMap::new();
        self.walk(habit, at, |_, _, told| put(&mut state, told));
        state
    }

    /// Calls `visit` for each change up to `to` that such a client sees, with the revision of the one before, its own, and
    /// what the client is told.
    fn walk(&self, habit: Habit, to: u64, mut visit: impl FnMut(u64, u64, &Told)) {
        let mut there = BTreeSet::new();
        let mut previous = 0;
        for change in self.0.iter().take_while(|change| change.version <= to) {
            let before = there.contains(&*change.name);
            let after = change.chosen.is_some_and(|chosen| habit.selects(chosen));
            let seen = match (before, after) {
                (false, false) => continue,
                (false, true) => Seen::Added,
                (true, true) => Seen::Modified,
                (true, false) => Seen::Deleted,
            };
            match after {
                true => there.insert(&*change.name),
                false => there.remove(&*change.name),
            };
            visit(previous, change.version, &(seen, change.name.clone(), change.version));
            previous = change.version;
        }
    }

    /// Was the client told all of it, once and in order?
    pub fn check(&self, habit: Habit, stretch: &Stretch) {
        match &stretch.begins {
            Begins::Resumed(from) => {
                assert_eq!(stretch.events, self.told(habit, *from, stretch.to), "from {from} to {}", stretch.to);
            }
            Begins::Listed(from, listed) => {
                assert_eq!(*listed, self.state(habit, *from), "the list at {from}");
                assert_eq!(stretch.events, self.told(habit, *from, stretch.to), "from {from} to {}", stretch.to);
            }
            Begins::Unknown => self.check_from_anywhere(habit, stretch),
        }
    }

    fn told(&self, habit: Habit, from: u64, to: u64) -> Vec<Told> {
        let mut events = Vec::new();
        self.walk(habit, to, |_, version, told| {
            if version > from {
                events.push(told.clone());
            }
        });
        events
    }

    /// A watch of "whatever there is" does not say where its first state ends and its changes begin: some revision must
    /// fit.
    fn check_from_anywhere(&self, habit: Habit, stretch: &Stretch) {
        let fits = |state: &BTreeMap<String, u64>, at: u64| {
            let Some((first, rest)) = stretch.events.split_at_checked(state.len()) else { return false };
            let first_fits =
                first.iter().all(|(seen, name, version)| *seen == Seen::Added && state.get(name) == Some(version));
            first_fits && rest == self.told(habit, at, stretch.to)
        };
        let (mut state, mut found) = (BTreeMap::new(), false);
        self.walk(habit, stretch.to, |before, _, told| {
            found = found || fits(&state, before);
            put(&mut state, told);
        });
        found = found || fits(&state, stretch.to) || self.is_part_of_a_state(stretch);
        assert!(found, "no beginning fits what was told up to {}: {:?}", stretch.to, stretch.events);
    }

    /// Broken off in the middle of the first state, there is nothing to compare it with but the objects themselves.
    fn is_part_of_a_state(&self, stretch: &Stretch) -> bool {
        let known = |name: &String, version: &u64| self.0.iter().any(|c| c.version == *version && c.name == *name);
        let whole = stretch.events.last().is_some_and(|(_, name, _)| name == LAST);
        let in_order = stretch.events.is_sorted_by(|(_, a, _), (_, b, _)| a < b);
        !whole && in_order && stretch.events.iter().all(|(seen, name, at)| *seen == Seen::Added && known(name, at))
    }
}

fn put(state: &mut BTreeMap<String, u64>, (seen, name, version): &Told) {
    match seen {
        Seen::Added | Seen::Modified => state.insert(name.clone(), *version),
        Seen::Deleted => state.remove(name),
    };
}

fn is_chosen(object: &Value) -> bool {
    object["metadata"]["labels"][CHOSEN] == "yes"
}
