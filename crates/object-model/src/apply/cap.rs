//! A bound on the entries of updaters: the oldest are merged into one entry per version.

use super::managed::{Entry, Managed, Manager, Operation};

/// So many entries of updates an object keeps.
const MAX_UPDATERS: usize = 10;
/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

pub(super) fn cap_updaters(managed: Managed) -> Managed {
    let is_update = |entry: &Entry| entry.manager.operation == Operation::Update;
    let mut count = managed.entries.iter().filter(|e| is_update(e)).count();
    if count <= MAX_UPDATERS {
        return managed;
    }
    let (updates, mut entries): (Vec<Entry>, Vec<Entry>) = managed.entries.into_iter().partition(is_update);
    let mut updates: Vec<Option<Entry>> = updates.into_iter().map(Some).collect();
    updates.sort_by_cached_key(|e| e.as_ref().map(|e| (e.time.clone(), e.sort_text())));

    // Where the entries of a version are merged: in the bucket it has, else in its oldest entry.
    let mut buckets: Vec<(String, usize)> = Vec::new();
    for place in 0..updates.len() {
        if count <= MAX_UPDATERS {
            break;
        }
        let Some(version) = updates[place].as_ref().map(|e| e.api_version.clone()) else { continue };
        let ancient = Manager { name: ANCIENT.to_owned(), operation: Operation::Update, subresource: String::new() };
        let Some((_, bucket)) = buckets.iter().find(|(of, _)| *of == version) else {
            let existing = updates.iter().position(|e| e.as_ref().is_some_and(|e| e.is_of(&ancient, &version)));
            buckets.push((version, existing.unwrap_or(place)));
            continue;
        };
        let bucket = *bucket;
        if bucket == place {
            continue;
        }
        if let (Some(newer), Some(into)) = (updates[place].take(), updates[bucket].as_mut()) {
            into.set_fields(newer.fields().union(into.fields()));
            into.manager = ancient;
            into.time = newer.time;
            count -= 1;
        }
    }
    entries.extend(updates.into_iter().flatten());
    Managed { entries }
}
