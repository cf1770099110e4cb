//! What is where, what should be, and what to do next. Without any I/O.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{DaemonSet, DaemonSetStatus},
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};

use super::eligibility::{Demands, Place};
use crate::{
    history::{POD_REVISION, label},
    pods,
    share::scaled,
};

/// The label of a time before revisions.
pub const GENERATION: &str = "pod-template-generation";
const GENERATION_OF_SET: &str = "deprecated.daemonset.template.generation";

/// All nodes and all pods of a set as they were seen.
pub struct Plan<'a> {
    pub set: &'a DaemonSet,
    /// By name.
    pub nodes: BTreeMap<String, Place>,
    /// By the node they are on or meant for.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// The hash of the newest revision.
    pub hash: &'a str,
    pub now: Timestamp,
}

/// The new and the old pod of a node.
type NewAndOld<'a> = (Option<&'a Arc<Pod>>, Option<&'a Arc<Pod>>);

/// What to do.
#[derive(Debug, Default)]
pub struct Work {
    /// Nodes that get a pod.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Pod>>,
    /// Pods that have ended, with their node. They make room for new ones: failed ones not too often.
    pub ended: Vec<(String, Arc<Pod>)>,
}

impl<'a> Plan<'a> {
    pub fn new(set: &'a DaemonSet, nodes: &[Arc<Node>], pods: &[Arc<Pod>], hash: &'a str, now: Timestamp) -> Self {
        let demands = Demands::of(set);
        let nodes = nodes.iter().map(|node| (node.metadata.name.clone().unwrap_or_default(), demands.place(node)));
        let mut by_node: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        for pod in pods {
            // One that has ended and is being deleted is as good as gone.
            let gone = pods::is_finished(pod) && pod.metadata.deletion_timestamp.is_some();
            if let Some(node) = target(pod).filter(|_| !gone) {
                by_node.entry(node.to_owned()).or_default().push(pod.clone());
            }
        }
        for pods in by_node.values_mut() {
            pods.sort_by_key(|pod| {
                let meta = &pod.metadata;
                (node_name(pod).is_none(), meta.creation_timestamp.clone(), meta.name.clone())
            });
        }
        Self { set, nodes: nodes.collect(), pods: by_node, hash, now }
    }

    /// Who is missing and who is in the wrong place.
    pub fn placement(&self) -> Work {
        let mut work = Work::default();
        for (node, place) in &self.nodes {
            match (place, self.pods.get(node)) {
                (Place::Wanted, None) => work.create.push(node.clone()),
                (_, None) => {}
                (Place::NotHere, Some(pods)) => work.delete.extend(pods.iter().filter(|pod| lives(pod)).cloned()),
                (place, Some(pods)) => self.tend(node, *place, pods, &mut work),
            }
        }
        // Pods that wait for a node which is gone.
        let waiting = self.pods.iter().filter(|(node, _)| !self.nodes.contains_key(*node)).flat_map(|(_, pods)| pods);
        work.delete.extend(waiting.filter(|pod| node_name(pod).is_none()).cloned());
        work
    }

    /// One pod on each node, or two while a new one takes over from an old one.
    fn tend(&self, node: &str, place: Place, pods: &[Arc<Pod>], work: &mut Work) {
        let (ended, running): (Vec<_>, Vec<_>) =
            pods.iter().filter(|pod| lives(pod)).cloned().partition(|pod| pods::is_finished(pod));
        work.ended.extend(ended.into_iter().map(|pod| (node.to_owned(), pod)));
        if self.surge(1) == 0 {
            work.delete.extend(running.into_iter().skip(1));
            return;
        }
        if running.is_empty() && place == Place::Wanted {
            work.create.push(node.to_owned());
        }
        let (new, old): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|pod| label(&pod.metadata, POD_REVISION) == Some(self.hash));
        work.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).cloned());
        if let (Some(new), Some(old)) = (new.first(), old.first())
            && (pods::ready(old).is_none() || self.is_available(new))
        {
            work.delete.push(old.clone());
        }
    }

    /// Which old pods make way for new ones now.
    pub fn rolling_update(&self) -> Work {
        if self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref())
            != Some("RollingUpdate")
        {
            return Work::default();
        }
        let wanted = self.desired();
        let (surge, mut unavailable) = (self.surge(wanted), self.max_unavailable(wanted));
        if surge == 0 {
            if wanted > 0 && unavailable == 0 {
                unavailable = 1;
            }
            return Work { delete: self.replace(unavailable), ..Work::default() };
        }
        self.take_over(surge)
    }

    /// The nodes that count in an update: where pods are, and where they should be.
    fn updated_nodes(&self) -> impl Iterator<Item = (&String, &[Arc<Pod>])> {
        let empty =
            self.nodes.iter().filter(|(node, place)| **place == Place::Wanted && !self.pods.contains_key(*node));
        let there = self.pods.iter().map(|(node, pods)| (node, pods.as_slice()));
        there.chain(empty.map(|(node, _)| (node, [].as_slice())))
    }

    /// Old pods that are deleted so that new ones can come. Those that are of no use go at once, others as long as no more
    /// than so many nodes are without a pod.
    fn replace(&self, max_unavailable: i32) -> Vec<Arc<Pod>> {
        let (mut unavailable, mut useless, mut candidates) = (0, Vec::new(), Vec::new());
        for (_, pods) in self.updated_nodes() {
            match self.new_and_old(pods) {
                Some((Some(new), None)) if self.is_available(new) => {}
                Some((None, Some(old))) if self.is_available(old) => candidates.push(old.clone()),
                Some((None, Some(old))) => {
                    useless.push(old.clone());
                    unavailable += 1;
                }
                _ => unavailable += 1,
            }
        }
        let more = usize::try_from(max_unavailable - unavailable).unwrap_or(0);
        useless.extend(candidates.into_iter().take(more));
        useless
    }

    /// New pods beside old ones, which go when the new ones are there.
    fn take_over(&self, max_surge: i32) -> Work {
        let (mut work, mut candidates, mut misplaced) = (Work::default(), Vec::new(), Vec::new());
        let (mut surging, mut available) = (0, 0);
        for (node, pods) in self.updated_nodes() {
            let Some((new, old)) = self.new_and_old(pods) else {
                surging += 1;
                continue;
            };
            available += i32::from(old.or(new).is_some_and(|pod| self.is_available(pod)));
            let Some(old) = old else { continue };
            let (is_wanted, is_available) = (self.nodes.get(node) == Some(&Place::Wanted), self.is_available(old));
            match new {
                Some(new) if self.is_available(new) => work.delete.push(old.clone()),
                Some(_) => surging += 1,
                None if is_wanted && is_available => candidates.push(node.clone()),
                None if is_wanted => work.create.push(node.clone()),
                None if is_available => misplaced.push(old.clone()),
                None => work.delete.push(old.clone()),
            }
        }
        let spare = usize::try_from(available - self.desired()).unwrap_or(0);
        work.delete.extend(misplaced.into_iter().take(spare));
        let more = usize::try_from(max_surge - surging).unwrap_or(0);
        work.create.extend(candidates.into_iter().take(more));
        work
    }

    /// The new and the old pod of a node. None if there are several of one kind.
    fn new_and_old<'p>(&self, pods: &'p [Arc<Pod>]) -> Option<NewAndOld<'p>> {
        let (new, old): (Vec<_>, Vec<_>) = pods.iter().filter(|pod| lives(pod)).partition(|pod| self.is_updated(pod));
        (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
    }

    fn is_updated(&self, pod: &Pod) -> bool {
        let of_generation = generation(self.set).is_some_and(|number| label(&pod.metadata, GENERATION) == Some(number));
        label(&pod.metadata, POD_REVISION) == Some(self.hash) || of_generation
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.min_ready_seconds(), self.now)
    }

    pub fn min_ready_seconds(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn desired(&self) -> i32 {
        count(self.nodes.values().filter(|place| **place == Place::Wanted).count())
    }

    fn surge(&self, nodes: i32) -> i32 {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.filter(|strategy| strategy.type_.as_deref() == Some("RollingUpdate"));
        scaled(rolling.and_then(|rolling| rolling.rolling_update.as_ref()?.max_surge.as_ref()), nodes, true)
    }

    fn max_unavailable(&self, nodes: i32) -> i32 {
        let strategy = self.set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), nodes, true)
    }

    pub fn status(&self) -> DaemonSetStatus {
        let mut status = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            ..self.set.status.clone().unwrap_or_default()
        };
        let (mut updated, mut available) = (0, 0);
        (status.desired_number_scheduled, status.current_number_scheduled) = (self.desired(), 0);
        (status.number_misscheduled, status.number_ready) = (0, 0);
        for (node, place) in &self.nodes {
            let Some(pod) = self.pods.get(node).and_then(|pods| pods.first()) else { continue };
            if *place != Place::Wanted {
                status.number_misscheduled += 1;
                continue;
            }
            status.current_number_scheduled += 1;
            status.number_ready += i32::from(pods::ready(pod).is_some());
            available += i32::from(self.is_available(pod));
            updated += i32::from(self.is_updated(pod));
        }
        // What is zero is not said, as in Kubernetes.
        let some = |number: i32| Some(number).filter(|number| *number > 0);
        status.updated_number_scheduled = some(updated);
        status.number_available = some(available);
        status.number_unavailable = some(status.desired_number_scheduled - available);
        status
    }
}

/// The number of a set's template, from the time before revisions.
pub fn generation(set: &DaemonSet) -> Option<&str> {
    let number = set.metadata.annotations.as_ref()?.get(GENERATION_OF_SET)?;
    Some(number.as_str()).filter(|number| number.parse::<i64>().is_ok())
}

/// The node a pod is on, or is meant for.
pub fn target(pod: &Pod) -> Option<&str> {
    if let Some(node) = node_name(pod) {
        return Some(node);
    }
    let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
    let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
    let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
    let named = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
    match named.values.as_deref() {
        Some([node]) => Some(node),
        _ => None,
    }
}

fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty())
}

fn lives(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
}

fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
