//! StorageObjectInUseProtection: volumes, claims and classes of volume attributes are not deleted under those who use them.

use async_trait::async_trait;
use object_model::{meta::MetaMut, status::Status};
use serde_json::Value;

use super::{Attributes, Plugin, Request};

/// The resources, and the finalizer that their controller removes when nobody uses the object.
const PROTECTED: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

pub struct StorageObjectInUseProtection;

fn finalizer(request: &Request<'_>) -> Option<&'static str> {
    let found = PROTECTED.iter().find(|(group, resource, _)| request.creates(group, resource));
    found.map(|(_, _, finalizer)| *finalizer)
}

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        finalizer(request).is_some()
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        if let (Some(finalizer), Some(fields)) = (finalizer(&attributes.request()), object.as_object_mut()) {
            MetaMut::of(fields).add_finalizer(finalizer);
        }
        Ok(())
    }
}
