//! Pods near which a pod must, must not, or would like to be; and the same said by pods that are there already.
//!
//! Near means: on nodes with the same value of a label. How many pods of each node are meant is kept by the snapshot;
//! a cycle only sums it up by the values of the label.

use std::{collections::HashMap, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use crate::{
    affinity::Term,
    framework::{BEST, Event, Filter, Plugin, PreFilter, PreFiltered, PreScore, Rejection, Score},
    pod::PodInfo,
    snapshot::{Domains, NodeInfo, Question, Saying, Snapshot},
};

#[cfg(test)]
mod tests;

pub struct InterPodAffinity;

const NAME: &str = "InterPodAffinity";
/// What it counts that a pod there must be near pods like this one.
const WEIGHT_OF_REQUIRED: i64 = 1;

impl Plugin for InterPodAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        let affinity = &pod.affinity;
        let says_nothing = affinity.required.is_empty() && affinity.forbidden.is_empty();
        let terms = || affinity.required.iter().chain(&affinity.forbidden);
        let wanted = |other: &PodInfo| {
            !affinity.required.is_empty() && affinity.required.iter().all(|term| may_select(term, other))
        };
        let unwanted = |other: &PodInfo| affinity.forbidden.iter().any(|term| may_select(term, other));
        match event {
            Event::PodAdded(other) => wanted(other),
            Event::PodChanged { old, new } => {
                (!wanted(old) && wanted(new))
                    || (unwanted(old) && !unwanted(new))
                    || keeps_away(old, pod) && !keeps_away(new, pod)
            }
            Event::PodRemoved(other) => unwanted(other) || keeps_away(other, pod),
            Event::NodeAdded(node) => {
                says_nothing
                    || !affinity.forbidden.is_empty()
                    || affinity.required.iter().any(|term| label(node, term).is_some())
            }
            Event::NodeChanged { old, new, what } => {
                what.labels && (says_nothing || terms().any(|term| label(old, term) != label(new, term)))
            }
            Event::NamespaceChanged => says_nothing || terms().any(|term| term.pods.namespace_selector.is_some()),
            Event::NodeRemoved(_) | Event::VolumesChanged { .. } => false,
        }
    }
}

/// Whether a term could mean a pod; what namespaces are labelled with is left open.
fn may_select(term: &Term, pod: &PodInfo) -> bool {
    let mut pods = term.pods.clone();
    if pods.namespace_selector.is_some() {
        pods.namespaces.insert(pod.key.namespace.clone());
    }
    pods.selects(&pod.key.namespace, pod.labels(), || None)
}

/// Whether a pod that is there could keep another one away.
fn keeps_away(there: &PodInfo, pod: &PodInfo) -> bool {
    there.affinity.forbidden.iter().any(|term| may_select(term, pod))
}

fn label<'a>(node: &'a Node, term: &Term) -> Option<&'a String> {
    node.metadata.labels.as_ref()?.get(&*term.topology)
}

/// How many pods are meant in each part of the cluster.
#[derive(Clone)]
struct Near {
    domains: Arc<Domains>,
    counts: Vec<u32>,
}

impl Near {
    fn new(snapshot: &Snapshot, topology: &str, per_node: &[u32]) -> Self {
        let domains = snapshot.domains(topology);
        Self { counts: domains.sum(per_node), domains }
    }

    /// How many there are near a node; nothing if the node does not have the label.
    fn at(&self, slot: usize) -> Option<u32> {
        self.counts.get(self.domains.of(slot)?).copied()
    }

    fn change(&mut self, slot: usize, by: i32) {
        if let Some(count) = self.domains.of(slot).and_then(|domain| self.counts.get_mut(domain)) {
            *count = count.saturating_add_signed(by);
        }
    }
}

/// What is required, forbidden and said about one pod.
#[derive(Clone)]
struct State<'a> {
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
    /// For each term of the pod, the pods that all its terms mean.
    required: Vec<Near>,
    /// Whether there are no such pods, and it would be one itself: the first of its kind may go anywhere.
    is_first: bool,
    is_its_own: bool,
    forbidden: Vec<Near>,
    /// By label, the pods that do not want this one near.
    unwelcome: HashMap<Box<str>, Near>,
}

impl PreFilter for InterPodAffinity {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, snapshot: &'a Snapshot) -> PreFiltered<'a> {
        let affinity = &pod.affinity;
        let mut unwelcome: HashMap<Box<str>, Near> = HashMap::new();
        for (saying, topology, per_node) in snapshot.sayings(pod) {
            if *saying == Saying::Forbidden {
                let more = Near::new(snapshot, topology, per_node);
                match unwelcome.get_mut(topology) {
                    Some(near) => near.counts.iter_mut().zip(&more.counts).for_each(|(count, more)| *count += more),
                    None => drop(unwelcome.insert(topology.into(), more)),
                }
            }
        }
        if affinity.required.is_empty() && affinity.forbidden.is_empty() && unwelcome.is_empty() {
            return PreFiltered::Skip;
        }
        let (mut required, mut is_its_own) = (Vec::new(), false);
        if !affinity.required.is_empty() {
            let question = all_of(&affinity.required);
            let per_node = snapshot.count(&question);
            required = affinity.required.iter().map(|term| Near::new(snapshot, &term.topology, &per_node)).collect();
            is_its_own = question.selects(pod, snapshot.namespaces());
        }
        let forbidden = affinity.forbidden.iter();
        let forbidden = forbidden
            .map(|term| Near::new(snapshot, &term.topology, &snapshot.count(&all_of(std::slice::from_ref(term)))));
        let forbidden = forbidden.collect();
        let mut state = State { pod, snapshot, required, is_first: false, is_its_own, forbidden, unwelcome };
        state.new_required();
        PreFiltered::Filter(Box::new(state))
    }
}

/// The pods that all terms mean, however near they are.
fn all_of(terms: &[Term]) -> Question {
    Question { pods: terms.iter().map(|term| term.pods.clone()).collect(), terminating: true }
}

impl State<'_> {
    fn new_required(&mut self) {
        let nobody = |near: &Near| near.counts.iter().all(|count| *count == 0);
        self.is_first = self.is_its_own && self.required.iter().all(nobody);
    }

    fn is_near_required(&self, slot: usize) -> bool {
        let mut all_there = true;
        for near in &self.required {
            match near.at(slot) {
                None => return false,
                Some(count) => all_there &= count > 0,
            }
        }
        all_there || self.is_first
    }
}

impl Filter for State<'_> {
    fn filter(&self, slot: usize, _node: &NodeInfo) -> Result<(), Rejection> {
        let any = |near: &Near| near.at(slot).is_some_and(|count| count > 0);
        if !self.is_near_required(slot) {
            Err(Rejection::for_good(NAME, "node(s) didn't match pod affinity rules"))
        } else if self.forbidden.iter().any(any) {
            Err(Rejection::for_now(NAME, "node(s) didn't match pod anti-affinity rules"))
        } else if self.unwelcome.values().any(any) {
            Err(Rejection::for_now(NAME, "node(s) didn't satisfy existing pods anti-affinity rules"))
        } else {
            Ok(())
        }
    }

    fn suppose(&mut self, pod: &PodInfo, slot: usize, came: bool) {
        let by = if came { 1 } else { -1 };
        let namespaces = self.snapshot.namespaces();
        let selects = |terms: &[Term], pod: &PodInfo| all_of(terms).selects(pod, namespaces);
        let affinity = &self.pod.affinity;
        if !affinity.required.is_empty() && selects(&affinity.required, pod) {
            self.required.iter_mut().for_each(|near| near.change(slot, by));
            self.new_required();
        }
        for (near, term) in self.forbidden.iter_mut().zip(&affinity.forbidden) {
            if selects(std::slice::from_ref(term), pod) {
                near.change(slot, by);
            }
        }
        for term in &pod.affinity.forbidden {
            if !selects(std::slice::from_ref(term), self.pod) {
                continue;
            }
            let near = self.unwelcome.entry(term.topology.clone());
            near.or_insert_with(|| Near::new(self.snapshot, &term.topology, &[])).change(slot, by);
        }
    }

    fn copy(&self) -> Box<dyn Filter + '_> {
        Box::new(self.clone())
    }
}

/// How much pods like to be in each part of the cluster.
struct Liking {
    by_label: Vec<(Arc<Domains>, Vec<i64>)>,
}

impl PreScore for InterPodAffinity {
    fn pre_score<'a>(
        &'a self,
        pod: &'a PodInfo,
        snapshot: &'a Snapshot,
        _feasible: &[usize],
    ) -> Option<Box<dyn Score + 'a>> {
        let mut by_label: HashMap<&str, (Arc<Domains>, Vec<i64>)> = HashMap::new();
        let mut like = |topology: &'a str, weight: i64, per_node: &[u32]| {
            let (domains, liking) = by_label.entry(topology).or_insert_with(|| {
                let domains = snapshot.domains(topology);
                let liking = vec![0; domains.count()];
                (domains, liking)
            });
            let counts = domains.sum(per_node);
            liking.iter_mut().zip(counts).for_each(|(liking, count)| *liking += weight * i64::from(count));
        };
        for (weight, term) in &pod.affinity.preferred {
            like(&term.topology, *weight, &snapshot.count(&all_of(std::slice::from_ref(term))));
        }
        for (saying, topology, per_node) in snapshot.sayings(pod) {
            match saying {
                Saying::Required => like(topology, WEIGHT_OF_REQUIRED, per_node),
                Saying::Preferred(weight) => like(topology, *weight, per_node),
                Saying::Forbidden => {}
            }
        }
        let by_label: Vec<_> = by_label.into_values().filter(|(_, liking)| liking.iter().any(|it| *it != 0)).collect();
        (!by_label.is_empty()).then(|| Box::new(Liking { by_label }) as Box<dyn Score>)
    }
}

impl Score for Liking {
    fn score(&self, slot: usize, _node: &NodeInfo) -> i64 {
        let at = |(domains, liking): &(Arc<Domains>, Vec<i64>)| liking.get(domains.of(slot)?).copied();
        self.by_label.iter().filter_map(at).sum()
    }

    fn normalize(&self, _slots: &[usize], scores: &mut [i64]) {
        let least = scores.iter().copied().min().unwrap_or(0);
        let range = scores.iter().copied().max().unwrap_or(0) - least;
        for score in scores {
            let part = if range > 0 { (*score - least) as f64 / range as f64 } else { 0.0 };
            *score = (BEST as f64 * part) as i64;
        }
    }
}
