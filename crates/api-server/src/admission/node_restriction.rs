//! NodeRestriction: a node writes about itself and its own pods only.
//!
//! The node authorizer has judged what the request names; here is judged what it says.

mod tokens;

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{
    identity::GroupResource,
    meta::{Meta, MetaMut},
    status::Status,
    value::Fields,
};
use serde_json::Value;

use super::{Attributes, Lookup, Operation, Plugin};
use crate::{
    authorization::{
        Authorization,
        node::{
            node_of,
            references::{self, Kind},
        },
    },
    certificates::request::{KUBELET_CLIENT, KUBELET_SERVING, Request as SigningRequest},
    watch_cache::WatchCache,
};

const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// What a node may say of itself in labels of Kubernetes.
const OWN_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const OWN_LABEL_DOMAINS: &[&str] = &["kubelet.kubernetes.io", "node.kubernetes.io"];

pub struct NodeRestriction {
    pods: Lookup,
    nodes: Lookup,
    claims: Lookup,
    volumes: Lookup,
    drivers: Lookup,
    authorization: Arc<Authorization>,
}

impl NodeRestriction {
    pub fn new(cache: &Arc<WatchCache>, authorization: &Arc<Authorization>) -> Self {
        Self {
            pods: Lookup::new(cache, "", "pods", "Pod"),
            nodes: Lookup::new(cache, "", "nodes", "Node"),
            claims: Lookup::new(cache, "", "persistentvolumeclaims", "PersistentVolumeClaim"),
            volumes: Lookup::new(cache, "", "persistentvolumes", "PersistentVolume"),
            drivers: Lookup::new(cache, "storage.k8s.io", "csidrivers", "CSIDriver"),
            authorization: authorization.clone(),
        }
    }

    /// Why the node may not; or a refusal of another kind.
    async fn judge(&self, node: &str, request: &Attributes<'_>, object: &Value) -> Result<(), No> {
        let target = request.target;
        match (&*target.resource.group, &*target.resource.plural, target.subresource) {
            ("", "pods", "") => self.pod(node, request, object).await,
            ("", "pods", "status") => pod_status(node, request, object),
            ("", "pods", "eviction") => self.eviction(node, request, object).await,
            ("", "pods", other) => {
                no(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
            }
            ("", "nodes", _) => itself(node, request, object),
            ("", "persistentvolumeclaims", "status") => claim_status(node, request, object),
            ("", "persistentvolumeclaims", _) => no("may only update PVC status"),
            ("", "serviceaccounts", "token") if request.operation == Operation::Create => {
                self.token(node, request, object).await
            }
            ("coordination.k8s.io", "leases", _) => {
                if target.namespace != LEASES {
                    return no(format!("can only access leases in the {LEASES:?} system namespace"));
                }
                let why = "can only access node lease with the same name as the requesting node";
                if name_of(request, object) == node { Ok(()) } else { no(why) }
            }
            ("storage.k8s.io", "csinodes", _) => {
                let why = "can only access CSINode with the same name as the requesting node";
                if name_of(request, object) == node { Ok(()) } else { no(why) }
            }
            ("resource.k8s.io", "resourceslices", _) => slice(node, request, object),
            ("certificates.k8s.io", "certificatesigningrequests", _) => signing_request(node, request, object),
            _ => Ok(()),
        }
    }

    async fn pod(&self, node: &str, request: &Attributes<'_>, pod: &Value) -> Result<(), No> {
        match request.operation {
            Operation::Create => self.mirror_pod(node, pod).await,
            Operation::Delete => {
                let own = request.old.is_some_and(|pod| node_of_pod(pod) == node);
                let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
                if own { Ok(()) } else { no(why) }
            }
            other => {
                let name = other.name();
                no(format!("unexpected operation {name:?}, node {node:?} can only create and delete mirror pods"))
            }
        }
    }

    /// The pod that a node shows of one it has from elsewhere: its own, owned by itself, without a way to anything else.
    async fn mirror_pod(&self, node: &str, pod: &Value) -> Result<(), No> {
        let meta = Meta::of(pod);
        if meta.annotation(MIRROR).is_none() {
            let why = format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods");
            return no(why);
        }
        if node_of_pod(pod) != node {
            return no(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owners: Vec<_> = meta.owner_references().collect();
        let owner = match owners.as_slice() {
            [owner] => owner,
            [] => return no(format!("node {node:?} can only create pods with an owner reference set to itself")),
            _ => return no(format!("node {node:?} can only create pods with a single owner reference set to itself")),
        };
        if (owner.api_version, owner.kind, owner.name) != ("v1", "Node", node) {
            return no(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        if !owner.controller {
            return no(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
        }
        if owner.block_owner_deletion {
            return no(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let found = self.nodes.get(node).await?;
        let found = found.ok_or_else(|| Status::not_found(&GroupResource::new("", "node"), node))?;
        let uid = Meta::of(&found).uid();
        if owner.uid != uid {
            return no(format!("node {node} UID mismatch: expected {} got {uid}", owner.uid));
        }
        match api_reference(pod) {
            Some(what) => no(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    async fn eviction(&self, node: &str, request: &Attributes<'_>, eviction: &Value) -> Result<(), No> {
        if request.operation != Operation::Create {
            return no(format!("unexpected operation {}", request.operation.name()));
        }
        let pod = self.existing_pod(request.target.namespace, name_of(request, eviction)).await?;
        let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
        if node_of_pod(&pod) == node { Ok(()) } else { no(why) }
    }

    async fn existing_pod(&self, namespace: &str, name: &str) -> Result<Value, No> {
        let found = self.pods.get(&format!("{namespace}/{name}")).await?;
        Ok(found.ok_or_else(|| Status::not_found(&GroupResource::new("", "pod"), name))?)
    }
}

/// A refusal: for what was asked, or of another kind.
enum No {
    Because(String),
    Status(Status),
}

impl From<Status> for No {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

fn no<T>(why: impl Into<String>) -> Result<T, No> {
    Err(No::Because(why.into()))
}

#[async_trait]
impl Plugin for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    async fn mutate(&self, request: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let user = &request.context.user;
        let judged = match node_of(user) {
            None => return Ok(()),
            Some("") => no(format!("could not determine node from user {:?}", user.name)),
            Some(node) if request.operation != Operation::Connect => self.judge(node, request, object).await,
            Some(_) => return Ok(()),
        };
        judged.map_err(|no| match no {
            No::Because(why) => request.forbidden(object, why),
            No::Status(status) => status,
        })
    }
}

fn node_of_pod(pod: &Value) -> &str {
    pod.text_at(&["spec", "nodeName"])
}

/// The name in the path, or on create that of the object.
fn name_of<'a>(request: &Attributes<'a>, object: &'a Value) -> &'a str {
    if request.target.name.is_empty() { Meta::of(object).name() } else { request.target.name }
}

fn pod_status(node: &str, request: &Attributes<'_>, pod: &Value) -> Result<(), No> {
    let Some(old) = request.old else { return no(format!("unexpected operation {:?}", request.operation.name())) };
    if node_of_pod(old) != node {
        return no(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
    }
    if Meta::of(old).get("labels") != Meta::of(pod).get("labels") {
        return no(format!("node {node:?} cannot update labels through pod status"));
    }
    let changes = |field: &str| old.at(&["status", field]) != pod.at(&["status", field]);
    if changes("resourceClaimStatuses") {
        return no(format!("node {node:?} cannot update resource claim statues"));
    }
    if changes("extendedResourceClaimStatus") {
        return no(format!("node {node:?} cannot update extended resource claim status"));
    }
    Ok(())
}

fn claim_status(node: &str, request: &Attributes<'_>, claim: &Value) -> Result<(), No> {
    let Some(old) = request.old else { return no(format!("unexpected operation {:?}", request.operation.name())) };
    let rest = |claim: &Value| {
        let mut claim = claim.clone();
        if let Some(fields) = claim.as_object_mut() {
            let mut meta = MetaMut::of(fields);
            meta.remove("resourceVersion");
            meta.remove("managedFields");
        }
        if let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) {
            for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                status.remove(field);
            }
        }
        claim
    };
    if rest(old) == rest(claim) {
        return Ok(());
    }
    no(format!("node {node:?} is not allowed to update fields other than status.quantity and status.conditions"))
}

fn itself(node: &str, request: &Attributes<'_>, object: &Value) -> Result<(), No> {
    let name = name_of(request, object);
    if name != node {
        return no(format!("node {node:?} is not allowed to modify node {name:?}"));
    }
    let config = |object: &Value| object.at(&["spec", "configSource"]).filter(|config| !config.is_null()).cloned();
    match (request.operation, request.old) {
        (Operation::Create, _) => {
            if config(object).is_some() {
                return no(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
            }
            match forbidden_labels(object, &Value::Null).as_slice() {
                [] => Ok(()),
                labels => {
                    no(format!("node {node:?} is not allowed to set the following labels: {}", labels.join(", ")))
                }
            }
        }
        (Operation::Update, Some(old)) => {
            if config(object).is_some_and(|new| config(old) != Some(new)) {
                let why = format!("node {node:?} is not allowed to update configSource to a new non-nil configSource");
                return no(why);
            }
            if object.at(&["spec", "taints"]) != old.at(&["spec", "taints"]) {
                return no(format!("node {node:?} is not allowed to modify taints"));
            }
            if Meta::of(object).get("ownerReferences") != Meta::of(old).get("ownerReferences") {
                return no(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            match forbidden_labels(object, old).as_slice() {
                [] => Ok(()),
                labels => no(format!("is not allowed to modify labels: {}", labels.join(", "))),
            }
        }
        _ => Ok(()),
    }
}

/// The labels that differ and that a node must not touch, or it could draw workloads to itself.
fn forbidden_labels(object: &Value, old: &Value) -> Vec<String> {
    let (new, old) = (Meta::of(object).labels(), Meta::of(old).labels());
    let changed = new.iter().chain(old.iter()).map(|(key, _)| key).filter(|key| new.get(key) != old.get(key));
    let mut found: Vec<String> = changed.filter(|key| !may_label(key)).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

fn may_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_in = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    if is_in(RESTRICTED) {
        return false;
    }
    let of_kubernetes = is_in("kubernetes.io") || is_in("k8s.io");
    !of_kubernetes || OWN_LABELS.contains(&key) || OWN_LABEL_DOMAINS.iter().any(|domain| is_in(domain))
}

/// What of the API a pod needs, in Kubernetes' words; nothing, if it can run on its own.
fn api_reference(pod: &Value) -> Option<String> {
    let named = references::of_pod(pod);
    let plural = |kind: Kind| match kind {
        Kind::ServiceAccount => "serviceaccounts",
        Kind::Secret => "secrets",
        _ => "configmaps",
    };
    for kind in [Kind::ServiceAccount, Kind::Secret, Kind::ConfigMap] {
        if named.iter().any(|(found, _)| *found == kind) {
            return Some(plural(kind).to_owned());
        }
    }
    if pod.at(&["spec", "resourceClaims"]).is_some_and(|claims| claims.as_array().is_some_and(|c| !c.is_empty())) {
        return Some("resourceclaims".to_owned());
    }
    let volumes = pod.field("spec").map(|spec| spec.items("volumes")).unwrap_or_default();
    volumes.iter().find_map(|volume| {
        let source = VOLUMES.iter().find(|(field, _)| volume.has(field)).map(|(_, what)| (*what).to_owned());
        let projected = || {
            let sources = volume.object("projected")?.items("sources");
            sources
                .iter()
                .find_map(|s| PROJECTED.iter().find(|(field, _)| s.has(field)).map(|(_, what)| (*what).to_owned()))
        };
        source.or_else(projected)
    })
}

const VOLUMES: &[(&str, &str)] = &[
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const PROJECTED: &[(&str, &str)] = &[
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The authorizer knows of existing slices; of new ones, and of each that a collection deletes, it does not.
fn slice(node: &str, request: &Attributes<'_>, object: &Value) -> Result<(), No> {
    let (slice, verb) = match request.operation {
        Operation::Create => (object, "create"),
        Operation::Delete => (request.old.unwrap_or(&Value::Null), "delete"),
        _ => return Ok(()),
    };
    if slice.text_at(&["spec", "nodeName"]) == node {
        return Ok(());
    }
    no(format!("can only {verb} ResourceSlice with the same NodeName as the requesting node"))
}

fn signing_request(node: &str, request: &Attributes<'_>, object: &Value) -> Result<(), No> {
    let signer = object.text_at(&["spec", "signerName"]);
    if request.operation != Operation::Create || ![KUBELET_CLIENT, KUBELET_SERVING].contains(&signer) {
        return Ok(());
    }
    match SigningRequest::read(object) {
        Err(why) => return no(format!("unable to parse csr: {why}")),
        Ok(asked) if asked.common_name == format!("system:node:{node}") => return Ok(()),
        Ok(_) => {}
    }
    no(format!("can only create a node CSR with CN=system:node:{node}"))
}
