//! What exists on a fresh server: the namespaces that the cluster itself lives in, and the priorities of its own pods.
//!
//! Everything is created through the registry like any other object, by the server's own identity. What is there already
//! stays as it is.

use std::sync::Arc;

use object_model::status::{Reason, Status};
use serde_json::{Value, json};

use crate::{
    Server,
    catalogue::Target,
    context::{RequestContext, User},
    options::WriteOptions,
};

pub async fn run(server: &Arc<Server>) -> Result<(), Status> {
    let user = User { name: "system:apiserver".into(), groups: vec!["system:masters".into()], ..User::default() };
    let context = RequestContext { user: Arc::new(user), user_agent: "ferry".into(), ..RequestContext::default() };
    for (group, plural, object) in objects() {
        create(server, &context, group, plural, object).await?;
    }
    Ok(())
}

async fn create(
    server: &Arc<Server>,
    context: &RequestContext,
    group: &str,
    plural: &str,
    mut object: Value,
) -> Result<(), Status> {
    let served = server.catalogue.served();
    let Some(resource) = served.find(group, "v1", plural) else { return Ok(()) };
    (resource.strategy.defaults)(&mut object);
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let target = Target { resource, subresource: "", namespace: &namespace, name: "" };
    match server.registry.create(&target, context, object, &WriteOptions::default()).await {
        Err(status) if status.is(Reason::ALREADY_EXISTS) => Ok(()),
        result => result.map(drop),
    }
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
    vec![
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
