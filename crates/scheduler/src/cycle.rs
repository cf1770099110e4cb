//! One try of one pod: the nodes it fits on, and the best of them.
//!
//! What single nodes were judged by a shape is kept ([`Verdicts`]) until the node changes: of two pods of the same shape, the
//! second costs one new judgement, that of the node the first went to. Nodes are tried in turns, beginning where the last
//! cycle ended, and in a large cluster only until enough are found, as in Kubernetes.

#[cfg(test)]
mod tests;
mod verdicts;

use std::{
    collections::BTreeSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

pub use verdicts::Verdicts;

use crate::{
    framework::{Diagnosis, Filter, Framework, PreFiltered, Rejection},
    nominations::Nominations,
    pod::PodInfo,
    snapshot::{NodeInfo, Snapshot},
};

/// Up to this many nodes are all looked at.
const ALL_OF: usize = 100;
/// However large the cluster, this part of it is looked at.
const LEAST_PERCENT: usize = 5;

/// What a pod is to be placed in.
#[derive(Clone, Copy)]
pub struct Search<'a> {
    pub framework: &'a Framework,
    pub snapshot: &'a Snapshot,
    pub nominations: &'a Nominations,
    pub pod: &'a PodInfo,
}

/// Goes through cycles, one after the other.
pub struct Cycles {
    verdicts: Verdicts,
    /// Where the next one begins.
    start: usize,
    random: u64,
}

impl Default for Cycles {
    fn default() -> Self {
        Self { verdicts: Verdicts::default(), start: 0, random: RandomState::new().hash_one(0) | 1 }
    }
}

impl Cycles {
    /// The slot of the node that a pod should go to, or why there is none.
    pub fn find(&mut self, search: Search<'_>) -> Result<usize, Diagnosis> {
        let mut diagnosis = Diagnosis { nodes: search.snapshot.order().len(), ..Diagnosis::default() };
        if diagnosis.nodes == 0 {
            return Err(diagnosis);
        }
        let (filters, only) = match search.pre_filter(&mut diagnosis) {
            Ok(filters) => filters,
            Err(rejection) => {
                diagnosis.by_all = Some(rejection);
                return Err(diagnosis);
            }
        };
        let nominated = search.nominations.node_of(&search.pod.uid).and_then(|name| search.snapshot.slot(name));
        if let Some(slot) = nominated
            && self.judge(search, &filters, slot).is_ok()
        {
            return Ok(slot);
        }
        let feasible = self.feasible(search, &filters, only, &mut diagnosis);
        match feasible.as_slice() {
            [] => Err(diagnosis),
            [one] => Ok(*one),
            several => Ok(self.best(search, several)),
        }
    }

    /// Nodes that will do: all, or enough of them.
    fn feasible(
        &mut self,
        search: Search<'_>,
        filters: &[Box<dyn Filter + '_>],
        only: Option<BTreeSet<&str>>,
        diagnosis: &mut Diagnosis,
    ) -> Vec<usize> {
        let named: Option<Vec<usize>> =
            only.map(|names| names.iter().filter_map(|name| search.snapshot.slot(name)).collect());
        let order = named.as_deref().unwrap_or(search.snapshot.order());
        let enough = enough_of(order.len());
        let start = if named.is_some() { 0 } else { self.start % order.len().max(1) };
        let mut feasible = Vec::with_capacity(enough);
        let mut tried = 0;
        for slot in order[start..].iter().chain(&order[..start]).copied() {
            tried += 1;
            match self.judge(search, filters, slot) {
                Ok(()) => feasible.push(slot),
                Err(rejection) => diagnosis.by_node.push((slot, rejection)),
            }
            if feasible.len() >= enough {
                break;
            }
        }
        if named.is_none() {
            self.start = (start + tried) % order.len().max(1);
        }
        feasible
    }

    fn judge(
        &mut self,
        search: Search<'_>,
        filters: &[Box<dyn Filter + '_>],
        slot: usize,
    ) -> Result<(), Arc<Rejection>> {
        let node = search.snapshot.node(slot);
        if search.nominations.concern(node.name(), search.pod) {
            search.judge_with_nominated(filters, slot, node)?;
        }
        self.verdicts.judge(search.framework, &search.pod.shape, slot, node)?;
        filters.iter().try_for_each(|filter| filter.filter(slot, node)).map_err(Arc::new)
    }

    /// The node with the best score; one of the best, if there are several.
    fn best(&mut self, search: Search<'_>, feasible: &[usize]) -> usize {
        let mut totals = self.verdicts.scores(search.framework, &search.pod.shape, feasible);
        let mut scores = vec![0; feasible.len()];
        for (weight, plugin) in &search.framework.pre_scores {
            let Some(scorer) = plugin.pre_score(search.pod, search.snapshot, feasible) else { continue };
            for (score, slot) in scores.iter_mut().zip(feasible) {
                *score = scorer.score(*slot, search.snapshot.node(*slot));
            }
            scorer.normalize(feasible, &mut scores);
            totals.iter_mut().zip(&scores).for_each(|(total, score)| *total += weight * score);
        }
        let best = totals.iter().copied().max().unwrap_or(0);
        let equal = totals.iter().filter(|total| **total == best).count().max(1);
        let chosen = self.random_below(equal);
        let mut best_ones = totals.iter().zip(feasible).filter(|(total, _)| **total == best).map(|(_, slot)| *slot);
        best_ones.nth(chosen).unwrap_or(feasible[0])
    }

    /// Marsaglia's xorshift: good enough to spread equals.
    fn random_below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }
}

type Filters<'a> = (Vec<Box<dyn Filter + 'a>>, Option<BTreeSet<&'a str>>);

impl<'a> Search<'a> {
    /// What judges nodes for this pod, and the only nodes that could do.
    pub fn pre_filter(self, diagnosis: &mut Diagnosis) -> Result<Filters<'a>, Rejection> {
        let (mut filters, mut only) = (Vec::new(), None::<BTreeSet<&str>>);
        for plugin in &self.framework.pre_filters {
            match plugin.pre_filter(self.pod, self.snapshot) {
                PreFiltered::Skip => {}
                PreFiltered::Reject(rejection) => return Err(rejection),
                PreFiltered::Filter(filter) => filters.push(filter),
                PreFiltered::Only(names) => {
                    diagnosis.narrowed_by.insert(plugin.name());
                    only = Some(only.map_or(names.clone(), |known| known.intersection(&names).copied().collect()));
                }
            }
        }
        Ok((filters, only))
    }

    /// As if those were there already for whom room was made on the node, and who come first.
    fn judge_with_nominated(
        self,
        filters: &[Box<dyn Filter + '_>],
        slot: usize,
        node: &NodeInfo,
    ) -> Result<(), Rejection> {
        let mut node = node.clone();
        let mut filters: Vec<_> = filters.iter().map(|filter| filter.copy()).collect();
        for pod in self.nominations.before(node.name(), self.pod) {
            filters.iter_mut().for_each(|filter| filter.suppose(pod, slot, true));
            node.add(pod.clone());
        }
        self.judge_alone(&filters, slot, &node)
    }

    /// Judges a node that is not as the snapshot has it.
    pub fn judge_supposed(
        self,
        filters: &[Box<dyn Filter + '_>],
        slot: usize,
        node: &NodeInfo,
    ) -> Result<(), Rejection> {
        if self.nominations.concern(node.name(), self.pod) {
            self.judge_with_nominated(filters, slot, node)?;
        }
        self.judge_alone(filters, slot, node)
    }

    fn judge_alone(self, filters: &[Box<dyn Filter + '_>], slot: usize, node: &NodeInfo) -> Result<(), Rejection> {
        self.framework.node_filters.iter().try_for_each(|plugin| plugin.filter(&self.pod.shape, node))?;
        filters.iter().try_for_each(|filter| filter.filter(slot, node))
    }
}

/// How many nodes that will do are enough.
fn enough_of(nodes: usize) -> usize {
    if nodes < ALL_OF {
        return nodes;
    }
    let percent = 50_usize.saturating_sub(nodes / 125).max(LEAST_PERCENT);
    (nodes * percent / 100).max(ALL_OF)
}
