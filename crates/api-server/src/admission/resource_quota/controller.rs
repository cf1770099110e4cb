//! Counts what the quotas of a namespace have used, whenever that may have become less, and when a quota is new.
//!
//! Kubernetes calls this the resource quota controller. It runs beside the API server and works by its watch cache; what it
//! finds it writes through the API like everybody, as its own identity. While there are no quotas it does nothing, and it
//! follows only the resources that quotas are about.
//!
//! A count is right when it is written: it is taken at or after the revision of the quota that it is written on, every
//! charge changes that revision, and a write on an older one is refused. On several servers all count; who comes late
//! finds nothing to change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::Bytes;
use hyper::{Method, Request, StatusCode, header};
use object_model::{meta::Meta, quantity::Quantity, value::Fields};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};

use super::{
    super::{
        Lookup,
        pod_resources::{Amounts, add, amounts},
    },
    check::Quota,
    kinds::{Counter, Kind},
    listed, scopes,
};
use crate::{
    Server,
    body::RequestBody,
    catalogue::store_prefix,
    context::User,
    watch_cache::{Entry, Event, ResourceCache, Scope, WatchCache},
};

/// When to try again what did not work.
const RETRY: Duration = Duration::from_secs(1);
/// How long to leave a quota to those who are charged to it when they were faster.
const BUSY: Duration = Duration::from_millis(20);
/// How many namespaces may wait to be counted before those who report them wait.
const BACKLOG: usize = 1024;
/// However little changes, everything is counted that often: what is used may have been written by somebody else.
const RECOUNT: Duration = Duration::from_secs(300);

/// Runs until the server is gone or drained.
pub async fn run(server: Weak<Server>) {
    let Some(strong) = server.upgrade() else { return };
    let drain = strong.drain.clone();
    let controller = Controller::new(&strong);
    drop(strong);
    tokio::select! {
        () = drain.cancelled() => {}
        () = controller.run(server) => {}
    }
}

/// What the controller and those who follow resources for it share.
struct Shared {
    cache: Arc<WatchCache>,
    quotas: Lookup,
    counter: Counter,
}

struct Controller {
    shared: Arc<Shared>,
    /// Namespaces to be counted, and the time before which that is of no use.
    due: BTreeMap<String, Instant>,
    /// Those who follow the resources that quotas are about.
    followers: BTreeMap<Kind, Follower>,
    report: mpsc::Sender<String>,
    reports: mpsc::Receiver<String>,
}

struct Follower(JoinHandle<()>);

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Controller {
    fn new(server: &Arc<Server>) -> Self {
        let (cache, clock) = (&server.registry.cache, &server.registry.clock);
        let shared = Shared {
            cache: cache.clone(),
            quotas: Lookup::new(cache, "", "resourcequotas", "ResourceQuota"),
            counter: Counter::new(cache, clock),
        };
        let (report, reports) = mpsc::channel(BACKLOG);
        Self { shared: Arc::new(shared), due: BTreeMap::new(), followers: BTreeMap::new(), report, reports }
    }

    async fn run(mut self, server: Weak<Server>) {
        loop {
            let revision = self.shared.cache.applied();
            let Ok(mut watcher) = self.shared.quotas.resource.watch(Scope::All, revision) else {
                tokio::time::sleep(RETRY).await;
                continue;
            };
            // All that there are, and all changes from here on.
            self.follow_needed();
            for namespace in self.shared.namespaces() {
                self.due_now(namespace);
            }
            loop {
                let next = self.due.values().min().copied();
                tokio::select! {
                    event = watcher.next() => match event {
                        Ok(event) => self.quota_changed(&event),
                        Err(_) => break,
                    },
                    Some(namespace) = self.reports.recv() => self.due_now(namespace),
                    () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                        let Some(server) = server.upgrade() else { return };
                        self.count_due(&server).await;
                    }
                }
            }
        }
    }

    fn due_now(&mut self, namespace: String) {
        self.due.insert(namespace, Instant::now());
    }

    fn due_within(&mut self, namespace: &str, wait: Duration) {
        let at = Instant::now() + wait;
        self.due.entry(namespace.to_owned()).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    /// A quota that says other than it should is counted; charges change only what is used.
    fn quota_changed(&mut self, event: &Event) {
        let hard = |entry: &Arc<Entry>| {
            let object = entry.object(self.shared.quotas.kind);
            (amounts(object.at(&["spec", "hard"])), amounts(object.at(&["status", "hard"])))
        };
        let before = event.before.as_ref().map(|entry| hard(entry).0);
        let after = event.after.as_ref().map(|entry| (entry, hard(entry)));
        let differs = after.as_ref().is_some_and(|(_, (wanted, told))| wanted != told);
        let is_other = before.as_ref() != after.as_ref().map(|(_, (wanted, _))| wanted);
        if let Some((entry, _)) = after.filter(|_| is_other || differs) {
            self.due_now(entry.namespace.to_string());
        }
        if is_other {
            self.follow_needed();
        }
    }

    /// Follows all resources that some quota is about, and no others.
    fn follow_needed(&mut self) {
        let mut needed = BTreeSet::new();
        self.shared.quotas.each(|quota| {
            for (name, _) in quota.field("spec").into_iter().flat_map(|spec| spec.entries("hard")) {
                needed.extend(Kind::tracked_by(&self.shared.counter, name));
            }
        });
        self.followers.retain(|kind, follower| needed.contains(kind) && !follower.0.is_finished());
        for kind in needed {
            let (shared, report) = (&self.shared, &self.report);
            self.followers
                .entry(kind.clone())
                .or_insert_with(|| Follower(tokio::spawn(follow(shared.clone(), kind, report.clone()))));
        }
    }

    async fn count_due(&mut self, server: &Arc<Server>) {
        let now = Instant::now();
        let due: Vec<String> = self.due.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for namespace in due {
            self.due.remove(&namespace);
            match self.shared.count(server, &namespace).await {
                Counted::Settled(_) if !self.shared.quotas.has_any_of(&namespace) => {}
                Counted::Settled(wait) => self.due_within(&namespace, wait.map_or(RECOUNT, |wait| wait.min(RECOUNT))),
                Counted::Again(wait) => self.due_within(&namespace, wait),
            }
        }
    }
}

/// How a count ended.
enum Counted {
    /// Everything is as it says; some pods stop to count after a while.
    Settled(Option<Duration>),
    /// It has to be repeated.
    Again(Duration),
}

impl Shared {
    /// Every namespace that has a quota.
    fn namespaces(&self) -> BTreeSet<String> {
        self.quotas.resource.snapshot().objects.values().map(|entry| entry.namespace.to_string()).collect()
    }

    /// Counts what the quotas of a namespace have used, and tells them.
    async fn count(&self, server: &Arc<Server>, namespace: &str) -> Counted {
        let mut again = None;
        for entry in self.quotas.entries_of(namespace) {
            // Nothing may be counted that is older than the quota.
            if self.cache.reach(entry.revision).await.is_err() {
                return Counted::Again(RETRY);
            }
            let quota = Quota::of(entry);
            let hard = quota.object.at(&["spec", "hard"]).cloned().unwrap_or_else(|| json!({}));
            let mut used: Amounts = quota.used.clone();
            used.extend(self.used(namespace, &quota));
            used.retain(|name, _| hard.has(name));
            let changed = amounts(Some(&hard)) != quota.hard || used != quota.used;
            if !changed && quota.object.at(&["status", "used"]).is_some() {
                continue;
            }
            let mut object = quota.object;
            object["status"] = json!({"hard": hard, "used": listed(&used)});
            match put_status(server, namespace, &object).await {
                // While a quota was not ready, objects came in that it was not charged for: look once more.
                StatusCode::OK => again = again.or(Some(Duration::ZERO)),
                StatusCode::NOT_FOUND => {}
                StatusCode::CONFLICT => again = Some(again.unwrap_or(BUSY)),
                code => {
                    tracing::warn!(%code, namespace, "cannot write what a quota has used");
                    again = Some(RETRY);
                }
            }
        }
        match again {
            Some(wait) => Counted::Again(wait),
            None => Counted::Settled(self.next_end(namespace)),
        }
    }

    /// What all objects of a namespace together use of a quota.
    fn used(&self, namespace: &str, quota: &Quota) -> Amounts {
        let names: Vec<&String> = quota
            .object
            .at(&["spec", "hard"])
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(name, _)| name)
            .collect();
        let kinds: BTreeSet<Kind> = names.iter().flat_map(|name| Kind::tracked_by(&self.counter, name)).collect();
        let mut used = Amounts::new();
        for kind in &kinds {
            let tracked = names.iter().filter(|name| self.counter.tracks(kind, name));
            for name in tracked {
                used.entry((*name).clone()).or_insert(Quantity::ZERO);
            }
            self.each(kind, namespace, |object| {
                if quota.scopes.iter().all(|scope| scope.matches(kind, object)) {
                    let mut more = self.counter.usage(kind, object);
                    more.retain(|name, _| names.contains(&name));
                    add(&mut used, more);
                }
            });
        }
        used
    }

    fn resource(&self, kind: &Kind) -> Arc<ResourceCache> {
        let (group, resource) = kind.resource();
        self.cache.resource(&store_prefix(group, resource))
    }

    fn each(&self, kind: &Kind, namespace: &str, mut take: impl FnMut(&Value)) {
        let prefix = format!("{namespace}/");
        let snapshot = self.resource(kind).snapshot();
        let entries = snapshot.objects.range(Arc::from(prefix.as_str())..);
        for (_, entry) in entries.take_while(|(key, _)| key.starts_with(&prefix)) {
            // Where every object counts one, there is no need to look into it.
            match kind {
                Kind::Others { .. } => take(&Value::Null),
                _ => take(&entry.object("")),
            }
        }
    }

    /// How long until the next pod of a namespace stops to count by the clock alone.
    fn next_end(&self, namespace: &str) -> Option<Duration> {
        if !self.quotas.has_any_of(namespace) {
            return None;
        }
        let (now, mut next) = (self.counter.now(), None);
        self.each(&Kind::Pods, namespace, |pod| {
            let end = scopes::counts_until(pod).filter(|end| *end >= now);
            next = [next, end].into_iter().flatten().min();
        });
        // A pod counts up to and including the second.
        next.and_then(|end: i64| u64::try_from(end - now + 1).ok()).map(Duration::from_secs)
    }

    /// Can the event mean that a quota of its namespace is not right any more?
    async fn concerns(&self, kind: &Kind, event: &Event) -> Option<String> {
        let entry = event.after.as_ref().or(event.before.as_ref())?;
        if !self.quotas.has_any_of(&entry.namespace) {
            return None;
        }
        let concerned = match (&event.before, &event.after) {
            (Some(_), None) => true,
            (Some(before), Some(after)) => {
                !matches!(kind, Kind::Others { .. })
                    && kind.may_free(&self.counter, &after.object(""), &before.object(""))
            }
            // Who creates an object charges the quotas that he knows; one that is just being made may not be among them.
            (None, Some(after)) => {
                self.cache.reach(event.revision).await.ok()?;
                let uncharged = |quota: &Quota| quota.entry.revision < event.revision;
                let mut quotas = self.quotas.entries_of(&after.namespace).into_iter().map(Quota::of);
                quotas.any(|quota| uncharged(&quota) && quota.matches(&self.counter, kind, &after.object("")))
            }
            (None, None) => false,
        };
        concerned.then(|| entry.namespace.to_string())
    }
}

/// Reports the namespaces in which objects of a kind became less.
async fn follow(shared: Arc<Shared>, kind: Kind, report: mpsc::Sender<String>) {
    loop {
        let Ok(mut watcher) = shared.resource(&kind).watch(Scope::All, shared.cache.applied()) else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        while let Ok(event) = watcher.next().await {
            if let Some(namespace) = shared.concerns(&kind, &event).await
                && report.send(namespace).await.is_err()
            {
                return;
            }
        }
        // What happened meanwhile is not known: count everything.
        for namespace in shared.namespaces() {
            if report.send(namespace).await.is_err() {
                return;
            }
        }
    }
}

async fn put_status(server: &Arc<Server>, namespace: &str, quota: &Value) -> StatusCode {
    let name = Meta::of(quota).name();
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("/api/v1/namespaces/{namespace}/resourcequotas/{name}/status"))
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, "ferry")
        .body(RequestBody::Whole(Bytes::from(quota.to_string())));
    let Ok(request) = request else { return StatusCode::NOT_FOUND };
    let user = Arc::new(User::service_account("kube-system", "resourcequota-controller"));
    server.call(user, request).await.status()
}
