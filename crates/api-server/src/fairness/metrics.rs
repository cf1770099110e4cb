//! What is counted of each flow schema, under Kubernetes' names.

use std::{
    fmt::Write,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use super::Config;

/// Upper bounds of the histograms, in seconds.
const BUCKETS: [f64; 10] = [0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
const REASONS: [&str; 4] = ["queue-full", "concurrency-limit", "time-out", "cancelled"];

/// The counters of one flow schema at one priority level.
#[derive(Default)]
pub struct Counts {
    waiting: AtomicI64,
    waiting_seats: AtomicI64,
    executing: AtomicI64,
    executing_seats: AtomicI64,
    dispatched: AtomicU64,
    refused: [AtomicU64; REASONS.len()],
    waited: Histogram,
    waited_in_vain: Histogram,
    took: Histogram,
}

#[derive(Default)]
struct Histogram {
    buckets: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    fn note(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.iter().position(|bound| seconds <= *bound).unwrap_or(BUCKETS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }

    fn write(&self, name: &str, labels: &str, out: &mut String) {
        let mut total = 0;
        for (bound, bucket) in BUCKETS.iter().map(ToString::to_string).chain(["+Inf".into()]).zip(&self.buckets) {
            total += bucket.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.micros.load(Ordering::Relaxed) as f64 / 1e6);
        let _ = writeln!(out, "{name}_count{{{labels}}} {total}");
    }
}

impl Counts {
    pub fn refused(&self, reason: &str) {
        if let Some(at) = REASONS.iter().position(|known| *known == reason) {
            self.refused[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn refusals(&self, reasons: &[&str]) -> u64 {
        let counted = REASONS.iter().zip(&self.refused).filter(|(reason, _)| reasons.contains(reason));
        counted.map(|(_, count)| count.load(Ordering::Relaxed)).sum()
    }

    pub fn dispatched(&self) -> u64 {
        self.dispatched.load(Ordering::Relaxed)
    }

    pub fn waits(&self, seats: u32) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.waiting_seats.fetch_add(seats.into(), Ordering::Relaxed);
    }

    pub fn waits_no_more(&self, seats: u32) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.waiting_seats.fetch_sub(seats.into(), Ordering::Relaxed);
    }

    pub fn waited_in_vain(&self, waited: Duration) {
        self.waited_in_vain.note(waited);
    }

    pub fn begins(&self, seats: u32, waited: Duration) {
        self.dispatched.fetch_add(1, Ordering::Relaxed);
        self.executing.fetch_add(1, Ordering::Relaxed);
        self.executing_seats.fetch_add(seats.into(), Ordering::Relaxed);
        self.waited.note(waited);
    }

    pub fn ends(&self, seats: u32, took: Duration) {
        self.executing.fetch_sub(1, Ordering::Relaxed);
        self.executing_seats.fetch_sub(seats.into(), Ordering::Relaxed);
        self.took.note(took);
    }
}

/// One metric: its name, kind and meaning.
type Described = (&'static str, &'static str, &'static str);

pub fn write(config: &Config, out: &mut String) {
    by_schema(config, out);
    by_level(config, out);
}

fn head((name, kind, help): Described, out: &mut String) -> String {
    let name = format!("apiserver_flowcontrol_{name}");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    name
}

fn by_schema(config: &Config, out: &mut String) {
    type Read = fn(&Counts) -> i64;
    let numbers: [(Described, Read); 5] = [
        (("dispatched_requests_total", "counter", "Requests executed."), |c| {
            c.dispatched.load(Ordering::Relaxed) as i64
        }),
        (("current_executing_requests", "gauge", "Requests being executed."), |c| c.executing.load(Ordering::Relaxed)),
        (("current_executing_seats", "gauge", "Seats of requests being executed."), |c| {
            c.executing_seats.load(Ordering::Relaxed)
        }),
        (("current_inqueue_requests", "gauge", "Requests that wait."), |c| c.waiting.load(Ordering::Relaxed)),
        (("current_inqueue_seats", "gauge", "Seats of requests that wait."), |c| {
            c.waiting_seats.load(Ordering::Relaxed)
        }),
    ];
    let labels: Vec<(String, &Counts)> = config
        .schemas
        .iter()
        .map(|schema| {
            let labels = format!("flow_schema=\"{}\",priority_level=\"{}\"", schema.name, schema.level.name);
            (labels, &*schema.counts)
        })
        .collect();
    for (described, read) in numbers {
        let name = head(described, out);
        for (labels, counts) in &labels {
            let _ = writeln!(out, "{name}{{{labels}}} {}", read(counts));
        }
    }
    let name = head(("rejected_requests_total", "counter", "Requests refused, by reason."), out);
    for (labels, counts) in &labels {
        for (reason, count) in REASONS.iter().zip(&counts.refused) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let _ = writeln!(out, "{name}{{{labels},reason=\"{reason}\"}} {count}");
            }
        }
    }
    let name = head(("request_wait_duration_seconds", "histogram", "How long requests waited."), out);
    for (labels, counts) in &labels {
        counts.waited.write(&name, &format!("execute=\"true\",{labels}"), out);
        counts.waited_in_vain.write(&name, &format!("execute=\"false\",{labels}"), out);
    }
    let name = head(("request_execution_seconds", "histogram", "How long requests took."), out);
    for (labels, counts) in &labels {
        counts.took.write(&name, labels, out);
    }
}

fn by_level(config: &Config, out: &mut String) {
    let levels: Vec<_> = config
        .levels
        .values()
        .map(|level| {
            let seats = *level.seats.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            (format!("priority_level=\"{}\"", level.name), seats, level.figures())
        })
        .collect();
    type Read = fn(&super::allocation::Seats, &super::queue_set::Figures) -> f64;
    let numbers: [(Described, Read); 10] = [
        (("nominal_limit_seats", "gauge", "Seats by shares."), |s, _| s.nominal.into()),
        (("lower_limit_seats", "gauge", "Seats that are not lent."), |s, _| s.least.into()),
        (("upper_limit_seats", "gauge", "Seats with all that may be borrowed."), |s, _| s.most.into()),
        (("current_limit_seats", "gauge", "Seats now."), |s, _| s.current.into()),
        (("demand_seats_average", "gauge", "Average demand of the last period."), |s, _| s.demand.average),
        (("demand_seats_stdev", "gauge", "Deviation of the demand of the last period."), |s, _| s.demand.deviation),
        (("demand_seats_high_watermark", "gauge", "Peak demand of the last period."), |s, _| s.demand.peak),
        (("demand_seats_smoothed", "gauge", "Demand, forgotten slowly."), |s, _| s.demand.smoothed),
        (("current_r", "gauge", "Virtual time."), |_, f| f.r),
        (("seats_in_use", "gauge", "Seats taken, those that linger included."), |_, f| f.in_use.into()),
    ];
    for (described, read) in numbers {
        let name = head(described, out);
        for (labels, seats, figures) in &levels {
            let _ = writeln!(out, "{name}{{{labels}}} {}", read(seats, figures));
        }
    }
}
