//! Who did what and when: every request that the policy asks for leaves events behind.
//!
//! Kubernetes calls this audit. A [`Record`] goes with one request and makes an event at each of its stages; backends write
//! them to a file or send them to a collector. Without a policy there is no record, and a request costs one branch more.
//!
//! A record that is dropped before the answer is known says so: by a Panic event, or as a connection closed early.

mod backend;
mod event;
mod log;
mod objects;
mod policy;
#[cfg(test)]
mod tests;
mod webhook;

use std::{
    collections::BTreeMap,
    fmt::Write,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use backend::Backend;
pub use backend::{Batching, Mode, Throttle};
use event::{AuthenticationMetadata, Event, ObjectReference};
use hyper::{HeaderMap, Request, Response, header, http::HeaderValue};
pub use log::{Format, LogSettings};
use object_model::{meta::Meta, status::Status, time::Time};
use policy::Verdict;
pub use policy::{Level, Policy, Stage};
use serde_json::{Value, json};

use crate::{
    authentication::Identity,
    body::{Body, RequestBody},
    clock::Clock,
    context::{Annotations, User},
    filters::impersonation::Acting,
    handlers::body,
    outbound::{self, Peer},
    request_info::RequestInfo,
};

pub const AUDIT_ID: &str = "audit-id";
const LONGEST_ID_TOLD: usize = 64;
const LONGEST_USER_AGENT: usize = 1024;
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// What is recorded, and where it goes.
pub struct Settings {
    pub policy: Policy,
    pub log: Option<(LogSettings, Batching)>,
    pub webhook: Option<(WebhookSettings, Batching)>,
}

pub struct WebhookSettings {
    pub peer: Peer,
    pub initial_backoff: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write the audit log {path}: {source}")]
    Log { path: PathBuf, source: io::Error },
    #[error("cannot use the audit webhook: {0}")]
    Webhook(#[from] outbound::Error),
}

pub struct Auditor {
    policy: Policy,
    backends: Vec<Backend>,
    clock: Arc<dyn Clock>,
    events: AtomicU64,
    levels: [AtomicU64; 4],
    rejected: AtomicU64,
}

impl Auditor {
    pub fn start(settings: Settings, clock: Arc<dyn Clock>) -> Result<Arc<Self>, Error> {
        let mut backends = Vec::new();
        if let Some((log, batching)) = settings.log {
            let path = log.path.clone();
            let sink = log::Log::open(log).map_err(|source| Error::Log { path, source })?;
            backends.push(Backend::start(sink, batching));
        }
        if let Some((webhook, batching)) = settings.webhook {
            backends.push(Backend::start(webhook::Webhook::new(&webhook.peer, webhook.initial_backoff)?, batching));
        }
        Ok(Arc::new(Self {
            policy: settings.policy,
            backends,
            clock,
            events: AtomicU64::new(0),
            levels: Default::default(),
            rejected: AtomicU64::new(0),
        }))
    }

    /// The record of a request, if the policy wants one. `user` is absent if nobody knows who it is.
    pub fn begin<B>(
        self: &Arc<Self>,
        id: &str,
        from: &Identity,
        user: Option<&Arc<User>>,
        info: &RequestInfo,
        request: &Request<B>,
    ) -> Option<Record> {
        let verdict = self.policy.judge(user.map(|user| &**user), info);
        self.levels[verdict.level as usize].fetch_add(1, Ordering::Relaxed);
        if verdict.level == Level::None {
            return None;
        }
        let now = Time::from(self.clock.now());
        let mut user_agent = text(request.headers(), header::USER_AGENT).to_owned();
        if user_agent.len() > LONGEST_USER_AGENT {
            user_agent.truncate(user_agent.floor_char_boundary(LONGEST_USER_AGENT));
            user_agent.push_str("...TRUNCATED");
        }
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: verdict.level,
            audit_id: id.to_string(),
            stage: Stage::RequestReceived,
            request_uri: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
            verb: info.verb,
            user: user.cloned(),
            impersonated_user: None,
            authentication_metadata: None,
            source_ips: source_ips(from, request.headers()),
            user_agent,
            object_ref: info.is_resource.then(|| ObjectReference {
                resource: info.resource.clone(),
                namespace: info.namespace.clone(),
                name: info.name.clone(),
                api_group: info.group.clone(),
                api_version: info.version.clone(),
                subresource: info.subresource.clone(),
                ..ObjectReference::default()
            }),
            response_status: Value::Null,
            request_object: Value::Null,
            response_object: Value::Null,
            request_received_timestamp: now,
            stage_timestamp: now,
            annotations: BTreeMap::new(),
        };
        let long = info.is_long_running();
        Some(Record { auditor: self.clone(), verdict, event: Box::new(event), long, ended: false })
    }

    /// Waits, not for ever, until what is queued has been written.
    pub async fn flush(&self) {
        let all = futures::future::join_all(self.backends.iter().map(Backend::flush));
        let _ = tokio::time::timeout(FLUSH_WITHIN, all).await;
    }

    /// Adds what it has counted to the metrics.
    pub fn write_metrics(&self, out: &mut String) {
        let mut head = |name: &str, help: &str| {
            let _ = writeln!(out, "# HELP apiserver_audit_{name} {help}\n# TYPE apiserver_audit_{name} counter");
        };
        head("event_total", "Audit events made and handed to the backends.");
        head("requests_rejected_total", "Requests refused because their audit event could not be stored.");
        head("level_total", "Requests by the audit level that the policy has for them.");
        head("error_total", "Audit events lost, by the part that lost them.");
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let _ = writeln!(out, "apiserver_audit_event_total {}", count(&self.events));
        let _ = writeln!(out, "apiserver_audit_requests_rejected_total {}", count(&self.rejected));
        for level in [Level::None, Level::Metadata, Level::Request, Level::RequestResponse] {
            let requests = count(&self.levels[level as usize]);
            let _ = writeln!(out, "apiserver_audit_level_total{{level=\"{level:?}\"}} {requests}");
        }
        for backend in &self.backends {
            let name = backend.name();
            let (failed, dropped) = (count(&backend.counts.failed), count(&backend.counts.dropped));
            let _ = writeln!(out, "apiserver_audit_error_total{{plugin=\"{name}\"}} {failed}");
            let _ = writeln!(out, "apiserver_audit_error_total{{plugin=\"buffered<{name}>\"}} {dropped}");
        }
    }
}

/// What is recorded of one request.
pub struct Record {
    auditor: Arc<Auditor>,
    verdict: Verdict,
    event: Box<Event>,
    long: bool,
    ended: bool,
}

impl Record {
    /// The request has come in. Refused only if its event must be stored and cannot.
    pub async fn received(&mut self) -> Result<(), Status> {
        let lost = self.emit(Stage::RequestReceived).await;
        if !lost {
            return Ok(());
        }
        self.auditor.rejected.fetch_add(1, Ordering::Relaxed);
        Err(Status::internal("failed to store audit event"))
    }

    /// The user in whose place the request is made from here on.
    pub fn impersonates(&mut self, acting: &Acting) {
        self.event.impersonated_user = Some(acting.user.clone());
        let constraint = acting.constraint.clone();
        self.event.authentication_metadata =
            constraint.map(|verb| AuthenticationMetadata { impersonation_constraint: verb });
    }

    /// What was remarked on the way.
    pub fn remark(&mut self, remarks: &Annotations) {
        remarks.take().into_iter().for_each(|(key, text)| self.annotate(&key, text));
    }

    /// What a part of the server has to say of the request.
    pub fn annotate(&mut self, key: &str, value: impl Into<String>) {
        self.event.annotations.entry(key.to_owned()).or_insert_with(|| value.into());
    }

    /// Reads the body where it is to be recorded, and hands the request back whole.
    pub async fn read_body(&mut self, request: Request<RequestBody>) -> Result<Request<RequestBody>, Status> {
        let writes = matches!(self.event.verb, "create" | "update" | "patch" | "delete" | "deletecollection");
        if self.verdict.level < Level::Request || self.event.object_ref.is_none() || self.long || !writes {
            return Ok(request);
        }
        let (head, rest) = request.into_parts();
        let bytes = body::read(rest).await?;
        if !bytes.is_empty() {
            self.request_object(objects::read(body::content_type(&head.headers), &bytes));
        }
        Ok(Request::from_parts(head, RequestBody::Whole(bytes)))
    }

    fn request_object(&mut self, mut object: Value) {
        let meta = Meta::of(&object);
        if let (Some(to), "create" | "update") = (&mut self.event.object_ref, self.event.verb) {
            for (field, found) in [
                (&mut to.namespace, meta.namespace()),
                (&mut to.name, meta.name()),
                (&mut to.uid, meta.uid()),
                (&mut to.resource_version, meta.resource_version()),
            ] {
                if field.is_empty() {
                    *field = found.to_owned();
                }
            }
        }
        if self.verdict.omit_managed_fields {
            objects::drop_managed_fields(&mut object);
        }
        self.event.request_object = object;
    }

    /// The answer is known. What is returned is what the client gets: a watch or stream is over only when its body is.
    pub async fn answered(mut self, response: Response<Body>) -> Response<Body> {
        let code = response.status().as_u16();
        let (head, mut body) = response.into_parts();
        if self.verdict.level == Level::RequestResponse && !self.long && matches!(body, Body::List(_)) {
            body = Body::Full(body.collect().await);
        }
        self.event.response_status = json!({"metadata": {}, "code": code});
        if let Body::Full(bytes) = &body
            && let Some(whole) = objects::answered(&head.headers, bytes)
        {
            self.response_object(&whole, code);
        }
        if !self.long {
            self.emit(Stage::ResponseComplete).await;
            self.ended = true;
            return Response::from_parts(head, body);
        }
        self.emit(Stage::ResponseStarted).await;
        Response::from_parts(head, body.guarded(self))
    }

    fn response_object(&mut self, whole: &objects::Answered<'_>, code: u16) {
        if whole.is_status() {
            let status = whole.value();
            let mut told = json!({"metadata": {}});
            for field in ["status", "message", "reason", "details"] {
                if let Some(value) = status.get(field).filter(|value| !value.is_null()) {
                    told[field] = value.clone();
                }
            }
            told["code"] = code.into();
            self.event.response_status = told;
        }
        if self.verdict.level == Level::RequestResponse && self.event.object_ref.is_some() {
            let mut object = whole.value();
            if self.verdict.omit_managed_fields {
                objects::drop_managed_fields(&mut object);
            }
            self.event.response_object = object;
        }
    }

    /// Hands an event to the backends. True if one that must not lose it has lost it.
    async fn emit(&mut self, stage: Stage) -> bool {
        let Some(event) = self.at(stage) else { return false };
        let mut lost = false;
        for backend in &self.auditor.backends {
            lost |= !backend.record(event.clone()).await && backend.is_strict();
        }
        lost
    }

    fn at(&mut self, stage: Stage) -> Option<Arc<Event>> {
        if !self.verdict.wants(stage) {
            return None;
        }
        self.event.stage = stage;
        self.event.stage_timestamp = Time::from(self.auditor.clock.now());
        self.auditor.events.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new((*self.event).clone()))
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let stage = if std::thread::panicking() {
            let status = json!({
                "metadata": {}, "status": "Failure", "message": "APIServer panic'd", "reason": "InternalError", "code": 500,
            });
            self.event.response_status = status;
            Stage::Panic
        } else {
            if self.event.response_status.is_null() {
                self.event.response_status =
                    json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
            }
            Stage::ResponseComplete
        };
        if let Some(event) = self.at(stage) {
            for backend in &self.auditor.backends {
                backend.offer(event.clone());
            }
        }
    }
}

/// The id of a request: what the client calls it, or a new one.
pub fn id(headers: &HeaderMap) -> Arc<str> {
    match headers.get(AUDIT_ID).and_then(|id| id.to_str().ok()) {
        Some(given) if !given.is_empty() => given.into(),
        _ => uuid::Uuid::new_v4().as_hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).into(),
    }
}

/// Tells the client the id.
pub fn tell(id: &str, headers: &mut HeaderMap) {
    if let Ok(value) = HeaderValue::from_str(&id[..id.floor_char_boundary(LONGEST_ID_TOLD)]) {
        headers.insert(AUDIT_ID, value);
    }
}

/// From where a request comes: as proxies say, and the other end of the connection last.
fn source_ips(from: &Identity, headers: &HeaderMap) -> Vec<String> {
    let listed = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut all: Vec<String> = Vec::new();
    let claimed = listed("x-forwarded-for").split(',').chain([listed("x-real-ip")]);
    for ip in claimed.filter_map(|text| text.trim().parse::<std::net::IpAddr>().ok()) {
        all.push(ip.to_string());
    }
    all.dedup();
    let peer = match from {
        Identity::Remote(peer) => peer.address.ip().to_string(),
        Identity::Local(_) => "127.0.0.1".to_owned(),
    };
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
}
