//! EventRateLimit: events come only so fast, from all together, from a namespace, from a user or about an object. By flag.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;
use object_model::{status::Status, value::Fields};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{Attributes, Plugin, Request, together};

const DEFAULT_BUCKETS: usize = 4096;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Configuration {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    limits: Vec<Limit>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Limit {
    #[serde(rename = "type")]
    kind: Kind,
    qps: i32,
    burst: i32,
    #[serde(default)]
    cache_size: i32,
}

/// Who shares a limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
enum Kind {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

impl Configuration {
    /// Everything that is wrong with it.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.limits.is_empty() {
            problems.push("limits: must not be empty".to_owned());
        }
        for (i, limit) in self.limits.iter().enumerate() {
            for (field, value) in [("burst", limit.burst), ("qps", limit.qps)] {
                if value <= 0 {
                    problems.push(format!("limits[{i}].{field}: Invalid value: {value}: must be positive"));
                }
            }
            if limit.kind != Kind::Server && limit.cache_size < 0 {
                let size = limit.cache_size;
                problems.push(format!("limits[{i}].cacheSize: Invalid value: {size}: must not be negative"));
            }
        }
        problems
    }
}

pub struct EventRateLimit {
    limits: Vec<(Limit, Mutex<Buckets>)>,
}

impl EventRateLimit {
    pub fn new(configuration: &Configuration) -> Self {
        let limits = configuration.limits.iter().map(|limit| (limit.clone(), Mutex::default()));
        Self { limits: limits.collect() }
    }
}

#[async_trait]
impl Plugin for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.writes("", "events", "")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        // A dry run costs the store nothing.
        if attributes.dry_run {
            return Ok(());
        }
        let mut reached = Vec::new();
        for (limit, buckets) in &self.limits {
            let key = limit.kind.key(attributes, object);
            let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
            if !buckets.take(&key, limit, Instant::now()) {
                reached.push(format!("limit reached on type {:?} for key {key}", limit.kind));
            }
        }
        match reached.is_empty() {
            true => Ok(()),
            false => Err(Status::too_many_requests_because(together(&reached))),
        }
    }
}

impl Kind {
    fn key(self, attributes: &Attributes<'_>, event: &Value) -> String {
        match self {
            Kind::Server => String::new(),
            Kind::Namespace => attributes.target.namespace.to_owned(),
            Kind::User => attributes.context.user.name.clone(),
            Kind::SourceAndObject => [
                ["source", "component"],
                ["source", "host"],
                ["involvedObject", "kind"],
                ["involvedObject", "namespace"],
                ["involvedObject", "name"],
                ["involvedObject", "uid"],
                ["involvedObject", "apiVersion"],
            ]
            .iter()
            .map(|path| event.text_at(path))
            .collect(),
        }
    }
}

/// The allowances of all that share one limit. The one that was not used for the longest time is forgotten when there are
/// too many, and so starts afresh.
#[derive(Default)]
struct Buckets {
    by_key: HashMap<String, Bucket>,
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
    used: u64,
}

impl Buckets {
    /// Takes one from the allowance of `key`, if it has any.
    fn take(&mut self, key: &str, limit: &Limit, now: Instant) -> bool {
        self.uses += 1;
        let burst = f64::from(limit.burst);
        let bucket = self.by_key.entry(key.to_owned()).or_insert(Bucket { tokens: burst, filled: now, used: 0 });
        self.by_use.remove(&bucket.used);
        self.by_use.insert(self.uses, key.to_owned());
        bucket.used = self.uses;
        let grown = now.saturating_duration_since(bucket.filled).as_secs_f64() * f64::from(limit.qps);
        bucket.tokens = (bucket.tokens + grown).min(burst);
        bucket.filled = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        let most = usize::try_from(limit.cache_size).ok().filter(|size| *size > 0).unwrap_or(DEFAULT_BUCKETS);
        while self.by_key.len() > most
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Buckets, Kind, Limit};

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let limit = Limit { kind: Kind::Namespace, qps: 2, burst: 3, cache_size: 0 };
        let (mut buckets, start) = (Buckets::default(), Instant::now());
        let taken = |buckets: &mut Buckets, at: u64| {
            let now = start + Duration::from_millis(at);
            (0..10).filter(|_| buckets.take("a", &limit, now)).count()
        };
        assert_eq!([0, 100, 600, 60_000].map(|at| taken(&mut buckets, at)), [3, 0, 1, 3]);
        assert!(buckets.take("b", &limit, start));
    }

    #[test]
    fn the_least_used_bucket_is_forgotten() {
        let limit = Limit { kind: Kind::User, qps: 1, burst: 1, cache_size: 2 };
        let (mut buckets, now) = (Buckets::default(), Instant::now());
        for (key, allowed) in [("a", true), ("b", true), ("a", false), ("c", true), ("a", false), ("b", true)] {
            assert_eq!(buckets.take(key, &limit, now), allowed, "{key}");
        }
        assert_eq!(buckets.by_key.len(), 2);
    }
}
