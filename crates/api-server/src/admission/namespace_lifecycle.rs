//! NamespaceLifecycle: nothing is created in a namespace that does not exist or is on its way out, and the namespaces
//! that the cluster itself lives in stay.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{identity::GroupResource, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, Operation, Plugin, namespace_terminating};
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

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let target = attributes.target;
        if attributes.is(Operation::Delete, "", "namespaces") && IMMORTAL.contains(&target.name) {
            return Err(attributes.forbidden(&Value::Null, "this namespace may not be deleted"));
        }
        let is_review = matches!(&*target.resource.plural, "localsubjectaccessreviews");
        if !target.resource.namespaced
            || matches!(attributes.operation, Operation::Delete | Operation::Connect)
            || is_review
        {
            return Ok(());
        }
        let Some(namespace) = self.namespaces.get(target.namespace).await? else {
            return Err(Status::not_found(&GroupResource::new("", "namespaces"), target.namespace));
        };
        if attributes.operation == Operation::Create && namespace.text_at(&["status", "phase"]) == "Terminating" {
            let why = format!(
                "unable to create new content in namespace {} because it is being terminated",
                target.namespace
            );
            return Err(namespace_terminating(attributes.forbidden(object, why), target.namespace));
        }
        Ok(())
    }
}
