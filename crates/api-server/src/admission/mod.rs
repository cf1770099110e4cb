//! Admission: what may still change an object, and what has the last word on it.
//!
//! Plugins run in the order of [`all`], which is Kubernetes'. First every plugin may mutate, then the registry validates,
//! then every plugin may only refuse, and last of all what an object costs is charged: that is committed in one transaction
//! with the object (see [`resource_quota`]).
//!
//! Each plugin says which requests it handles. That is asked once for every kind of request and remembered, so a request
//! pays only for the plugins that care about it. `docs/design/admission.md` has the table of who handles what.

pub mod all;
mod always_pull_images;
mod certificates;
mod default_classes;
mod default_toleration_seconds;
mod deny_service_external_ips;
mod event_rate_limit;
mod extended_resource_toleration;
mod limit_ranger;
mod namespace_lifecycle;
mod node_declared_features;
mod node_restriction;
mod owner_references;
mod persistent_volume_claim_resize;
mod pod_resize;
mod pod_resources;
mod pod_security;
mod pod_toleration_restriction;
mod pod_topology_labels;
mod priority;
pub mod resource_quota;
mod runtime_class;
mod service_account;
mod settings;
mod storage_object_in_use_protection;
mod taint_nodes_by_condition;
mod tolerations;
mod webhooks;

use std::{collections::HashMap, sync::Arc};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use object_model::{
    meta::Meta,
    status::{Cause, Reason, Status},
};
use serde_json::Value;
pub use settings::{BadSettings, Settings};

use crate::{
    catalogue::{Target, store_prefix},
    context::RequestContext,
    registry::companions::Companions,
    watch_cache::{Entry, ResourceCache, WatchCache},
};

/// What is being done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// All that is known of a request before there is an object: what plugins choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub operation: Operation,
    pub group: &'a str,
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub namespaced: bool,
}

impl Request<'_> {
    /// A change of this resource, or of this subresource of it.
    fn writes(&self, group: &str, resource: &str, subresource: &str) -> bool {
        matches!(self.operation, Operation::Create | Operation::Update) && self.is_of(group, resource, subresource)
    }

    fn creates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Create && self.is_of(group, resource, "")
    }

    fn updates(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.operation == Operation::Update && self.is_of(group, resource, subresource)
    }

    fn is_of(&self, group: &str, resource: &str, subresource: &str) -> bool {
        self.group == group && self.resource == resource && self.subresource == subresource
    }
}

impl<'a> Attributes<'a> {
    pub fn request(&self) -> Request<'a> {
        let resource = self.target.resource;
        Request {
            operation: self.operation,
            group: &resource.group,
            resource: &resource.plural,
            subresource: self.target.subresource,
            namespaced: resource.namespaced,
        }
    }

    /// Is this a request on the object itself (not a subresource) of this resource?
    fn is(&self, operation: Operation, group: &str, resource: &str) -> bool {
        self.operation == operation && self.request().is_of(group, resource, "")
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

/// One admission plugin.
#[async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    /// Does the plugin care about such requests? Only these are shown to it. The answer must not change.
    fn handles(&self, _: &Request<'_>) -> bool {
        true
    }

    /// May mutate the object, or refuse it. There is no object on deletion.
    async fn mutate(&self, _: &Attributes<'_>, _object: &mut Value) -> Result<(), Status> {
        Ok(())
    }

    /// Must not mutate; may refuse. There is no object on deletion.
    async fn validate(&self, _: &Attributes<'_>, _object: &Value) -> Result<(), Status> {
        Ok(())
    }

    /// What is to be committed together with the object, once nobody refuses it. A dry run may be refused and is charged
    /// nothing. Asked again when another writer was faster.
    async fn charge(&self, _: &Attributes<'_>, _object: &Value) -> Result<Companions, Status> {
        Ok(Companions::default())
    }
}

/// The chain of plugins.
#[derive(Default)]
pub struct Chain {
    plugins: Vec<Box<dyn Plugin>>,
    /// Who handles what, by the plural name of the resource; filled as requests come.
    handlers: ArcSwap<HashMap<Box<str>, Vec<Handlers>>>,
}

/// The plugins, by their place in the chain, that handle one kind of request.
#[derive(Clone)]
struct Handlers {
    group: Box<str>,
    subresource: Box<str>,
    operation: Operation,
    plugins: Arc<[usize]>,
}

impl Chain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        Self { plugins, handlers: ArcSwap::default() }
    }

    pub async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        for plugin in self.handlers(attributes).iter().filter_map(|at| self.plugins.get(*at)) {
            plugin.mutate(attributes, object).await?;
        }
        Ok(())
    }

    /// Has the last word, and says what is to be committed together with the object.
    pub async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<Companions, Status> {
        let handlers = self.handlers(attributes);
        for plugin in handlers.iter().filter_map(|at| self.plugins.get(*at)) {
            plugin.validate(attributes, object).await?;
        }
        let mut companions = Companions::default();
        for plugin in handlers.iter().filter_map(|at| self.plugins.get(*at)) {
            companions.extend(plugin.charge(attributes, object).await?);
        }
        Ok(companions)
    }

    /// Who handles the request. What its handler has shown to the plugins already, as a binding of a pod, they do not see a
    /// second time as the change of the object that comes of it.
    fn handlers(&self, attributes: &Attributes<'_>) -> Arc<[usize]> {
        if attributes.context.admitted {
            return Arc::default();
        }
        let request = attributes.request();
        let known = |handlers: &&Handlers| {
            handlers.operation == request.operation
                && *handlers.group == *request.group
                && *handlers.subresource == *request.subresource
        };
        if let Some(found) = self.handlers.load().get(request.resource).and_then(|all| all.iter().find(known)) {
            return found.plugins.clone();
        }
        let plugins: Arc<[usize]> =
            self.plugins.iter().enumerate().filter(|(_, p)| p.handles(&request)).map(|(at, _)| at).collect();
        self.handlers.rcu(|table| {
            let mut table = HashMap::clone(table);
            table.entry(request.resource.into()).or_default().push(Handlers {
                group: request.group.into(),
                subresource: request.subresource.into(),
                operation: request.operation,
                plugins: plugins.clone(),
            });
            table
        });
        plugins
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
        Ok(self.entry(name).await?.map(|entry| entry.object(self.kind)))
    }

    /// The same, as the cache holds it.
    async fn entry(&self, name: &str) -> Result<Option<Arc<Entry>>, Status> {
        let entry = self.resource.get(name);
        if entry.is_some() {
            return Ok(entry);
        }
        self.all.fresh().await.map_err(crate::registry::store_error)?;
        Ok(self.resource.get(name))
    }

    /// The objects of a namespace, as of now.
    fn of_namespace(&self, namespace: &str) -> Vec<Value> {
        self.entries_of(namespace).iter().map(|entry| entry.object(self.kind)).collect()
    }

    /// The same, as the cache holds them.
    fn entries_of(&self, namespace: &str) -> Vec<Arc<Entry>> {
        let prefix = format!("{namespace}/");
        let snapshot = self.resource.snapshot();
        let entries = snapshot.objects.range(Arc::from(prefix.as_str())..);
        entries.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, entry)| entry.clone()).collect()
    }

    /// Is there any object in a namespace? Costs next to nothing where there is none at all.
    fn has_any_of(&self, namespace: &str) -> bool {
        let snapshot = self.resource.snapshot();
        if snapshot.objects.is_empty() {
            return false;
        }
        let prefix = format!("{namespace}/");
        snapshot.objects.range(Arc::from(prefix.as_str())..).next().is_some_and(|(key, _)| key.starts_with(&prefix))
    }

    /// All objects, as of now.
    fn each(&self, mut take: impl FnMut(Value)) {
        for entry in self.resource.snapshot().objects.values() {
            take(entry.object(self.kind));
        }
    }
}

/// Several problems as one text, each once, the way Kubernetes writes them.
fn together(problems: &[String]) -> String {
    let mut each: Vec<&str> = Vec::with_capacity(problems.len());
    for problem in problems {
        if !each.contains(&problem.as_str()) {
            each.push(problem);
        }
    }
    match each.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// What Kubernetes answers where a plugin fails with an error that has no code of its own.
fn failure(why: impl Into<String>) -> Status {
    Status::failure(500, Reason::UNKNOWN, why, None)
}

/// Adds a cause to a refusal.
fn because(mut status: Status, reason: &'static str, message: String, field: &str) -> Status {
    if let Some(details) = &mut status.details {
        details.causes.push(Cause { reason: reason.into(), message, field: field.into() });
    }
    status
}

/// The names of the lists of containers that a pod has, and what Kubernetes calls those in them.
const CONTAINERS: [(&str, &str); 3] =
    [("initContainers", "init container"), ("containers", "container"), ("ephemeralContainers", "ephemeral container")];

#[cfg(test)]
mod tests;
