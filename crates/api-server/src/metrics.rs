//! What dashboards read: Prometheus text under the names that Kubernetes uses.

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use hyper::StatusCode;

use crate::{catalogue::Served, request_info::RequestInfo};

/// Upper bounds of the request duration histogram, in seconds.
const BUCKETS: &[f64] = &[
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

#[derive(Default)]
pub struct Metrics {
    requests: Mutex<HashMap<Key, Series>>,
    /// Read-only and mutating requests that are being answered.
    running: [AtomicI64; 2],
}

/// What requests are counted by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Key {
    verb: &'static str,
    group: Box<str>,
    version: Box<str>,
    resource: Box<str>,
    subresource: Box<str>,
    scope: &'static str,
}

#[derive(Default)]
struct Series {
    by_code: HashMap<u16, u64>,
    buckets: [u64; BUCKETS.len() + 1],
    sum: f64,
    /// Watches and streams that are open.
    open: i64,
}

/// The three ways in which a request occupies the server.
#[derive(Clone, Copy)]
enum Running {
    ReadOnly,
    Mutating,
    Long,
}

/// A request that is being answered. It counts as running until it is dropped.
pub struct Started {
    metrics: Arc<Metrics>,
    key: Key,
    since: Instant,
    kind: Running,
}

impl Metrics {
    pub fn started(self: &Arc<Self>, info: &RequestInfo, served: &Served) -> Started {
        let kind = match info.verb {
            _ if info.is_long_running() => Running::Long,
            "get" | "list" | "head" => Running::ReadOnly,
            _ => Running::Mutating,
        };
        let started = Started { metrics: self.clone(), key: Key::of(info, served), since: Instant::now(), kind };
        started.count(1);
        started
    }

    fn series(&self) -> MutexGuard<'_, HashMap<Key, Series>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, as Prometheus reads it.
    pub fn text(&self, objects: impl IntoIterator<Item = (String, usize)>) -> String {
        let mut out = String::with_capacity(16 << 10);
        self.write_requests(&mut out);
        let [read_only, mutating] = [0, 1].map(|i| self.running[i].load(Ordering::Relaxed));
        head(&mut out, "apiserver_current_inflight_requests", "gauge", "Requests being answered, by kind.");
        let _ = writeln!(out, "apiserver_current_inflight_requests{{request_kind=\"readOnly\"}} {read_only}");
        let _ = writeln!(out, "apiserver_current_inflight_requests{{request_kind=\"mutating\"}} {mutating}");
        head(&mut out, "apiserver_storage_objects", "gauge", "Stored objects, by resource.");
        for (resource, count) in objects {
            let _ = writeln!(out, "apiserver_storage_objects{{resource=\"{resource}\"}} {count}");
        }
        head(&mut out, "kubernetes_build_info", "gauge", "The version of Kubernetes that is served.");
        let version = api::schemas::KUBERNETES_VERSION;
        let _ = writeln!(out, "kubernetes_build_info{{git_version=\"{version}\"}} 1");
        write_process(&mut out);
        out
    }

    fn write_requests(&self, out: &mut String) {
        let requests = self.series();
        head(out, "apiserver_request_total", "counter", "Answered requests, by what they asked and the code they got.");
        for (key, series) in requests.iter() {
            for (code, count) in &series.by_code {
                let _ = writeln!(out, "apiserver_request_total{{{},code=\"{code}\"}} {count}", key.labels());
            }
        }
        head(out, "apiserver_longrunning_requests", "gauge", "Watches and streams that are open.");
        for (key, series) in requests.iter().filter(|(_, s)| s.open > 0) {
            let _ = writeln!(out, "apiserver_longrunning_requests{{{}}} {}", key.labels(), series.open);
        }
        // Alerts are made from the second, which in Kubernetes leaves out time that others spent.
        for name in ["apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"] {
            write_durations(out, name, &requests);
        }
    }
}

fn write_durations(out: &mut String, name: &str, requests: &HashMap<Key, Series>) {
    head(out, name, "histogram", "How long requests took, watches and streams aside.");
    for (key, series) in requests.iter().filter(|(_, s)| s.buckets.iter().any(|b| *b > 0)) {
        let labels = key.labels();
        let mut total = 0;
        for (count, bound) in series.buckets.iter().zip(BUCKETS) {
            total += count;
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {total}");
        }
        total += series.buckets[BUCKETS.len()];
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {total}");
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", series.sum);
        let _ = writeln!(out, "{name}_count{{{labels}}} {total}");
    }
}

impl Started {
    /// Counts the answer. The request itself runs on while its answer is being sent.
    pub fn answered(&self, code: StatusCode) {
        let seconds = self.since.elapsed().as_secs_f64();
        let mut requests = self.metrics.series();
        let series = requests.entry(self.key.clone()).or_default();
        *series.by_code.entry(code.as_u16()).or_default() += 1;
        if !matches!(self.kind, Running::Long) {
            let bucket = BUCKETS.iter().position(|b| seconds <= *b).unwrap_or(BUCKETS.len());
            series.buckets[bucket] += 1;
            series.sum += seconds;
        }
    }

    fn count(&self, step: i64) {
        match self.kind {
            Running::Long => self.metrics.series().entry(self.key.clone()).or_default().open += step,
            kind => drop(self.metrics.running[kind as usize].fetch_add(step, Ordering::Relaxed)),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.count(-1);
    }
}

impl Key {
    /// What clients make up must not become a label: there would be no end to them.
    fn of(info: &RequestInfo, served: &Served) -> Self {
        let scope = match info {
            i if !i.is_resource => "",
            i if !i.name.is_empty() => "resource",
            i if !i.namespace.is_empty() => "namespace",
            _ => "cluster",
        };
        let verb = metric_verb(info);
        match served.find(&info.group, &info.version, &info.resource).filter(|_| info.is_resource) {
            Some(resource) => Self {
                verb,
                group: resource.group.clone(),
                version: resource.version.clone(),
                resource: resource.plural.clone(),
                subresource: resource.subresource(&info.subresource).map(|s| s.name.clone()).unwrap_or_default(),
                scope,
            },
            None => Self { verb, scope, ..Self::default() },
        }
    }

    fn labels(&self) -> String {
        let Self { verb, group, version, resource, subresource, scope } = self;
        format!(
            "verb=\"{verb}\",group=\"{group}\",version=\"{version}\",resource=\"{resource}\",\
             subresource=\"{subresource}\",scope=\"{scope}\",component=\"apiserver\""
        )
    }
}

fn metric_verb(info: &RequestInfo) -> &'static str {
    match info.verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        "head" => "HEAD",
        "options" => "OPTIONS",
        _ => "other",
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// What the kernel knows of this process.
fn write_process(out: &mut String) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = |i: usize| statm.split(' ').nth(i).and_then(|n| n.parse::<u64>().ok()).unwrap_or_default();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    let field = |i: usize| after_name.split(' ').nth(i).and_then(|n| n.parse::<u64>().ok()).unwrap_or_default();
    let descriptors = std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default();
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok());
    let system = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = system.lines().find_map(|line| line.strip_prefix("btime ")?.parse::<u64>().ok()).unwrap_or_default();
    for (name, kind, help, value) in [
        ("process_resident_memory_bytes", "gauge", "Memory in use.", (pages(1) * 4096) as f64),
        ("process_virtual_memory_bytes", "gauge", "Address space in use.", (pages(0) * 4096) as f64),
        ("process_cpu_seconds_total", "counter", "Time on the processor.", (field(11) + field(12)) as f64 / 100.0),
        ("process_start_time_seconds", "gauge", "When it started.", booted as f64 + field(19) as f64 / 100.0),
        ("process_open_fds", "gauge", "Open file descriptors.", descriptors as f64),
        ("process_max_fds", "gauge", "As many there may be.", most.unwrap_or_default()),
    ] {
        head(out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    }
}
