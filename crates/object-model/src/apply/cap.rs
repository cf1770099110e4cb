//! A bound on the entries of updaters: the oldest are merged into one entry per version.

use std::collections::{HashMap, hash_map};

use super::managed::{Entry, Managed, Manager, Operation};
use super::set::Set;

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
    let (mut updates, mut entries): (Vec<Entry>, Vec<Entry>) = managed.entries.into_iter().partition(is_update);
    updates.sort_by_cached_key(|e| (e.time.clone(), e.sort_text()));
    let ancient = Manager { name: ANCIENT.to_owned(), operation: Operation::Update, subresource: String::new() };

    // Where the entries of a version are merged: in the bucket it has, else in its oldest entry.
    let has_bucket = updates.iter().enumerate().filter(|(_, e)| e.manager == ancient);
    let has_bucket: HashMap<String, usize> = has_bucket.map(|(place, e)| (e.api_version.clone(), place)).collect();
    let mut buckets: HashMap<String, usize> = HashMap::new();
    let mut merged: HashMap<usize, Vec<usize>> = HashMap::new();
    for (place, entry) in updates.iter().enumerate() {
        if count <= MAX_UPDATERS {
            break;
        }
        match buckets.entry(entry.api_version.clone()) {
            hash_map::Entry::Vacant(bucket) => {
                bucket.insert(has_bucket.get(&entry.api_version).copied().unwrap_or(place));
            }
            hash_map::Entry::Occupied(bucket) if *bucket.get() != place => {
                merged.entry(*bucket.get()).or_default().push(place);
                count -= 1;
            }
            hash_map::Entry::Occupied(_) => {}
        }
    }
    let mut gone = vec![false; updates.len()];
    for (bucket, places) in merged {
        let all = places.iter().chain([&bucket]).map(|place| updates[*place].fields());
        let fields = Set::union_of(all);
        let time = places.last().and_then(|newest| updates[*newest].time.clone());
        places.into_iter().for_each(|place| gone[place] = true);
        let into = &mut updates[bucket];
        into.set_fields(fields);
        into.manager = ancient.clone();
        into.time = time;
    }
    entries.extend(updates.into_iter().zip(gone).filter(|(_, gone)| !gone).map(|(entry, _)| entry));
    Managed { entries }
}
