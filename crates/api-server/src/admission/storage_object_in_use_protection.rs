//! StorageObjectInUseProtection: volumes and claims are not deleted under those who use them.

use async_trait::async_trait;
use object_model::{
    meta::{Meta, MetaMut},
    status::Status,
};
use serde_json::Value;

use super::{Attributes, Operation, Plugin};

pub struct StorageObjectInUseProtection;

#[async_trait]
impl Plugin for StorageObjectInUseProtection {
    fn name(&self) -> &'static str {
        "StorageObjectInUseProtection"
    }

    async fn mutate(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let create = |plural| attributes.is(Operation::Create, "", plural);
        let finalizer = match () {
            () if create("persistentvolumes") => "kubernetes.io/pv-protection",
            () if create("persistentvolumeclaims") => "kubernetes.io/pvc-protection",
            () => return Ok(()),
        };
        if !Meta::of(object).has_finalizer(finalizer) {
            let mut finalizers: Vec<Value> = Meta::of(object).finalizers().map(Value::from).collect();
            finalizers.push(finalizer.into());
            if let Some(fields) = object.as_object_mut() {
                MetaMut::of(fields).set_list("finalizers", finalizers);
            }
        }
        Ok(())
    }
}
