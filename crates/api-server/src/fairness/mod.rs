//! Who may use the server next, when there are more requests than it can answer at once.
//!
//! Kubernetes calls this API priority and fairness. A FlowSchema sorts a request into a priority level and, there, into a
//! flow; the level has a number of seats ([`allocation`]), and hands them out fairly among its flows ([`queue_set`]). A
//! flood by one user fills that user's queues and nobody else's.
//!
//! The configuration follows the watch cache: it is brought up to date when a request finds it changed. What has to be
//! written (conditions of flow schemas) and adjusted from time to time (borrowing) is done by [`keeper`].

mod allocation;
mod debug;
mod defaults;
mod keeper;
mod level;
mod metrics;
mod queue_set;
mod schema;
#[cfg(test)]
mod tests;
mod work;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use allocation::Seats;
use api::kinds::flowcontrol::{mandatory_level, mandatory_schema};
use arc_swap::ArcSwap;
pub use defaults::ensure;
use hyper::{HeaderMap, StatusCode, header, http::HeaderValue};
pub use keeper::keep;
pub use level::Ticket;
use level::{About, Level, Rules};
use metrics::Counts;
use object_model::value::Fields;
use schema::Schema;
use serde_json::{Value, json};

use crate::{
    body::Body,
    catalogue::{Served, store_prefix},
    context::User,
    registry::Answer,
    request_info::RequestInfo,
    watch_cache::{ResourceCache, Snapshot, WatchCache},
};

/// How long a request may wait for a seat: a fourth of the time that it may take.
const WAIT: Duration = Duration::from_secs(15);
const RETRY_AFTER_SECONDS: u64 = 1;
const CATCH_ALL: &str = "catch-all";
const EXEMPT: &str = "exempt";

/// How many requests the server answers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_requests_inflight: u32,
    pub max_mutating_requests_inflight: u32,
}

impl Default for Limits {
    /// As many as the processors of the machine can use: with Kubernetes' 400 and 200 on a small one, a flood would fill
    /// the processors long before it had to wait.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        Self {
            max_requests_inflight: (16 * processors).min(400),
            max_mutating_requests_inflight: (8 * processors).min(200),
        }
    }
}

pub struct Fairness {
    schemas: Arc<ResourceCache>,
    levels: Arc<ResourceCache>,
    /// Seats of the whole server; without any, nobody is held up.
    total: u32,
    clock: Instant,
    config: ArcSwap<Config>,
    changing: Mutex<()>,
}

/// What the flow schemas and priority levels said at one moment.
#[derive(Default)]
pub struct Config {
    seen: Option<(Arc<Snapshot>, Arc<Snapshot>)>,
    /// In the order in which they are asked.
    schemas: Vec<Schema>,
    levels: BTreeMap<String, Arc<Level>>,
    level_uids: BTreeMap<String, Option<HeaderValue>>,
}

/// Where a request was sorted, as its answer tells: the uids of its flow schema and of its priority level.
#[derive(Clone, Debug, Default)]
pub struct Sorted {
    schema: Option<HeaderValue>,
    level: Option<HeaderValue>,
}

impl Sorted {
    pub fn tell(&self, headers: &mut HeaderMap) {
        for (name, uid) in
            [("x-kubernetes-pf-flowschema-uid", &self.schema), ("x-kubernetes-pf-prioritylevel-uid", &self.level)]
        {
            if let Some(uid) = uid {
                headers.insert(name, uid.clone());
            }
        }
    }
}

impl Fairness {
    pub fn new(cache: &WatchCache, limits: Limits) -> Self {
        let resource = |plural| cache.resource(&store_prefix(defaults::GROUP, plural));
        Self {
            schemas: resource(defaults::SCHEMAS),
            levels: resource(defaults::LEVELS),
            total: limits.max_requests_inflight.saturating_add(limits.max_mutating_requests_inflight),
            clock: Instant::now(),
            config: ArcSwap::default(),
            changing: Mutex::default(),
        }
    }

    /// Waits for the seats of a request, in turn. `Err` is the answer of one that gets none.
    pub async fn admit(
        &self,
        served: &Served,
        user: &User,
        info: &RequestInfo,
        query: &str,
    ) -> (Sorted, Result<Option<Ticket>, hyper::Response<Body>>) {
        if self.total == 0 {
            return (Sorted::default(), Ok(None));
        }
        let config = self.config();
        let Some(schema) = config.sort(user, info) else { return (Sorted::default(), Ok(None)) };
        let level = &schema.level;
        let flow = schema.flow(user, info);
        let work = work::estimate(served, info, query, level);
        let about = || About {
            schema: schema.name.as_str().into(),
            flow: flow.into(),
            user: user.name.as_str().into(),
            verb: info.verb,
            path: info.path.as_str().into(),
        };
        let entered = level.enter(hash(&schema.name, flow), work, &schema.counts, WAIT, about).await;
        (schema.sorted.clone(), entered.map(Some).map_err(|_| too_many_requests()))
    }

    /// The configuration of now.
    fn config(&self) -> Arc<Config> {
        let config = self.config.load();
        if config.is_current(self) { config.clone() } else { self.change() }
    }

    fn change(&self) -> Arc<Config> {
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.config.load_full();
        if before.is_current(self) {
            return before;
        }
        let config = Arc::new(Config::build(self, &before));
        self.config.store(config.clone());
        config
    }

    /// Moves seats to where they were needed of late.
    pub fn adjust(&self) {
        let config = self.config();
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let levels: Vec<_> = config.levels.values().collect();
        let mut seats: Vec<Seats> = levels
            .iter()
            .map(|level| {
                let mut seats = *level.seats.lock().unwrap_or_else(PoisonError::into_inner);
                seats.demand.note(level.take_demand());
                seats
            })
            .collect();
        allocation::adjust(&mut seats.iter_mut().collect::<Vec<_>>());
        for (level, seats) in levels.into_iter().zip(seats) {
            level.resize(seats);
        }
    }

    pub fn write_metrics(&self, out: &mut String) {
        metrics::write(&self.config(), out);
    }

    /// Answers `/debug/api_priority_and_fairness/…`; `None` for other paths.
    pub fn debug(&self, path: &str, query: &str) -> Option<String> {
        debug::answer(&self.config(), path, query)
    }
}

impl Config {
    fn is_current(&self, fairness: &Fairness) -> bool {
        let seen = |(schemas, levels): &(Arc<Snapshot>, Arc<Snapshot>)| {
            fairness.schemas.is_at(schemas) && fairness.levels.is_at(levels)
        };
        self.seen.as_ref().is_some_and(seen)
    }

    fn build(fairness: &Fairness, before: &Config) -> Self {
        let (schemas, levels) = (fairness.schemas.snapshot(), fairness.levels.snapshot());
        let mut config = Config { seen: Some((schemas.clone(), levels.clone())), ..Config::default() };
        config.build_levels(fairness, objects(&levels, "PriorityLevelConfiguration", mandatory_level), before);
        let mut all: Vec<Schema> = objects(&schemas, "FlowSchema", mandatory_schema)
            .iter()
            .filter_map(|object| {
                let level = config.levels.get(schema::level_name(object))?.clone();
                let name = object.text_at(&["metadata", "name"]);
                let known = before.schemas.iter().find(|s| s.name == name && s.level.name == level.name);
                let counts = known.map_or_else(|| Arc::new(Counts::default()), |schema| schema.counts.clone());
                let level_uid = config.level_uids.get(&level.name).cloned().flatten();
                Some(Schema::new(object, level, Sorted { schema: uid(object), level: level_uid }, counts))
            })
            .collect();
        all.sort_by(|a, b| (a.precedence, &a.name).cmp(&(b.precedence, &b.name)));
        config.schemas = all;
        config
    }

    fn build_levels(&mut self, fairness: &Fairness, objects: Vec<Value>, before: &Config) {
        let rules: Vec<Rules> = objects.iter().map(Rules::of).collect();
        let sum: f64 = rules.iter().map(|rules| f64::from(rules.shares.nominal)).sum();
        let levels: Vec<Arc<Level>> = objects
            .iter()
            .map(|object| {
                let name = object.text_at(&["metadata", "name"]);
                let new = || Arc::new(Level::new(name, fairness.clock));
                before.levels.get(name).cloned().unwrap_or_else(new)
            })
            .collect();
        let mut seats: Vec<Seats> = rules
            .iter()
            .zip(&levels)
            .map(|(rules, level)| {
                let demand = level.seats.lock().unwrap_or_else(PoisonError::into_inner).demand;
                Seats { demand, ..Seats::of(rules.shares, sum, fairness.total) }
            })
            .collect();
        allocation::adjust(&mut seats.iter_mut().collect::<Vec<_>>());
        for (((object, rules), level), seats) in objects.iter().zip(rules).zip(levels).zip(seats) {
            level.configure(rules.response, seats);
            self.level_uids.insert(level.name.clone(), uid(object));
            self.levels.insert(level.name.clone(), level);
        }
    }

    /// The first schema that a request matches. One that matches none, though everybody should match the last, is treated
    /// as if it did.
    fn sort(&self, user: &User, info: &RequestInfo) -> Option<&Schema> {
        let found = self.schemas.iter().find(|schema| schema.matches(user, info));
        found.or_else(|| self.schemas.iter().find(|schema| schema.name == CATCH_ALL))
    }
}

/// The objects of a snapshot, with the mandatory ones imagined where they are missing.
fn objects(snapshot: &Snapshot, kind: &str, mandatory: fn(&str) -> Option<Value>) -> Vec<Value> {
    let mut all: Vec<Value> = snapshot.objects.values().map(|entry| Answer::of(entry).object(kind)).collect();
    for name in [EXEMPT, CATCH_ALL] {
        if !snapshot.objects.contains_key(name)
            && let Some(spec) = mandatory(name)
        {
            all.push(json!({"metadata": {"name": name}, "spec": spec}));
        }
    }
    all
}

fn uid(object: &Value) -> Option<HeaderValue> {
    HeaderValue::from_str(object.text_at(&["metadata", "uid"])).ok()
}

fn hash(schema: &str, flow: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (schema, flow).hash(&mut hasher);
    hasher.finish()
}

/// What a request is told that gets no seat: Kubernetes' words, and when to come back.
fn too_many_requests() -> hyper::Response<Body> {
    let mut response = hyper::Response::new(Body::from("Too many requests, please try again later.\n"));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
