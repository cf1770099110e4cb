//! What operators look at when requests wait: Kubernetes' tables. Requests that are executed are counted, not listed.

use std::time::Duration;

use super::Config;
use crate::request_info::pairs;

pub fn answer(config: &Config, path: &str, query: &str) -> Option<String> {
    let rows = match path.strip_prefix("/debug/api_priority_and_fairness/")? {
        "dump_priority_levels" => priority_levels(config),
        "dump_queues" => queues(config),
        "dump_requests" => {
            let details = pairs(query).any(|(key, value)| key == "includeRequestDetails" && !value.is_empty());
            requests(config, details)
        }
        _ => return None,
    };
    Some(table(&rows))
}

type Row = Vec<String>;

fn row<const N: usize>(cells: [&dyn ToString; N]) -> Row {
    cells.iter().map(|cell| cell.to_string()).collect()
}

fn priority_levels(config: &Config) -> Vec<Row> {
    let mut rows = vec![row([
        &"PriorityLevelName",
        &"ActiveQueues",
        &"IsIdle",
        &"IsQuiescing",
        &"WaitingRequests",
        &"ExecutingRequests",
        &"DispatchedRequests",
        &"RejectedRequests",
        &"TimedoutRequests",
        &"CancelledRequests",
    ])];
    for level in config.levels.values() {
        let figures = level.figures();
        let active = level.each_queue(|queues, _| queues.filter(|queue| !queue.waiting.is_empty()).count());
        let of_level = || config.schemas.iter().filter(|schema| schema.level.name == level.name);
        let dispatched: u64 = of_level().map(|schema| schema.counts.dispatched()).sum();
        let refused = |reasons: &[&str]| -> u64 { of_level().map(|schema| schema.counts.refusals(reasons)).sum() };
        rows.push(row([
            &level.name,
            &active,
            &level.is_idle(),
            &false,
            &figures.waiting,
            &figures.executing,
            &dispatched,
            &refused(&["queue-full", "concurrency-limit", "time-out", "cancelled"]),
            &refused(&["time-out"]),
            &refused(&["cancelled"]),
        ]));
    }
    rows
}

fn queues(config: &Config) -> Vec<Row> {
    let mut rows = vec![row([
        &"PriorityLevelName",
        &"Index",
        &"PendingRequests",
        &"ExecutingRequests",
        &"SeatsInUse",
        &"NextDispatchR",
        &"InitialSeatsSum",
        &"MaxSeatsSum",
        &"TotalWorkSum",
    ])];
    for level in config.levels.values() {
        level.each_queue(|queues, _| {
            for (index, queue) in queues.enumerate() {
                let seats: u32 = queue.waiting.iter().map(|(_, work, _)| work.seats).sum();
                let most: u32 = queue.waiting.iter().map(|(_, work, _)| work.most_seats()).sum();
                rows.push(row([
                    &level.name,
                    &index,
                    &queue.waiting.len(),
                    &queue.executing,
                    &queue.in_use,
                    &format!("{:.8}ss", queue.next),
                    &seats,
                    &most,
                    &format!("{:.8}ss", queue.work),
                ]));
            }
        });
    }
    rows
}

fn requests(config: &Config, details: bool) -> Vec<Row> {
    let mut head = row([
        &"PriorityLevelName",
        &"FlowSchemaName",
        &"QueueIndex",
        &"RequestIndexInQueue",
        &"FlowDistingsher",
        &"WaitingFor",
        &"InitialSeats",
        &"FinalSeats",
        &"AdditionalLatency",
    ]);
    if details {
        head.extend(row([&"UserName", &"Verb", &"APIPath"]));
    }
    let mut rows = vec![head];
    for level in config.levels.values() {
        level.each_queue(|queues, now| {
            for (index, queue) in queues.enumerate() {
                for (place, (waiter, work, arrived)) in queue.waiting.iter().enumerate() {
                    let about = &waiter.about;
                    let mut cells = row([
                        &level.name,
                        &about.schema,
                        &index,
                        &place,
                        &about.flow,
                        &shown(now.saturating_sub(*arrived)),
                        &work.seats,
                        &work.after,
                        &shown(work.after_for),
                    ]);
                    if details {
                        cells.extend(row([&about.user, &about.verb, &about.path]));
                    }
                    rows.push(cells);
                }
            }
        });
    }
    rows
}

fn shown(duration: Duration) -> String {
    format!("{duration:?}")
}

/// Columns that line up.
fn table(rows: &[Row]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default() + 2).collect();
    let mut out = String::new();
    for row in rows {
        for (i, cell) in row.iter().enumerate() {
            let last = i + 1 == row.len();
            let cell = if last { cell.clone() } else { format!("{cell},") };
            let width = if last { 0 } else { widths[i] };
            out.push_str(&format!("{cell:width$}"));
        }
        out.push('\n');
    }
    out
}
