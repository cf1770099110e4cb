//! What becomes of events that come again and again, with client-go's numbers.
//!
//! The same again is counted on the event that was written first. From the tenth on, events that differ in their message
//! only, none more than ten minutes after the one before, are combined in one. Of one component about one object at
//! most 25 of a type are written at once and one more every five minutes; the rest is left out.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

#[cfg(test)]
mod tests;

const SIMILAR: usize = 10;
const SIMILAR_WITHIN: f64 = 600.0;
const AT_ONCE: f64 = 25.0;
const SECONDS_BETWEEN: f64 = 300.0;
/// How many of each are remembered.
const REMEMBERED: usize = 4096;

/// An event to write.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub event: Event,
    /// Whether it has been written before, and only its count has gone up.
    pub again: bool,
}

#[derive(Default)]
pub(super) struct Correlator {
    similar: Recent<Similar>,
    same: Recent<Same>,
    budgets: Recent<Budget>,
}

struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

struct Same {
    name: Option<String>,
    first: Option<Time>,
    count: i32,
}

struct Budget {
    left: f64,
    at: Timestamp,
}

impl Correlator {
    /// What to write for an event, if anything.
    pub fn correlate(&mut self, mut event: Event, now: Timestamp) -> Option<Written> {
        let message = event.message.clone().unwrap_or_default();
        let about = key(&event);
        let by_reason = format!("{about}{}", event.reason.as_deref().unwrap_or_default());
        let field = event.involved_object.field_path.clone().unwrap_or_default();
        let combined = self.is_combined(&by_reason, &message, now);
        let same_as = if combined { by_reason } else { format!("{by_reason}\0{field}\0{message}") };
        if combined {
            event.message = Some(format!("(combined from similar events): {message}"));
        }
        let same = self.same.entry(same_as, || Same {
            name: event.metadata.name.clone(),
            first: event.first_timestamp.clone(),
            count: 0,
        });
        same.count = same.count.saturating_add(1);
        event.metadata.name.clone_from(&same.name);
        event.first_timestamp.clone_from(&same.first);
        event.count = Some(same.count);
        let again = same.count > 1;
        self.may_be_written(about, now).then_some(Written { event, again })
    }

    fn is_combined(&mut self, by_reason: &str, message: &str, now: Timestamp) -> bool {
        let similar = self.similar.entry(by_reason.to_owned(), || Similar { messages: BTreeSet::new(), last: now });
        if seconds_between(similar.last, now) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(message.to_owned());
        if similar.messages.len() < SIMILAR {
            return false;
        }
        similar.messages.pop_first();
        true
    }

    fn may_be_written(&mut self, about: String, now: Timestamp) -> bool {
        let budget = self.budgets.entry(about, || Budget { left: AT_ONCE, at: now });
        budget.left = (budget.left + seconds_between(budget.at, now) / SECONDS_BETWEEN).min(AT_ONCE);
        budget.at = now;
        let may = budget.left >= 1.0;
        if may {
            budget.left -= 1.0;
        }
        may
    }
}

/// Who says something of which type about what.
fn key(event: &Event) -> String {
    let ObjectReference { kind, namespace, name, uid, api_version, .. } = &event.involved_object;
    let component = event.source.as_ref().and_then(|source| source.component.clone());
    let parts = [&component, kind, namespace, name, uid, api_version, &event.type_];
    parts.map(|part| part.as_deref().unwrap_or_default()).join("\0") + "\0"
}

fn seconds_between(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

/// A map that remembers what was used last.
struct Recent<V> {
    entries: HashMap<String, (u64, V)>,
    uses: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), uses: 0 }
    }
}

impl<V> Recent<V> {
    fn entry(&mut self, key: String, new: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        if self.entries.len() >= REMEMBERED && !self.entries.contains_key(&key) {
            // Half at a time: a pass over all for every new entry would be too many.
            let mut uses: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
            let (_, middle, _) = uses.select_nth_unstable(REMEMBERED / 2);
            let middle = *middle;
            self.entries.retain(|_, (used, _)| *used > middle);
        }
        let entry = self.entries.entry(key).or_insert_with(|| (0, new()));
        entry.0 = self.uses;
        &mut entry.1
    }
}
