//! Nodes are liked in parts of the cluster with few pods of the kind.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use super::{TopologySpread, count, defaults, includes};
use crate::{
    framework::{BEST, PreScore, Score},
    pod::PodInfo,
    snapshot::{Domains, NodeInfo, Snapshot},
    spreading::{Constraint, HOSTNAME},
};

/// A constraint that need not hold, with the pods it counts.
struct Spread {
    domains: Arc<Domains>,
    /// By slot for nodes, by part for anything else.
    counts: Vec<u32>,
    by_node: bool,
    max_skew: i64,
    /// The more parts there are, the more each pod counts.
    weight: f64,
}

struct Liking {
    spreads: Vec<Spread>,
    /// Nodes without one of the labels are not liked at all.
    ignored: HashSet<usize>,
}

impl PreScore for TopologySpread {
    fn pre_score<'a>(
        &'a self,
        pod: &'a PodInfo,
        snapshot: &'a Snapshot,
        feasible: &[usize],
    ) -> Option<Box<dyn Score + 'a>> {
        let constraints: Cow<'_, [Constraint]> = match pod.spread.is_empty() {
            true => defaults::constraints(&(self.together)(pod)?).into(),
            false => pod.spread.iter().filter(|constraint| !constraint.required).cloned().collect(),
        };
        if constraints.is_empty() {
            return None;
        }
        let domains: Vec<_> = constraints.iter().map(|constraint| snapshot.domains(&constraint.topology)).collect();
        // By default, nodes without a zone are spread over all the same.
        let needs_all = !pod.spread.is_empty();
        let has_all = |slot: usize| !needs_all || domains.iter().all(|domains| domains.of(slot).is_some());
        let ignored: HashSet<usize> = feasible.iter().copied().filter(|slot| !has_all(*slot)).collect();
        let spread = |(constraint, domains): (&Constraint, &Arc<Domains>)| {
            let per_node = count(snapshot, pod, constraint);
            let by_node = *constraint.topology == *HOSTNAME;
            let (counts, parts) = if by_node {
                (per_node.to_vec(), feasible.len() - ignored.len())
            } else {
                sum(constraint, pod, snapshot, domains, &per_node, has_all, feasible)
            };
            let weight = ((parts + 2) as f64).ln();
            Spread { domains: domains.clone(), counts, by_node, max_skew: constraint.max_skew, weight }
        };
        let spreads = constraints.iter().zip(&domains).map(spread).collect();
        Some(Box::new(Liking { spreads, ignored }))
    }
}

/// The pods in each part of the cluster, and over how many parts the feasible nodes are.
fn sum(
    constraint: &Constraint,
    pod: &PodInfo,
    snapshot: &Snapshot,
    domains: &Domains,
    per_node: &[u32],
    has_all: impl Fn(usize) -> bool,
    feasible: &[usize],
) -> (Vec<u32>, usize) {
    let mut counts = vec![0; domains.count()];
    for slot in snapshot.order().iter().copied().filter(|slot| has_all(*slot)) {
        if let Some(sum) = domains.of(slot).and_then(|domain| counts.get_mut(domain))
            && includes(constraint, pod, snapshot.node(slot))
        {
            *sum += per_node.get(slot).copied().unwrap_or(0);
        }
    }
    // Nodes without the label are a part, too.
    let parts: HashSet<Option<usize>> =
        feasible.iter().copied().filter(|slot| has_all(*slot)).map(|slot| domains.of(slot)).collect();
    (counts, parts.len())
}

impl Score for Liking {
    fn score(&self, slot: usize, _node: &NodeInfo) -> i64 {
        if self.ignored.contains(&slot) {
            return 0;
        }
        let of = |spread: &Spread| {
            let domain = spread.domains.of(slot)?;
            let count = spread.counts.get(if spread.by_node { slot } else { domain }).copied().unwrap_or(0);
            Some(f64::from(count) * spread.weight + (spread.max_skew - 1) as f64)
        };
        self.spreads.iter().filter_map(of).sum::<f64>().round() as i64
    }

    fn normalize(&self, slots: &[usize], scores: &mut [i64]) {
        let counts = |slot: &usize| !self.ignored.contains(slot);
        let counted = || slots.iter().zip(scores.iter()).filter(|(slot, _)| counts(slot)).map(|(_, score)| *score);
        let (least, most) = (counted().min().unwrap_or(0), counted().max().unwrap_or(0).max(0));
        for (slot, score) in slots.iter().zip(scores) {
            *score = match (counts(slot), most) {
                (false, _) => 0,
                (true, 0) => BEST,
                (true, most) => BEST * (most + least - *score) / most,
            };
        }
    }
}
