//! PersistentVolumeClaimResize: a claim grows only where its class can make volumes grow.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::Meta, quantity::Quantity, status::Status, value::Fields};
use serde_json::Value;

use super::{Attributes, Lookup, Plugin, Request};
use crate::watch_cache::WatchCache;

pub struct PersistentVolumeClaimResize {
    classes: Lookup,
}

impl PersistentVolumeClaimResize {
    pub fn new(cache: &Arc<WatchCache>) -> Self {
        Self { classes: Lookup::new(cache, "storage.k8s.io", "storageclasses", "StorageClass") }
    }

    fn may_grow(&self, claim: &Value, old: &Value) -> bool {
        let class = class_of(claim);
        if class.is_empty() || class != class_of(old) {
            return false;
        }
        let class = self.classes.resource.get(class).map(|entry| entry.object(self.classes.kind));
        class.is_some_and(|class| class.flag("allowVolumeExpansion") == Some(true))
    }
}

#[async_trait]
impl Plugin for PersistentVolumeClaimResize {
    fn name(&self) -> &'static str {
        "PersistentVolumeClaimResize"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        request.updates("", "persistentvolumeclaims", "")
    }

    async fn validate(&self, attributes: &Attributes<'_>, object: &Value) -> Result<(), Status> {
        let Some(old) = attributes.old else { return Ok(()) };
        if size(object) <= size(old) {
            return Ok(());
        }
        if old.text_at(&["status", "phase"]) != "Bound" {
            return Err(attributes.forbidden(object, "Only bound persistent volume claims can be expanded"));
        }
        if self.may_grow(object, old) {
            return Ok(());
        }
        let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must \
                   support resize";
        Err(attributes.forbidden(object, why))
    }
}

fn size(claim: &Value) -> Quantity {
    let size = claim.at(&["spec", "resources", "requests", "storage"]);
    size.and_then(|size| Quantity::of(size).ok()).unwrap_or(Quantity::ZERO)
}

/// The class of a claim, which may be named in two places.
pub(super) fn class_of(claim: &Value) -> &str {
    Meta::of(claim)
        .annotation("volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| claim.text_at(&["spec", "storageClassName"]))
}
