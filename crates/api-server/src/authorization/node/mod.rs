//! The node authorizer: a node may read what its own pods need, and write about itself.
//!
//! Whatever belongs to pods and volumes is judged by a graph that follows the watch cache. Where a judge cannot see what is
//! written, as on create, the admission plugin NodeRestriction looks at it. All else is as the role `system:node` says.

mod graph;
pub mod references;

use async_trait::async_trait;
use graph::Graph;
use references::Kind;

use super::{
    Attributes, Authorizer, Decision, Rules, Verdict,
    follower::Followed,
    rbac::{Rule, policy},
};
use crate::{catalogue::store_prefix, context::User, watch_cache::WatchCache};

const NODES: &str = "system:nodes";
const PREFIX: &str = "system:node:";
const LEASES: &str = "kube-node-lease";

/// The node that a user is; the name is empty if it cannot be told. `None` for everybody else.
pub fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(PREFIX).filter(|_| user.is_in(NODES))
}

pub struct NodeAuthorizer {
    graph: Followed<Graph>,
    rules: Vec<Rule>,
}

impl NodeAuthorizer {
    pub fn new(cache: &WatchCache) -> Self {
        let resources = graph::RESOURCES.map(|(group, plural, _)| cache.resource(&store_prefix(group, plural)));
        Self { graph: Followed::new(resources), rules: policy::node_rules() }
    }

    /// Decides without waiting for anybody.
    pub fn judge(&self, request: &Attributes<'_>) -> Decision {
        let node = match node_of(request.user) {
            None => return Decision::no_opinion(),
            Some("") => return because(format!("unknown node for user {:?}", request.user.name)),
            Some(node) => node,
        };
        let verdict = match (request.is_resource, request.group, request.resource) {
            (true, "", "secrets") => self.readable(node, request, Kind::Secret),
            (true, "", "configmaps") => self.readable(node, request, Kind::ConfigMap),
            (true, "", "serviceaccounts") => self.service_account(node, request),
            (true, "", "persistentvolumeclaims") => self.volume_claim(node, request),
            (true, "", "persistentvolumes") => gettable(request).and_then(|()| self.related(node, request, None)),
            (true, "storage.k8s.io", "volumeattachments") => {
                gettable(request).and_then(|()| self.related(node, request, None))
            }
            (true, "resource.k8s.io", "resourceclaims") => {
                gettable(request).and_then(|()| self.related(node, request, Some(Kind::ResourceClaim)))
            }
            (true, "resource.k8s.io", "resourceslices") => self.slice(node, request),
            (true, "coordination.k8s.io", "leases") => lease(node, request),
            (true, "storage.k8s.io", "csinodes") => csi_node(node, request),
            (true, "", "nodes") => itself(node, request),
            (true, "", "pods") => self.pod(node, request),
            (true, "certificates.k8s.io", "podcertificaterequests") => Err(String::new()),
            _ => {
                let combined = request.combined_resource();
                let allowed = self.rules.iter().any(|rule| rule.allows(request, &combined));
                if allowed { Ok(()) } else { Err(String::new()) }
            }
        };
        match verdict {
            Ok(()) => Decision { verdict: Verdict::Allow, ..Decision::default() },
            Err(why) if why.is_empty() => Decision::no_opinion(),
            Err(why) => because(why),
        }
    }

    /// The object must be one that the node needs.
    fn related(&self, node: &str, request: &Attributes<'_>, kind: Option<Kind>) -> Answer {
        let name = &*request.name;
        if name.is_empty() {
            return Err("No Object name found".into());
        }
        let related = self.graph.read(|graph| match (kind, request.resource) {
            (Some(kind), _) => graph.needs(node, kind, request.namespace, name),
            (None, "persistentvolumes") => graph.needs_volume(node, name),
            (None, "volumeattachments") => graph.has_attachment(node, name),
            (None, _) => graph.has_slice(node, name),
        });
        if related { Ok(()) } else { Err(format!("no relationship found between node '{node}' and this object")) }
    }

    fn readable(&self, node: &str, request: &Attributes<'_>, kind: Kind) -> Answer {
        allow_verbs(request, &["get", "list", "watch"], "can only read resources of this type")?;
        no_subresource(request, "cannot read subresource")?;
        if request.namespace.is_empty() {
            return Err("can only read namespaced object of this type".into());
        }
        self.related(node, request, Some(kind))
    }

    fn volume_claim(&self, node: &str, request: &Attributes<'_>) -> Answer {
        if request.subresource == "status" {
            allow_verbs(request, &["update", "patch"], "can only get/update/patch this type")?;
        } else {
            gettable(request)?;
        }
        self.related(node, request, Some(Kind::VolumeClaim))
    }

    fn service_account(&self, node: &str, request: &Attributes<'_>) -> Answer {
        if request.verb == "get" && request.subresource.is_empty() {
            return self.readable(node, request, Kind::ServiceAccount);
        }
        if request.verb != "create" || request.name.is_empty() {
            return Err("can only create tokens for individual service accounts".into());
        }
        if request.subresource != "token" {
            return Err("can only create token subresource of serviceaccount".into());
        }
        self.related(node, request, Some(Kind::ServiceAccount))
    }

    fn slice(&self, node: &str, request: &Attributes<'_>) -> Answer {
        no_subresource(request, "cannot authorize ResourceSlice subresources")?;
        match request.verb {
            "create" => Ok(()),
            "get" | "update" | "patch" | "delete" => self.related(node, request, None),
            "watch" | "list" | "deletecollection" => {
                let why = "can only list/watch/deletecollection resourceslices with nodeName field selector";
                if request.selects_field("spec.nodeName", node) { Ok(()) } else { Err(why.into()) }
            }
            _ => Err(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, \
                      delete, deletecollection"
                    .into(),
            ),
        }
    }

    fn pod(&self, node: &str, request: &Attributes<'_>) -> Answer {
        match (request.subresource, request.verb) {
            ("", "get") => self.related(node, request, Some(Kind::Pod)),
            ("", "list" | "watch") if request.selects_field("spec.nodeName", node) => Ok(()),
            ("", "list" | "watch") if request.name.is_empty() => {
                Err("can only list/watch pods with spec.nodeName field selector".into())
            }
            ("", "list" | "watch") => self.related(node, request, Some(Kind::Pod)),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Ok(()),
            _ => Err(String::new()),
        }
    }
}

/// Why not; an empty text if there is nothing to say.
type Answer = Result<(), String>;

fn because(why: String) -> Decision {
    Decision::no_opinion_because(why)
}

fn allow_verbs(request: &Attributes<'_>, verbs: &[&str], why: &str) -> Answer {
    if verbs.contains(&request.verb) { Ok(()) } else { Err(why.into()) }
}

fn no_subresource(request: &Attributes<'_>, why: &str) -> Answer {
    if request.subresource.is_empty() { Ok(()) } else { Err(why.into()) }
}

fn gettable(request: &Attributes<'_>) -> Answer {
    allow_verbs(request, &["get"], "can only get individual resources of this type")?;
    no_subresource(request, "cannot get subresource")
}

const OWN_VERBS: &[&str] = &["get", "create", "update", "patch", "delete"];

/// On create the name is not known here.
fn lease(node: &str, request: &Attributes<'_>) -> Answer {
    allow_verbs(request, OWN_VERBS, "can only get, create, update, patch, or delete a node lease")?;
    if request.namespace != LEASES {
        return Err(format!("can only access leases in the {LEASES:?} system namespace"));
    }
    if request.verb != "create" && request.name != node {
        return Err("can only access node lease with the same name as the requesting node".into());
    }
    Ok(())
}

fn csi_node(node: &str, request: &Attributes<'_>) -> Answer {
    allow_verbs(request, OWN_VERBS, "can only get, create, update, patch, or delete a CSINode")?;
    no_subresource(request, "cannot authorize CSINode subresources")?;
    if request.verb != "create" && request.name != node {
        return Err("can only access CSINode with the same name as the requesting node".into());
    }
    Ok(())
}

fn itself(node: &str, request: &Attributes<'_>) -> Answer {
    match (request.subresource, request.verb, &*request.name) {
        ("", "create" | "update" | "patch", _) | ("status", "update" | "patch", _) => Ok(()),
        ("", "get" | "list" | "watch", name) if name == node => Ok(()),
        ("", "get" | "list" | "watch", "") => {
            Err(format!("node '{node}' cannot read all nodes, only its own Node object"))
        }
        ("", "get" | "list" | "watch", name) => {
            Err(format!("node '{node}' cannot read '{name}', only its own Node object"))
        }
        _ => Err(String::new()),
    }
}

#[async_trait]
impl Authorizer for NodeAuthorizer {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        self.judge(attributes)
    }

    fn rules(&self, user: &User, _: &str) -> Rules {
        if node_of(user).is_none() {
            return Rules::default();
        }
        let error = "node authorizer does not support user rule resolution".to_owned();
        Rules { incomplete: true, errors: vec![error], ..Rules::default() }
    }
}

#[cfg(test)]
mod tests;
