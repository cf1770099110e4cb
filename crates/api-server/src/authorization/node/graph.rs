//! Which node needs which objects, because of the pods that were bound to it.
//!
//! A pod leads to what it names; a claim leads on to the volume that is bound to it, and the volume to its secrets. Whether
//! a claim and a volume belong together is the volume's word, which users cannot write.

use std::collections::HashMap;

use object_model::{meta::Meta, value::Fields};
use serde_json::Value;

use super::references::{self, Kind};
use crate::{authorization::follower::Index, watch_cache::Entry};

/// Group, plural and kind of what the graph follows, in the order of positions.
pub const RESOURCES: [(&str, &str, &str); 4] = [
    ("", "pods", "Pod"),
    ("", "persistentvolumes", "PersistentVolume"),
    ("storage.k8s.io", "volumeattachments", "VolumeAttachment"),
    ("resource.k8s.io", "resourceslices", "ResourceSlice"),
];
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A set in which something can be several times.
type Counts = HashMap<Box<str>, usize>;

#[derive(Default)]
pub struct Graph {
    pods: HashMap<Box<str>, BoundPod>,
    /// The nodes that need an object, by its kind and `namespace/name`.
    nodes: HashMap<(Kind, Box<str>), Counts>,
    /// The claims of the pods of each node.
    claims: HashMap<Box<str>, Counts>,
    volumes: HashMap<Box<str>, Volume>,
    volumes_of_claim: HashMap<Box<str>, Vec<Box<str>>>,
    volumes_of_secret: HashMap<Box<str>, Vec<Box<str>>>,
    attachments: HashMap<Box<str>, Box<str>>,
    slices: HashMap<Box<str>, Box<str>>,
}

struct BoundPod {
    node: Box<str>,
    needs: Vec<(Kind, Box<str>)>,
}

/// A volume that is bound to a claim.
struct Volume {
    claim: Box<str>,
    secrets: Vec<Box<str>>,
}

impl Index for Graph {
    fn apply(&mut self, resource: usize, key: &str, entry: Option<&Entry>) {
        let object = entry.map(|e| e.object(RESOURCES[resource].2));
        self.apply_object(resource, key, object.as_ref());
    }
}

impl Graph {
    pub(super) fn apply_object(&mut self, resource: usize, key: &str, object: Option<&Value>) {
        match resource {
            0 => self.pod(key, object),
            1 => self.volume(key, object),
            2 => replace(&mut self.attachments, key, object),
            _ => replace(&mut self.slices, key, object),
        }
    }

    /// Does the node need this object?
    pub fn needs(&self, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let key: Box<str> = format!("{namespace}/{name}").into();
        self.is_needed(node, kind, &key) || (kind == Kind::Secret && self.needs_for_volume(node, &key))
    }

    pub fn needs_volume(&self, node: &str, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| self.is_needed(node, Kind::VolumeClaim, &volume.claim))
    }

    pub fn has_attachment(&self, node: &str, name: &str) -> bool {
        self.attachments.get(name).is_some_and(|of| **of == *node)
    }

    pub fn has_slice(&self, node: &str, name: &str) -> bool {
        self.slices.get(name).is_some_and(|of| **of == *node)
    }

    fn is_needed(&self, node: &str, kind: Kind, key: &str) -> bool {
        self.nodes.get(&(kind, key.into())).is_some_and(|nodes| nodes.contains_key(node))
    }

    /// A secret may be that of all volumes there are, so the shorter way is taken: from the secret or from the node.
    fn needs_for_volume(&self, node: &str, secret: &str) -> bool {
        let (Some(volumes), Some(claims)) = (self.volumes_of_secret.get(secret), self.claims.get(node)) else {
            return false;
        };
        if volumes.len() <= claims.len() {
            return volumes.iter().any(|volume| self.needs_volume(node, volume));
        }
        let named = claims.keys().filter_map(|claim| self.volumes_of_claim.get(claim)).flatten();
        named.filter_map(|volume| self.volumes.get(volume)).any(|v| v.secrets.iter().any(|s| **s == *secret))
    }

    fn pod(&mut self, key: &str, pod: Option<&Value>) {
        if let Some(gone) = self.pods.remove(key) {
            for need in gone.needs {
                if need.0 == Kind::VolumeClaim {
                    discount(&mut self.claims, &gone.node, &need.1);
                }
                discount(&mut self.nodes, &need, &gone.node);
            }
        }
        let Some(pod) = pod else { return };
        let node = pod.text_at(&["spec", "nodeName"]);
        if node.is_empty() {
            return;
        }
        let namespace = Meta::of(pod).namespace();
        let mut needs: Vec<(Kind, Box<str>)> = vec![(Kind::Pod, Box::from(key))];
        // A pod that a node made itself must not give it anything.
        if Meta::of(pod).annotation(MIRROR).is_none() {
            let named = references::of_pod(pod).into_iter();
            needs.extend(named.map(|(kind, name)| (kind, format!("{namespace}/{name}").into())));
        }
        for need in &needs {
            if need.0 == Kind::VolumeClaim {
                *self.claims.entry(node.into()).or_default().entry(need.1.clone()).or_default() += 1;
            }
            *self.nodes.entry(need.clone()).or_default().entry(node.into()).or_default() += 1;
        }
        self.pods.insert(key.into(), BoundPod { node: node.into(), needs });
    }

    fn volume(&mut self, key: &str, volume: Option<&Value>) {
        if let Some(gone) = self.volumes.remove(key) {
            remove(&mut self.volumes_of_claim, &gone.claim, key);
            gone.secrets.iter().for_each(|secret| remove(&mut self.volumes_of_secret, secret, key));
        }
        let Some(claim) = volume.and_then(|volume| volume.at(&["spec", "claimRef"])) else { return };
        let claim: Box<str> = format!("{}/{}", claim.text("namespace"), claim.text("name")).into();
        let mut secrets = volume.map(references::secrets_of_volume).unwrap_or_default();
        secrets.sort();
        secrets.dedup();
        self.volumes_of_claim.entry(claim.clone()).or_default().push(key.into());
        for secret in &secrets {
            self.volumes_of_secret.entry(secret.clone()).or_default().push(key.into());
        }
        self.volumes.insert(key.into(), Volume { claim, secrets });
    }
}

/// The node that an attachment or a slice is of; some slices are of none.
fn replace(map: &mut HashMap<Box<str>, Box<str>>, key: &str, object: Option<&Value>) {
    match object.map(|object| object.text_at(&["spec", "nodeName"])).filter(|node| !node.is_empty()) {
        Some(node) => map.insert(key.into(), node.into()),
        None => map.remove(key),
    };
}

fn discount<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Counts>, key: &K, what: &str) {
    let Some(counts) = map.get_mut(key) else { return };
    if let Some(count) = counts.get_mut(what) {
        *count -= 1;
        if *count == 0 {
            counts.remove(what);
        }
    }
    if counts.is_empty() {
        map.remove(key);
    }
}

fn remove(map: &mut HashMap<Box<str>, Vec<Box<str>>>, key: &str, what: &str) {
    if let Some(list) = map.get_mut(key) {
        list.retain(|one| **one != *what);
        if list.is_empty() {
            map.remove(key);
        }
    }
}
