//! Who owns whom, as far as informers have told. It knows presence, never absence: that an owner does not exist is for
//! the server to say.
//!
//! Every change gives the uids that want a look because of it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use controller_runtime::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;

use crate::discovered::Discovered;

pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

/// An object with what decides about its life.
#[derive(Clone, Debug)]
pub struct Node {
    pub resource: Arc<Discovered>,
    pub key: Key,
    pub uid: String,
    pub owners: Vec<OwnerReference>,
    pub being_deleted: bool,
    /// Whether it waits until its dependents are orphaned.
    pub orphans: bool,
    /// Whether it waits until its dependents are deleted.
    pub waits_for_dependents: bool,
}

impl Node {
    pub fn new(resource: &Arc<Discovered>, meta: &ObjectMeta) -> Self {
        let being_deleted = meta.deletion_timestamp.is_some();
        Self {
            resource: resource.clone(),
            key: Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default()),
            uid: meta.uid.clone().unwrap_or_default(),
            owners: meta.owner_references.clone().unwrap_or_default(),
            being_deleted,
            orphans: being_deleted && has_finalizer(meta, ORPHAN),
            waits_for_dependents: being_deleted && has_finalizer(meta, FOREGROUND),
        }
    }

    pub fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|reference| reference.uid == owner && is_blocking(reference))
    }
}

pub fn has_finalizer(meta: &ObjectMeta, name: &str) -> bool {
    meta.finalizers.iter().flatten().any(|finalizer| finalizer == name)
}

fn is_blocking(reference: &OwnerReference) -> bool {
    reference.block_owner_deletion == Some(true)
}

#[derive(Default)]
pub struct Graph {
    nodes: HashMap<String, Arc<Node>>,
    /// Who names an owner, whether or not the owner has been seen.
    dependents: HashMap<String, HashSet<String>>,
}

impl Graph {
    pub fn get(&self, uid: &str) -> Option<Arc<Node>> {
        self.nodes.get(uid).cloned()
    }

    pub fn dependents(&self, uid: &str) -> Vec<Arc<Node>> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|uid| self.get(uid)).collect()
    }

    /// Whether an owner is known to be there, as the reference says, and does not take its dependents with it.
    pub fn is_solid(&self, reference: &OwnerReference, dependent: &Node) -> bool {
        self.nodes.get(&reference.uid).is_some_and(|owner| {
            let resource = &owner.resource.resource;
            resource.api_version == reference.api_version
                && resource.kind == reference.kind
                && owner.key.name == reference.name
                && (owner.key.namespace.is_empty() || owner.key.namespace == dependent.key.namespace)
                && !owner.waits_for_dependents
        })
    }

    /// Whether an owner is known to be in another namespace than its dependent.
    pub fn is_elsewhere(&self, reference: &OwnerReference, dependent: &Node) -> bool {
        self.nodes
            .get(&reference.uid)
            .is_some_and(|owner| !owner.key.namespace.is_empty() && owner.key.namespace != dependent.key.namespace)
    }

    pub fn applied(&mut self, node: Node) -> Vec<String> {
        let (node, mut look) = (Arc::new(node), Vec::new());
        let old = self.nodes.insert(node.uid.clone(), node.clone());
        for was in old.iter().flat_map(|old| &old.owners) {
            let still = node.owners.iter().find(|now| now.uid == was.uid);
            if still.is_none() {
                self.unlink(&was.uid, &node.uid);
            }
            if is_blocking(was) && !still.is_some_and(is_blocking) {
                look.push(was.uid.clone());
            }
        }
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(node.uid.clone());
        }
        if node.orphans || node.waits_for_dependents {
            look.push(node.uid.clone());
        }
        if node.waits_for_dependents && !old.as_ref().is_some_and(|old| old.waits_for_dependents) {
            look.extend(self.dependents.get(&node.uid).into_iter().flatten().cloned());
        }
        let new_owners = old.as_ref().is_none_or(|old| old.owners != node.owners);
        if new_owners && !node.being_deleted && !node.owners.iter().all(|owner| self.is_solid(owner, &node)) {
            look.push(node.uid.clone());
        }
        look
    }

    pub fn deleted(&mut self, uid: &str) -> Vec<String> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut look: Vec<String> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        for owner in &node.owners {
            self.unlink(&owner.uid, uid);
            if self.nodes.get(&owner.uid).is_some_and(|owner| owner.waits_for_dependents) {
                look.push(owner.uid.clone());
            }
        }
        look
    }

    /// Forgets all objects of a resource that is no longer served. Nobody wants a look: they may still be there.
    pub fn forget(&mut self, resource: &Arc<Discovered>) {
        let gone: Vec<Arc<Node>> =
            self.nodes.values().filter(|node| Arc::ptr_eq(&node.resource, resource)).cloned().collect();
        for node in gone {
            self.nodes.remove(&node.uid);
            node.owners.iter().for_each(|owner| self.unlink(&owner.uid, &node.uid));
        }
    }

    fn unlink(&mut self, owner: &str, dependent: &str) {
        if let Some(dependents) = self.dependents.get_mut(owner) {
            dependents.remove(dependent);
            if dependents.is_empty() {
                self.dependents.remove(owner);
            }
        }
    }
}
