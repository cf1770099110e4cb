//! NamespaceLifecycle: nothing is made in a namespace that is not there or on its way out, and some namespaces stay.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{
    identity::GroupResource,
    status::{Status, cause},
};
use serde_json::Value;

use super::{Attributes, Lookup, Operation, Plugin, Request, because};
use crate::watch_cache::WatchCache;

const IMMORTAL: &[&str] = &["default", "kube-system", "kube-public"];

pub struct NamespaceLifecycle {
    namespaces: Lookup,
}

impl NamespaceLifecycle {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { namespaces: Lookup::new(cache, "", "namespaces", "Namespace") }
    }
}

#[async_trait]
impl Plugin for NamespaceLifecycle {
    fn name(&self) -> &'static str {
        "NamespaceLifecycle"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        match request.operation {
            Operation::Delete => request.is_of("", "namespaces", ""),
            // Who asks for permissions must not learn which namespaces there are.
            Operation::Create | Operation::Update => {
                request.namespaced && !request.is_of("authorization.k8s.io", "localsubjectaccessreviews", "")
            }
            Operation::Connect => false,
        }
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let target = attributes.target;
        if attributes.operation == Operation::Delete {
            return match IMMORTAL.contains(&target.name) {
                true => Err(attributes.forbidden(&Value::Null, "this namespace may not be deleted")),
                false => Ok(()),
            };
        }
        let namespace = target.namespace;
        let Some(found) = self.namespaces.entry(namespace).await? else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace));
        };
        let phase = self.namespaces.resource.selectable("status.phase").and_then(|at| found.fields.get(at));
        if attributes.operation == Operation::Create && phase.is_some_and(|phase| &**phase == "Terminating") {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let message = format!("namespace {namespace} is being terminated");
            let refusal = attributes.forbidden(object, why);
            return Err(because(refusal, cause::NAMESPACE_TERMINATING, message, "metadata.namespace"));
        }
        Ok(())
    }
}
