//! What exists on a fresh server: the namespaces that the cluster itself lives in, the priorities of its own pods, the
//! block that Services have their addresses from, the Service by which pods reach the API, and who may do what.
//!
//! Everything is created through the registry like any other object, by the server's own identity. What is there already
//! stays as it is.

use std::{net::SocketAddr, sync::Arc};

use async_trait::async_trait;
use object_model::status::Status;
use serde_json::{Value, json};

use crate::{
    Server,
    authentication::published,
    authorization::{MASTERS, rbac},
    catalogue::Target,
    context::{RequestContext, User},
    fairness,
    options::WriteOptions,
    own_endpoints,
    registry::{Change, services::is_ready, store_error},
};

const SERVICE_BLOCK: &str = "10.96.0.0/16";
const OWN_ADDRESS: &str = "10.96.0.1";
const DEFAULT_PORT: u16 = 6443;

/// As whom the server itself acts.
pub(crate) fn own_user() -> Arc<User> {
    Arc::new(User { name: "system:apiserver".into(), groups: vec![MASTERS.into()], ..User::default() })
}

pub async fn run(server: &Arc<Server>, advertise: Option<SocketAddr>) -> Result<(), Status> {
    let context = RequestContext { user: own_user(), user_agent: "ferry".into(), ..RequestContext::default() };
    for (group, plural, object) in objects() {
        create(server, &context, group, plural, object).await?;
    }
    make_ready(server, &context).await?;
    create(server, &context, "", "services", own_service(&server.address, advertise)).await?;
    rbac::reconcile(server, &context).await?;
    fairness::ensure(server, &context.user).await?;
    server.registry.cache.fresh().await.map_err(store_error)?;
    tokio::spawn(fairness::keep(server.clone(), context.user.clone()));
    published::keep(server, context.clone()).await;
    if let Some(advertised) = advertise {
        own_endpoints::keep(server, context.user, advertised).await;
    }
    Ok(())
}

pub(crate) async fn create(
    server: &Arc<Server>,
    context: &RequestContext,
    group: &str,
    plural: &str,
    mut object: Value,
) -> Result<(), Status> {
    let served = server.catalogue.served();
    let Some(resource) = served.find(group, "v1", plural) else { return Ok(()) };
    (resource.strategy.defaults)(&mut object);
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text("namespace"), text("name"));
    let target = Target { resource, subresource: "", namespace: &namespace, name: &name };
    let exists = || resource.cache.get(&target.cache_name()).is_some();
    if exists() {
        return Ok(());
    }
    let Err(status) = server.registry.create(&target, context, object, &WriteOptions::default()).await else {
        return Ok(());
    };
    // Another server may have been faster.
    server.registry.cache.fresh().await.map_err(store_error)?;
    if exists() { Ok(()) } else { Err(status) }
}

/// The first block is ready from the start; later ones are made so by their controller.
async fn make_ready(server: &Arc<Server>, context: &RequestContext) -> Result<(), Status> {
    let served = server.catalogue.served();
    let Some(resource) = served.find("networking.k8s.io", "v1", "servicecidrs") else { return Ok(()) };
    let target = Target { resource, subresource: "status", namespace: "", name: "kubernetes" };
    let mut change = Ready { now: server.registry.clock.seconds().to_string() };
    server.registry.update(&target, context, &mut change, &WriteOptions::default()).await.map(drop)
}

struct Ready {
    now: String,
}

#[async_trait]
impl Change for Ready {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let mut block = current.cloned().unwrap_or_default();
        if !is_ready(&block) {
            block["status"] = json!({"conditions": [{
                "type": "Ready",
                "status": "True",
                "lastTransitionTime": self.now,
                "reason": "",
                "message": "Kubernetes default Service CIDR is ready",
            }]});
        }
        Ok(block)
    }
}

/// At the first address of the first block.
fn own_service(address: &str, advertise: Option<SocketAddr>) -> Value {
    let told = || address.rsplit(':').next().and_then(|port| port.parse().ok());
    let port = advertise.map(|address| address.port()).or_else(told).unwrap_or(DEFAULT_PORT);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": OWN_ADDRESS,
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": port}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn objects() -> Vec<(&'static str, &'static str, Value)> {
    let namespace = |name: &str| {
        let object = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {},
            "status": {},
        });
        ("", "namespaces", object)
    };
    let priority = |name: &str, value: i64, description: &str| {
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": description,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        ("scheduling.k8s.io", "priorityclasses", object)
    };
    let block = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": [SERVICE_BLOCK]},
        "status": {},
    });
    vec![
        ("networking.k8s.io", "servicecidrs", block),
        namespace("default"),
        namespace("kube-node-lease"),
        namespace("kube-public"),
        namespace("kube-system"),
        priority(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        priority(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
}
