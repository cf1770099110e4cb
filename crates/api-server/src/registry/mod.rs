//! Every verb on every object, once.
//!
//! Kubernetes calls this the generic registry. The order of stations is fixed here (see [`Registry::create`] and
//! [`Registry::update`]); what a kind adds is in its strategy ([`api::kinds`]), in its companions and in admission.
//!
//! An update is read, change, admit, compare-and-commit, in a loop: when somebody else was faster, the change is made
//! again on what they wrote. Reads come from the watch cache; a verdict that rests on a stale read (a conflict, an
//! unmet precondition, an absence) is reached again on the store's own word before it is told.

pub mod companions;
mod delete;
pub mod owners;
mod read;
mod selection;
pub(crate) mod services;
mod write;

use std::{collections::HashMap, sync::Arc};

use bytes::{Bytes, BytesMut};
use companions::Keeper;
pub use delete::{DeleteOptions, Deleted, Preconditions, deleted_status};
use object_model::status::Status;
pub use read::{Items, List};
pub use selection::Selection;
use serde_json::Value;
use services::Services;
use storage::{Durability, Error, Revision, Store};
pub use write::Change;

use crate::{
    admission::Chain,
    catalogue::{Resource, Target},
    clock::Clock,
    watch_cache::{Entry, WatchCache, body_of, write_header},
};

pub struct Registry {
    pub store: Arc<dyn Store>,
    pub cache: Arc<WatchCache>,
    pub admission: Chain,
    pub clock: Arc<dyn Clock>,
    /// By the prefix of the resource whose companions they keep.
    pub keepers: HashMap<String, Box<dyn Keeper>>,
}

/// An object as it goes back to the client: everything after its header, in the stored version.
#[derive(Clone, Debug)]
pub struct Answer {
    pub api_version: Box<str>,
    pub body: Bytes,
    pub created: bool,
}

impl Answer {
    pub fn of(entry: &Entry) -> Self {
        Self { api_version: entry.api_version.clone(), body: entry.body.clone(), created: false }
    }

    /// What was stored at a revision.
    fn stored(api_version: &str, stored: &[u8], revision: Revision) -> Self {
        Self { api_version: api_version.into(), body: body_of(stored, Some(revision)), created: false }
    }

    /// What would be stored; a new object has no revision yet.
    fn dry(api_version: &str, stored: &[u8], revision: Option<Revision>) -> Self {
        Self { api_version: api_version.into(), body: body_of(stored, revision), created: false }
    }

    fn created(self) -> Self {
        Self { created: true, ..self }
    }

    /// The object as a value.
    pub fn object(&self, kind: &str) -> Value {
        let mut out = BytesMut::with_capacity(self.body.len() + 96);
        write_header(kind, &self.api_version, &mut out);
        out.extend_from_slice(&self.body);
        serde_json::from_slice(&out).unwrap_or_default()
    }
}

impl Registry {
    pub fn new(store: Arc<dyn Store>, cache: Arc<WatchCache>, clock: Arc<dyn Clock>, admission: Chain) -> Self {
        let services = Services::new(&cache, clock.clone());
        let keepers = HashMap::from([(services.prefix().to_owned(), Box::new(services) as Box<dyn Keeper>)]);
        Self { store, cache, admission, clock, keepers }
    }

    fn keeper(&self, target: &Target<'_>) -> Option<&dyn Keeper> {
        self.keepers.get(target.resource.cache.prefix()).map(|keeper| &**keeper)
    }

    /// How soon a write must be durable: heartbeats and events may wait.
    fn durability(resource: &Resource, namespace: &str) -> Durability {
        let relaxed = match (&*resource.group, &*resource.plural) {
            ("" | "events.k8s.io", "events") => true,
            ("coordination.k8s.io", "leases") => namespace == "kube-node-lease",
            _ => false,
        };
        if relaxed { Durability::Relaxed } else { Durability::Durable }
    }
}

/// What a client is told when the store does not answer.
pub(crate) fn store_error(error: Error) -> Status {
    match error {
        Error::Compacted { .. } => Status::expired("The resourceVersion for the provided list is too old."),
        Error::FutureRevision { requested, current } => Status::too_large_resource_version(requested.0, current.0, 1),
        Error::TooLarge { .. } => Status::request_entity_too_large(error),
        Error::Unavailable(_) => Status::service_unavailable(error.to_string()),
        Error::Invalid(_) | Error::Corrupt(_) | Error::Unreadable { .. } => Status::internal(error),
    }
}

/// A revision as a client writes it.
pub(crate) fn parse_revision(text: &str) -> Result<Revision, Status> {
    text.parse().map(Revision).map_err(|_| {
        let detail = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        Status::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {text:?}: {detail}"))
    })
}
