//! The cluster as the next cycle sees it: nodes with the pods on them, those that are only assumed there included.
//!
//! It belongs to the scheduler's one task and changes between cycles only, so nothing is copied for a cycle. Every change costs what it
//! changes, never what the cluster has. Invariants: a pod is on one node; the sums, counts and sayings are those of the
//! pods; a node's generation grows whenever a plugin could judge it differently.

mod counts;
mod node;
#[cfg(test)]
mod tests;
mod topology;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::core::v1::Node;

pub use counts::{Namespaces, Question, Saying};
pub use node::{NodeInfo, capacity};
pub use topology::Domains;

use crate::{
    framework::NodeChange,
    pod::PodInfo,
    selection::{Labels, labels_of},
};
use counts::{Counts, Sayings};

const REGION: &str = "topology.kubernetes.io/region";
pub const ZONE: &str = "topology.kubernetes.io/zone";

#[derive(Default)]
pub struct Snapshot {
    /// A node keeps its place for as long as it, or a pod on it, is known.
    nodes: Vec<NodeInfo>,
    free: Vec<usize>,
    by_name: HashMap<String, usize>,
    /// Where each pod is, by its uid.
    pods: HashMap<String, usize>,
    generation: u64,
    /// Nodes that are known, in the order in which they are tried.
    order: Vec<usize>,
    order_is_old: bool,
    namespaces: Namespaces,
    sayings: Sayings,
    images: Images,
    /// What cycles have asked for, and will ask for again.
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    counts: Counts,
    domains: HashMap<Box<str>, Arc<Domains>>,
}

/// Images that nodes have, by number, with how many nodes have each.
#[derive(Default)]
struct Images {
    numbers: HashMap<Arc<str>, u32>,
    by_number: Vec<(Arc<str>, usize)>,
    free: Vec<u32>,
}

impl Snapshot {
    pub fn node(&self, slot: usize) -> &NodeInfo {
        &self.nodes[slot]
    }

    /// The slot of a node that is known.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied().filter(|slot| self.nodes[*slot].is_known())
    }

    /// Nodes that are known, in the order in which they are tried: zones take turns.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    pub fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The parts of the cluster that a label makes.
    pub fn domains(&self, label: &str) -> Arc<Domains> {
        let mut kept = self.kept();
        if let Some(known) = kept.domains.get(label).filter(|known| !known.is_worn()) {
            return known.clone();
        }
        let domains = Arc::new(Domains::new(label, &self.nodes));
        kept.domains.insert(label.into(), domains.clone());
        domains
    }

    /// How many pods of each node are meant.
    pub fn count(&self, question: &Question) -> Arc<Vec<u32>> {
        self.kept().counts.ask(question, &self.nodes, &self.namespaces)
    }

    /// What pods say of a pod: what, the label that says what near means, and how many on each node say it.
    pub fn sayings<'a>(&'a self, pod: &'a PodInfo) -> impl Iterator<Item = (&'a Saying, &'a str, &'a [u32])> {
        self.sayings.about(pod, &self.namespaces)
    }

    /// An image's number, and on how many nodes it is.
    pub fn image(&self, name: &str) -> Option<(u32, usize)> {
        let number = *self.images.numbers.get(name)?;
        self.images.by_number.get(number as usize).map(|(_, nodes)| (number, *nodes))
    }

    /// A pod that is on a node, or assumed to be.
    pub fn pod(&self, uid: &str) -> Option<Arc<PodInfo>> {
        let node = &self.nodes[*self.pods.get(uid)?];
        node.pods().iter().find(|pod| pod.uid == uid).cloned()
    }

    pub fn set_node(&mut self, node: Arc<Node>) {
        let slot = self.slot_for(node.metadata.name.as_deref().unwrap_or_default());
        self.order_is_old |=
            !self.nodes[slot].is_known() || zone(self.nodes[slot].labels()) != zone(labels_of(&node.metadata));
        let changed = self.nodes[slot].node().map(|old| NodeChange::between(old, &node));
        self.nodes[slot].set(Some(node.clone()));
        self.set_images(slot, Some(&node));
        if changed.is_none_or(NodeChange::is_any) {
            self.touch(slot);
        }
        if changed.is_none_or(|changed| changed.labels) {
            self.set_domains(slot);
        }
    }

    pub fn remove_node(&mut self, name: &str) {
        let Some(slot) = self.by_name.get(name).copied() else { return };
        self.nodes[slot].set(None);
        self.touch(slot);
        self.set_images(slot, None);
        self.set_domains(slot);
        self.order_is_old = true;
        self.let_go(slot);
    }

    pub fn add_pod(&mut self, pod: Arc<PodInfo>, node: &str) {
        if let Some(slot) = self.pods.get(&pod.uid).copied() {
            let was = self.nodes[slot].pods().iter().find(|was| was.uid == pod.uid);
            if self.nodes[slot].name() == node && was.is_some_and(|was| is_same(was, &pod)) {
                return self.nodes[slot].replace(pod);
            }
            self.remove_pod(&pod.uid);
        }
        let slot = self.slot_for(node);
        self.pods.insert(pod.uid.clone(), slot);
        self.change_counts(slot, &pod, 1);
        self.nodes[slot].add(pod);
        self.touch(slot);
    }

    pub fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let slot = self.pods.remove(uid)?;
        let pod = self.nodes[slot].remove(uid)?;
        self.change_counts(slot, &pod, -1);
        self.touch(slot);
        self.let_go(slot);
        Some(pod)
    }

    pub fn set_namespace(&mut self, name: &str, labels: Option<&Labels>) {
        let changed = match labels {
            Some(labels) => self.namespaces.insert(name.to_owned(), labels.clone()).as_ref() != Some(labels),
            None => self.namespaces.remove(name).is_some(),
        };
        if changed {
            self.kept().counts.forget_namespaces();
        }
    }

    /// To be called before a cycle.
    pub fn refresh(&mut self) {
        if !std::mem::take(&mut self.order_is_old) {
            return;
        }
        let mut zones: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
        for (slot, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.is_known()) {
            zones.entry(zone(node.labels())).or_default().push(slot);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or(0);
        self.order = (0..longest).flat_map(|at| zones.values().filter_map(move |zone| zone.get(at).copied())).collect();
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&mut self, slot: usize) {
        self.generation += 1;
        self.nodes[slot].generation = self.generation;
    }

    fn slot_for(&mut self, name: &str) -> usize {
        if let Some(slot) = self.by_name.get(name) {
            return *slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(NodeInfo::default());
            self.nodes.len() - 1
        });
        self.nodes[slot] = NodeInfo::named(name);
        self.by_name.insert(name.to_owned(), slot);
        slot
    }

    fn let_go(&mut self, slot: usize) {
        let node = &self.nodes[slot];
        if !node.is_known() && node.pods().is_empty() {
            self.by_name.remove(node.name());
            self.free.push(slot);
        }
    }

    fn change_counts(&mut self, slot: usize, pod: &PodInfo, by: i32) {
        self.sayings.change(slot, pod, by);
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        kept.counts.change(slot, pod, &self.namespaces, by);
    }

    fn set_domains(&mut self, slot: usize) {
        let labels = self.nodes[slot].labels();
        let kept = self.kept.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (label, domains) in &mut kept.domains {
            Arc::make_mut(domains).set(slot, labels.get(&**label));
        }
    }

    fn set_images(&mut self, slot: usize, node: Option<&Node>) {
        let images = node.and_then(|node| node.status.as_ref()).and_then(|status| status.images.as_ref());
        let mut has = Vec::new();
        for image in images.into_iter().flatten() {
            for name in image.names.iter().flatten() {
                has.push((self.images.add(name), image.size_bytes.unwrap_or(0)));
            }
        }
        has.sort_unstable();
        has.dedup_by(|(number, _), (kept, _)| {
            let twice = number == kept;
            if twice {
                self.images.remove(*number);
            }
            twice
        });
        let had = std::mem::replace(&mut self.nodes[slot].images, has);
        had.iter().for_each(|(number, _)| self.images.remove(*number));
    }
}

impl Images {
    /// One more node has it.
    fn add(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            self.by_number[*number as usize].1 += 1;
            return *number;
        }
        let name: Arc<str> = name.into();
        let number = self.free.pop().unwrap_or(self.by_number.len() as u32);
        match self.by_number.get_mut(number as usize) {
            Some(free) => *free = (name.clone(), 1),
            None => self.by_number.push((name.clone(), 1)),
        }
        self.numbers.insert(name, number);
        number
    }

    /// One node less has it.
    fn remove(&mut self, number: u32) {
        let (name, nodes) = &mut self.by_number[number as usize];
        *nodes -= 1;
        if *nodes == 0 {
            self.numbers.remove(name);
            self.free.push(number);
        }
    }
}

/// Whether nothing of a pod has changed that anybody is judged by.
fn is_same(was: &PodInfo, is: &PodInfo) -> bool {
    Arc::ptr_eq(&was.shape, &is.shape) && was.labels() == is.labels() && was.is_terminating() == is.is_terminating()
}

fn zone(labels: &Labels) -> (&str, &str) {
    let of = |label: &str| labels.get(label).map_or("", String::as_str);
    (of(REGION), of(ZONE))
}
