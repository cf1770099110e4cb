//! How many seats a request is worth.
//!
//! Kubernetes' numbers: a seat for every hundred objects of a list, and for every ten watchers that a write wakes, for
//! five milliseconds after it. A list here costs what it returns, so one with a limit counts up to that.

use std::time::Duration;

use super::{level::Level, queue_set::Work};
use crate::{catalogue::Served, options::ListOptions, request_info::RequestInfo};

const OBJECTS_PER_SEAT: usize = 100;
const WATCHERS_PER_SEAT: usize = 10;
const EVENT_TAKES: Duration = Duration::from_millis(5);
const WIDEST_LIST: u32 = 100;
const WIDEST_WRITE: u32 = 10;

/// The guess for a request to a resource that is served.
pub fn estimate(served: &Served, info: &RequestInfo, query: &str, level: &Level) -> Work {
    let found = || info.is_resource.then(|| served.find(&info.group, &info.version, &info.resource)).flatten();
    match info.verb {
        "list" | "watch" if info.name.is_empty() => {
            let Some(resource) = found() else { return Work::of(1) };
            // A refusal for what is wrong with the options is cheap.
            let Ok(options) = ListOptions::read(query) else { return Work::of(1) };
            let told = options.send_initial_events.unwrap_or(matches!(options.resource_version.as_str(), "" | "0"));
            if info.verb == "watch" && !told {
                return Work::of(1);
            }
            let stored = resource.cache.snapshot().objects.len();
            let objects = match usize::try_from(options.limit) {
                Ok(limit) if limit > 0 && info.verb == "list" => stored.min(limit),
                _ => stored,
            };
            Work::of(seats(objects, OBJECTS_PER_SEAT).clamp(1, level.widest().min(WIDEST_LIST)))
        }
        "create" | "update" | "patch" | "delete" => {
            let Some(resource) = found().filter(|_| info.subresource != "token") else { return Work::of(1) };
            let watchers = resource.cache.watchers(&info.namespace, &info.name);
            if watchers < WATCHERS_PER_SEAT {
                return Work::of(1);
            }
            // Narrower and longer, where it would be too wide.
            let all = seats(watchers, WATCHERS_PER_SEAT);
            let after = all.min(level.widest().min(WIDEST_WRITE));
            Work { seats: 1, after, after_for: EVENT_TAKES * all / after.max(1) }
        }
        _ => Work::of(1),
    }
}

fn seats(count: usize, per_seat: usize) -> u32 {
    u32::try_from(count.div_ceil(per_seat)).unwrap_or(u32::MAX)
}
