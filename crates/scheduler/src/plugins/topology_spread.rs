//! Pods of a kind are spread evenly over parts of the cluster: as the pod says, or by default over zones and nodes.

mod defaults;
mod scoring;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

pub use defaults::{Together, together};

use crate::{
    framework::{Event, Filter, Plugin, PreFilter, PreFiltered, Rejection},
    plugins::taint_toleration::keeps_out,
    pod::PodInfo,
    selection::{PodSelector, selects},
    snapshot::{Domains, NodeInfo, Question, Snapshot},
    spreading::Constraint,
};

pub struct TopologySpread {
    /// Which pods belong together, for those that do not say how they are to be spread.
    pub together: Together,
}

const NAME: &str = "PodTopologySpread";

impl Plugin for TopologySpread {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        let required = || pod.spread.iter().filter(|constraint| constraint.required);
        let means = |constraint: &Constraint, other: &PodInfo| {
            other.key.namespace == pod.key.namespace
                && constraint.pods.as_ref().is_some_and(|pods| selects(pods, other.labels()))
        };
        let label = |node: &Node, constraint: &Constraint| {
            node.metadata.labels.as_ref().and_then(|labels| labels.get(&*constraint.topology).cloned())
        };
        let has_all = |node: &Node| required().all(|constraint| label(node, constraint).is_some());
        match event {
            Event::PodAdded(other) | Event::PodRemoved(other) => required().any(|constraint| means(constraint, other)),
            Event::PodChanged { old, new } => {
                required().any(|constraint| means(constraint, old) != means(constraint, new))
            }
            Event::NodeAdded(node) | Event::NodeRemoved(node) => has_all(node),
            Event::NodeChanged { old, new, what } => {
                has_all(old) != has_all(new)
                    || (has_all(new)
                        && (what.taints
                            || required().any(|constraint| label(old, constraint) != label(new, constraint))))
            }
            Event::NamespaceChanged | Event::VolumesChanged { .. } => false,
        }
    }
}

/// A constraint, with the pods it counts in each part of the cluster.
#[derive(Clone)]
struct Spread<'a> {
    constraint: &'a Constraint,
    domains: Arc<Domains>,
    /// Nothing for parts without a node that counts.
    counts: Vec<Option<u32>>,
    /// Of the emptiest part.
    least: u32,
    /// Whether the pod is one of those that are counted.
    counts_itself: bool,
}

impl Spread<'_> {
    fn find_least(&mut self) {
        let there = self.counts.iter().flatten();
        let enough = there.clone().count() >= self.constraint.min_domains;
        self.least = if enough { there.min().copied().unwrap_or(0) } else { 0 };
    }
}

#[derive(Clone)]
struct State<'a> {
    pod: &'a PodInfo,
    snapshot: &'a Snapshot,
    spreads: Vec<Spread<'a>>,
}

impl PreFilter for TopologySpread {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, snapshot: &'a Snapshot) -> PreFiltered<'a> {
        let required: Vec<&Constraint> = pod.spread.iter().filter(|constraint| constraint.required).collect();
        if required.is_empty() {
            return PreFiltered::Skip;
        }
        let domains: Vec<_> = required.iter().map(|constraint| snapshot.domains(&constraint.topology)).collect();
        let spread = |(constraint, own): (&&'a Constraint, &Arc<Domains>)| {
            let per_node = count(snapshot, pod, constraint);
            let mut counts = vec![None; own.count()];
            for slot in snapshot.order() {
                if !domains.iter().all(|domains| domains.of(*slot).is_some())
                    || !includes(constraint, pod, snapshot.node(*slot))
                {
                    continue;
                }
                if let Some(sum) = own.of(*slot).and_then(|domain| counts.get_mut(domain)) {
                    *sum = Some(sum.unwrap_or(0) + per_node.get(*slot).copied().unwrap_or(0));
                }
            }
            let counts_itself = constraint.pods.as_ref().is_some_and(|pods| selects(pods, pod.labels()));
            let mut spread = Spread { constraint, domains: own.clone(), counts, least: 0, counts_itself };
            spread.find_least();
            spread
        };
        let spreads = required.iter().zip(&domains).map(spread).collect();
        PreFiltered::Filter(Box::new(State { pod, snapshot, spreads }))
    }
}

impl Filter for State<'_> {
    fn filter(&self, slot: usize, _node: &NodeInfo) -> Result<(), Rejection> {
        for spread in &self.spreads {
            let Some(domain) = spread.domains.of(slot) else {
                let reason = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Err(Rejection::for_good(NAME, reason));
            };
            let there = spread.counts.get(domain).copied().flatten().unwrap_or(0);
            let skew = i64::from(there) + i64::from(spread.counts_itself) - i64::from(spread.least);
            if skew > spread.constraint.max_skew {
                return Err(Rejection::for_now(NAME, "node(s) didn't match pod topology spread constraints"));
            }
        }
        Ok(())
    }

    fn suppose(&mut self, pod: &PodInfo, slot: usize, came: bool) {
        let has_all = self.spreads.iter().all(|spread| spread.domains.of(slot).is_some());
        if !has_all || pod.key.namespace != self.pod.key.namespace {
            return;
        }
        let node = self.snapshot.node(slot);
        for spread in &mut self.spreads {
            let pods = spread.constraint.pods.as_ref();
            if !pods.is_some_and(|pods| selects(pods, pod.labels())) || !includes(spread.constraint, self.pod, node) {
                continue;
            }
            let count = spread.domains.of(slot).and_then(|domain| spread.counts.get_mut(domain));
            if let Some(count) = count {
                *count = Some(count.unwrap_or(0).saturating_add_signed(if came { 1 } else { -1 }));
            }
            spread.find_least();
        }
    }

    fn copy(&self) -> Box<dyn Filter + '_> {
        Box::new(self.clone())
    }
}

/// How many pods of each node a constraint counts. A selector without requirements counts nobody, as in Kubernetes.
fn count(snapshot: &Snapshot, pod: &PodInfo, constraint: &Constraint) -> Arc<Vec<u32>> {
    match &constraint.pods {
        Some(pods) if !pods.is_everything() => {
            let pods = vec![PodSelector::in_namespace(&pod.key.namespace, Some(pods.clone()))];
            snapshot.count(&Question { pods, terminating: false })
        }
        _ => Arc::default(),
    }
}

/// Whether a node counts for a constraint.
fn includes(constraint: &Constraint, pod: &PodInfo, node: &NodeInfo) -> bool {
    let shape = &pod.shape;
    (!constraint.honours_affinity || shape.nodes.allows_all() || shape.nodes.allows(node))
        && (!constraint.honours_taints || !keeps_out(node.taints(), &shape.tolerations))
}
