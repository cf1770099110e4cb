//! The node's heartbeat: a lease that is renewed.

use std::sync::Arc;

use controller_runtime::Clock;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease as Object, LeaseSpec},
        core::v1::Node,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::Settings;

const NAMESPACE: &str = "kube-node-lease";
/// When it has not been renewed for so long, the node is not taken to be alive.
const SECONDS: i32 = 40;

pub struct Lease {
    leases: Api<Object>,
    name: String,
    /// The lease goes with the node.
    owner: OwnerReference,
    clock: Arc<dyn Clock>,
}

impl Lease {
    pub fn new(settings: &Settings, node: &Node) -> Self {
        Self {
            leases: Api::namespaced(settings.client.clone(), NAMESPACE),
            name: settings.node_name.clone(),
            owner: OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: settings.node_name.clone(),
                uid: node.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            },
            clock: settings.clock.clone(),
        }
    }

    pub async fn renew(&mut self) -> kube::Result<()> {
        let spec = LeaseSpec {
            holder_identity: Some(self.name.clone()),
            lease_duration_seconds: Some(SECONDS),
            renew_time: Some(self.clock.micro_time()),
            ..LeaseSpec::default()
        };
        let change = json!({"metadata": {"ownerReferences": [self.owner]}, "spec": spec});
        match self.leases.patch(&self.name, &PatchParams::default(), &Patch::Merge(change)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            other => return other.map(drop),
        }
        let lease = Object {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(NAMESPACE.to_owned()),
                owner_references: Some(vec![self.owner.clone()]),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        };
        self.leases.create(&PostParams::default(), &lease).await.map(drop)
    }
}
