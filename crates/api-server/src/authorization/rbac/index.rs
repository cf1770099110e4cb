//! Roles and bindings, arranged for the question who may do what.
//!
//! Bindings are found by the name of a user or group, cluster-wide and in one namespace; a service account is the user it
//! acts as. A role is compiled when it changes: its rules are found by the resources they name. Nothing is scanned whose
//! subject does not match.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry as Slot},
    sync::Arc,
};

use object_model::value::Fields;
use serde_json::Value;

use super::Rule;
use crate::{
    authentication::service_accounts,
    authorization::{Attributes, follower},
    context::User,
    watch_cache::Entry,
};

/// The resources that the index follows, in the order of their positions.
pub const RESOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];
const KINDS: [&str; 4] = ["ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"];
const CLUSTER_ROLE: usize = 0;
const ROLE: usize = 1;
const CLUSTER_BINDING: usize = 2;

#[derive(Default)]
pub struct Index {
    cluster_roles: HashMap<Box<str>, Role>,
    /// By `namespace/name`.
    roles: HashMap<Box<str>, Role>,
    everywhere: Grants,
    inside: HashMap<Box<str>, Grants>,
    /// Whom each binding names, to find its grants again when it changes. By position and key.
    bindings: HashMap<(usize, Box<str>), HashSet<Subject>>,
}

/// A role's rules, found by what they are about.
pub struct Role {
    pub rules: Arc<[Rule]>,
    by_resource: HashMap<Box<str>, Vec<usize>>,
    by_url: Vec<usize>,
}

/// Who has which roles in one place.
#[derive(Default)]
struct Grants {
    users: HashMap<Box<str>, Vec<Grant>>,
    groups: HashMap<Box<str>, Vec<Grant>>,
}

/// One subject's share of one binding.
pub struct Grant {
    binding: Box<str>,
    pub role: RoleRef,
    /// Told when this is what allows a request.
    pub reason: Arc<str>,
}

/// Which role a binding gives, by its key in the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleRef {
    Cluster(Box<str>),
    Local(Box<str>),
    /// No such kind of role exists; validation lets none in.
    Unknown(Box<str>),
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Subject {
    User(Box<str>),
    Group(Box<str>),
}

impl follower::Index for Index {
    fn apply(&mut self, resource: usize, key: &str, entry: Option<&Entry>) {
        let object = entry.map(|e| e.object(KINDS[resource]));
        self.apply_object(resource, key, object.as_ref());
    }
}

impl Index {
    pub(super) fn apply_object(&mut self, resource: usize, key: &str, object: Option<&Value>) {
        match resource {
            CLUSTER_ROLE => replace(&mut self.cluster_roles, key, object.map(Role::compile)),
            ROLE => replace(&mut self.roles, key, object.map(Role::compile)),
            _ => self.bind(resource, key, object),
        }
    }

    fn bind(&mut self, resource: usize, key: &str, binding: Option<&Value>) {
        let namespace = match resource {
            CLUSTER_BINDING => "",
            _ => key.split_once('/').map_or("", |(namespace, _)| namespace),
        };
        for subject in self.bindings.remove(&(resource, key.into())).unwrap_or_default() {
            self.grants(namespace).remove(&subject, key);
        }
        let grants = self.grants(namespace);
        let Some(binding) = binding else {
            if grants.is_empty() {
                self.inside.remove(namespace);
            }
            return;
        };
        let role = RoleRef::of(binding, namespace);
        let mut bound = HashSet::new();
        for given in binding.items("subjects") {
            // Only the first mention of somebody counts.
            let Some(subject) = Subject::of(given, namespace).filter(|subject| !bound.contains(subject)) else {
                continue;
            };
            let reason = reason(binding, given, namespace).into();
            grants.of_mut(&subject).push(Grant { binding: key.into(), role: role.clone(), reason });
            bound.insert(subject);
        }
        self.bindings.insert((resource, key.into()), bound);
    }

    fn grants(&mut self, namespace: &str) -> &mut Grants {
        if namespace.is_empty() {
            return &mut self.everywhere;
        }
        self.inside.entry(namespace.into()).or_default()
    }

    /// Everything that a user was given in a namespace, and everywhere. Of each grant, the role if it exists.
    pub fn grants_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Grant, Option<&'a Role>)> {
        let inside = if namespace.is_empty() { None } else { self.inside.get(namespace) };
        let places = [Some(&self.everywhere), inside];
        let grants = places.into_iter().flatten().flat_map(move |place| {
            let own = place.users.get(&*user.name).into_iter();
            own.chain(user.groups.iter().filter_map(|group| place.groups.get(&**group))).flatten()
        });
        grants.map(|grant| (grant, self.role(&grant.role)))
    }

    pub fn role(&self, role: &RoleRef) -> Option<&Role> {
        match role {
            RoleRef::Cluster(name) => self.cluster_roles.get(name),
            RoleRef::Local(key) => self.roles.get(key),
            RoleRef::Unknown(_) => None,
        }
    }
}

impl RoleRef {
    /// The role of a binding in `namespace`, which is empty for the whole cluster.
    pub fn of(binding: &Value, namespace: &str) -> Self {
        let name = binding.text_at(&["roleRef", "name"]);
        match binding.text_at(&["roleRef", "kind"]) {
            "ClusterRole" => Self::Cluster(name.into()),
            "Role" => Self::Local(format!("{namespace}/{name}").into()),
            kind => Self::Unknown(kind.into()),
        }
    }

    /// Why there is no such role. Kubernetes' index and its registry name resources differently.
    pub fn missing(&self, in_registry: bool) -> String {
        let plural = if in_registry { "s" } else { "" };
        match self {
            Self::Cluster(name) => format!("clusterrole{plural}.rbac.authorization.k8s.io {name:?} not found"),
            Self::Local(key) => {
                let name = key.split_once('/').map_or(&**key, |(_, name)| name);
                format!("role{plural}.rbac.authorization.k8s.io {name:?} not found")
            }
            Self::Unknown(kind) => format!("unsupported role reference kind: {kind:?}"),
        }
    }
}

impl Role {
    fn compile(role: &Value) -> Self {
        let rules: Arc<[Rule]> = Rule::of_role(role).into();
        let mut by_resource: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        let mut by_url = Vec::new();
        for (position, rule) in rules.iter().enumerate() {
            for resource in &rule.resources {
                by_resource.entry(resource.clone()).or_default().push(position);
            }
            if !rule.non_resource_urls.is_empty() {
                by_url.push(position);
            }
        }
        Self { rules, by_resource, by_url }
    }

    /// `combined` is the resource with its subresource, `wildcard` the subresource of everything, if there is one.
    pub fn allows(&self, attributes: &Attributes<'_>, combined: &str, wildcard: Option<&str>) -> bool {
        let allow = |positions: &[usize]| {
            positions.iter().filter_map(|at| self.rules.get(*at)).any(|rule| rule.allows(attributes, combined))
        };
        if !attributes.is_resource {
            return allow(&self.by_url);
        }
        let named = [Some(combined), Some("*"), wildcard];
        named.into_iter().flatten().filter_map(|name| self.by_resource.get(name)).any(|positions| allow(positions))
    }
}

impl Grants {
    fn of_mut(&mut self, subject: &Subject) -> &mut Vec<Grant> {
        match subject {
            Subject::User(name) => self.users.entry(name.clone()).or_default(),
            Subject::Group(name) => self.groups.entry(name.clone()).or_default(),
        }
    }

    fn remove(&mut self, subject: &Subject, binding: &str) {
        let (map, name) = match subject {
            Subject::User(name) => (&mut self.users, name),
            Subject::Group(name) => (&mut self.groups, name),
        };
        if let Slot::Occupied(mut slot) = map.entry(name.clone()) {
            slot.get_mut().retain(|grant| *grant.binding != *binding);
            if slot.get().is_empty() {
                slot.remove();
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }
}

impl Subject {
    /// In a namespace, a service account without one is of that namespace.
    fn of(subject: &Value, namespace: &str) -> Option<Self> {
        let name = subject.text("name");
        match subject.text("kind") {
            "User" => Some(Self::User(name.into())),
            "Group" => Some(Self::Group(name.into())),
            "ServiceAccount" => match account_namespace(subject, namespace) {
                "" => None,
                namespace => Some(Self::User(service_accounts::user_name(namespace, name).into())),
            },
            _ => None,
        }
    }
}

fn account_namespace<'a>(subject: &'a Value, namespace: &'a str) -> &'a str {
    match subject.text("namespace") {
        "" => namespace,
        given => given,
    }
}

/// Why a request that this binding allows is allowed.
fn reason(binding: &Value, subject: &Value, namespace: &str) -> String {
    let name = binding.text_at(&["metadata", "name"]);
    let (kind, shown) = if namespace.is_empty() {
        ("ClusterRoleBinding", name.to_owned())
    } else {
        ("RoleBinding", format!("{name}/{namespace}"))
    };
    let role = (binding.text_at(&["roleRef", "kind"]), binding.text_at(&["roleRef", "name"]));
    let whom = match subject.text("kind") {
        "ServiceAccount" => format!("{}/{}", subject.text("name"), account_namespace(subject, namespace)),
        _ => subject.text("name").to_owned(),
    };
    format!("RBAC: allowed by {kind} {shown:?} of {} {:?} to {} {whom:?}", role.0, role.1, subject.text("kind"))
}

fn replace(roles: &mut HashMap<Box<str>, Role>, key: &str, role: Option<Role>) {
    match role {
        Some(role) => roles.insert(key.into(), role),
        None => roles.remove(key),
    };
}
