//! Admission: what may still change an object, and what has the last word on it.
//!
//! Plugins run in the order of [`all`]. First every plugin may mutate, then the registry validates, then every plugin may
//! only refuse. Webhooks and policies are plugins like the others.

pub mod all;
mod default_toleration_seconds;
mod limit_ranger;
mod namespace_lifecycle;
mod node_restriction;
mod priority;
mod service_account;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{
    meta::Meta,
    status::{Reason, Status},
};
use serde_json::Value;

use crate::{
    catalogue::{Target, store_prefix},
    context::RequestContext,
    watch_cache::{ResourceCache, WatchCache},
};

/// What is being done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A request as admission sees it.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    pub operation: Operation,
    pub target: &'a Target<'a>,
    pub old: Option<&'a Value>,
    pub context: &'a RequestContext,
    pub dry_run: bool,
}

impl Attributes<'_> {
    /// Is this a request on the object itself (not a subresource) of this resource?
    fn is(&self, operation: Operation, group: &str, plural: &str) -> bool {
        self.operation == operation
            && self.target.subresource.is_empty()
            && *self.target.resource.group == *group
            && *self.target.resource.plural == *plural
    }

    /// Refuses the request in Kubernetes' words.
    fn forbidden(&self, object: &Value, why: impl std::fmt::Display) -> Status {
        let meta = Meta::of(object);
        let name = match (self.target.name, meta.name()) {
            ("", "") if !meta.generate_name().is_empty() => meta.generate_name(),
            ("", "") => "Unknown",
            ("", name) => name,
            (name, _) => name,
        };
        Status::forbidden(&self.target.resource.group_resource(), name, why)
    }
}

/// One admission plugin. A plugin that does not care about a request lets it pass.
#[async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// May mutate the object, or refuse it. There is no object on deletion.
    async fn mutate(&self, _: &Attributes<'_>, _object: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// Must not mutate; may refuse. There is no object on deletion.
    async fn validate(&self, _: &Attributes<'_>, _object: &Value) -> Result<(), Status> {
        Ok(())
    }
}

/// The chain of plugins.
#[derive(Default)]
pub struct Chain(Vec<Box<dyn Plugin>>);

impl Chain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        Self(plugins)
    }

    pub async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        for plugin in &self.0 {
            plugin.mutate(attributes, object).await?;
        }
        Ok(())
    }

    pub async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        for plugin in &self.0 {
            plugin.validate(attributes, object).await?;
        }
        Ok(())
    }
}

/// The objects of one resource, as plugins look them up.
struct Lookup {
    all: Arc<WatchCache>,
    resource: Arc<ResourceCache>,
    kind: &'static str,
}

impl Lookup {
    fn new(all: &Arc<WatchCache>, group: &str, plural: &str, kind: &'static str) -> Self {
        Self { all: all.clone(), resource: all.resource(&store_prefix(group, plural)), kind }
    }

    /// The object of this name (`namespace/name` or `name`). Its absence is certain: the cache is brought up to date first.
    async fn get(&self, name: &str) -> Result<Option<Value>, Status> {
        let mut entry = self.resource.get(name);
        if entry.is_none() {
            self.all.fresh().await.map_err(crate::registry::store_error)?;
            entry = self.resource.get(name);
        }
        Ok(entry.map(|e| e.object(self.kind)))
    }

    /// The objects of a namespace, as of now.
    fn of_namespace(&self, namespace: &str) -> Vec<Value> {
        let prefix = format!("{namespace}/");
        let snapshot = self.resource.snapshot();
        let entries = snapshot.objects.range(Arc::from(prefix.as_str())..);
        entries.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, e)| e.object(self.kind)).collect()
    }

    /// All objects, as of now.
    fn each(&self, mut take: impl FnMut(Value)) {
        for entry in self.resource.snapshot().objects.values() {
            take(entry.object(self.kind));
        }
    }
}

/// A refusal that names the namespace as its cause.
fn namespace_terminating(mut status: Status, namespace: &str) -> Status {
    debug_assert!(status.is(Reason::FORBIDDEN));
    if let Some(details) = &mut status.details {
        details.causes.push(object_model::status::Cause {
            reason: object_model::status::cause::NAMESPACE_TERMINATING.into(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".into(),
        });
    }
    status
}
