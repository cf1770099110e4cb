//! OwnerReferencesPermissionEnforcement: whoever names an owner must be allowed to delete what it owns, and whoever makes the
//! owner wait for it must be allowed to do that to the owner. By flag.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use object_model::{
    meta::{Meta, OwnerReference},
    status::Status,
};
use serde_json::Value;

use super::{Attributes, Operation, Plugin, Request};
use crate::{
    authorization::{self, Authorization, Decision},
    catalogue::Catalogue,
};

pub struct OwnerReferencesPermissionEnforcement {
    authorization: Arc<Authorization>,
    catalogue: Arc<Catalogue>,
}

impl OwnerReferencesPermissionEnforcement {
    pub fn new(authorization: &Arc<Authorization>, catalogue: &Arc<Catalogue>) -> Self {
        Self { authorization: authorization.clone(), catalogue: catalogue.clone() }
    }

    async fn decide(
        &self,
        attributes: &Attributes<'_>,
        verb: &str,
        (group, resource, subresource): (&str, &str, &str),
        namespace: &str,
        name: &str,
    ) -> Decision {
        let question = authorization::Attributes {
            subresource,
            namespace,
            name: Cow::Borrowed(name),
            ..authorization::Attributes::of_resource(&attributes.context.user, verb, group, resource)
        };
        self.authorization.decide(&question).await
    }
}

#[async_trait]
impl Plugin for OwnerReferencesPermissionEnforcement {
    fn name(&self) -> &'static str {
        "OwnerReferencesPermissionEnforcement"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        // The status of a pod cannot change its owners.
        matches!(request.operation, Operation::Create | Operation::Update) && !request.is_of("", "pods", "status")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let owners = |object: &Value| Meta::of(object).get("ownerReferences").cloned();
        if attributes.old.and_then(owners) == owners(object) {
            return Ok(());
        }
        let target = attributes.target;
        if attributes.operation != Operation::Create {
            let itself = (&*target.resource.group, &*target.resource.plural, target.subresource);
            let decision = self.decide(attributes, "delete", itself, target.namespace, target.name).await;
            if !decision.is_allowed() {
                let why = "cannot set an ownerRef on a resource you can't delete";
                return Err(attributes.forbidden(object, told(why, &decision)));
            }
        }
        let waits: Vec<OwnerReference<'_>> = newly_blocking(object, attributes.old);
        if waits.is_empty() || self.decide(attributes, "update", ("*", "*", "finalizers"), "", "*").await.is_allowed() {
            return Ok(());
        }
        let served = self.catalogue.served();
        for owner in waits {
            let (group, version) = owner.api_version.split_once('/').unwrap_or(("", owner.api_version));
            let found =
                served.resources().find(|r| *r.group == *group && *r.version == *version && *r.kind == *owner.kind);
            let Some(resource) = found else {
                let (version, kind) = (owner.api_version, owner.kind);
                let why = format!(
                    "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {version} \
                     Kind {kind}: no matches for kind {kind:?} in version {version:?}"
                );
                return Err(attributes.forbidden(object, why));
            };
            let namespace = if resource.namespaced { target.namespace } else { "" };
            let finalizers = (&*resource.group, &*resource.plural, "finalizers");
            let decision = self.decide(attributes, "update", finalizers, namespace, owner.name).await;
            if !decision.is_allowed() {
                let why = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on";
                return Err(attributes.forbidden(object, told(why, &decision)));
            }
        }
        Ok(())
    }
}

/// With the judges' reason and error, as Kubernetes adds them.
fn told(why: &str, decision: &Decision) -> String {
    format!("{why}: {}, {}", decision.reason(), decision.error.as_deref().unwrap_or("<nil>"))
}

/// The owners that an object makes wait for it and did not before.
fn newly_blocking<'a>(object: &'a Value, old: Option<&Value>) -> Vec<OwnerReference<'a>> {
    let blocks = |owner: &OwnerReference<'_>| owner.block_owner_deletion;
    let did = |owner: &OwnerReference<'_>| {
        old.is_some_and(|old| Meta::of(old).owner_references().any(|known| known.uid == owner.uid && blocks(&known)))
    };
    Meta::of(object).owner_references().filter(|owner| blocks(owner) && !did(owner)).collect()
}
