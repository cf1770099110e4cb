//! Room for a pod that fits nowhere: the node on which it would fit if some less important pods were gone, and the fewest
//! and least important of them.
//!
//! Nodes are tried by supposing: all less important pods go, and then, the most important first, come back if the pod still fits. Budgets
//! are honoured where possible: a pod whose budget would be broken comes back before others.

mod eviction;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use k8s_openapi::{api::policy::v1::PodDisruptionBudget, jiff::Timestamp};
use object_model::selector::LabelSelector;

pub use eviction::Evictions;

use crate::{
    cycle::Search,
    framework::{Diagnosis, Filter, Rejection},
    pod::PodInfo,
    selection::{label_selector, selects},
    snapshot::NodeInfo,
};

const NAME: &str = "DefaultPreemption";
/// So many nodes to choose from are enough: a tenth of them, but no fewer than this.
const LEAST_CANDIDATES: usize = 100;
/// The reason of the condition of a pod that has to go.
pub const REASON: &str = "PreemptionByScheduler";

/// Where there would be room.
pub struct Room {
    pub node: String,
    /// The most important first.
    pub victims: Vec<Arc<PodInfo>>,
    /// How many of them break a budget.
    violations: usize,
}

/// Why there is none.
pub struct NoRoom {
    pub words: String,
    /// Whether room that was made before is of no use any more.
    pub for_good: bool,
}

pub fn make_room(
    search: Search<'_>,
    diagnosis: &Diagnosis,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<Room, NoRoom> {
    if let Some(words) = may_not(search, diagnosis) {
        return Err(NoRoom { words: words.to_owned(), for_good: false });
    }
    let mut potential: Vec<usize> = match &diagnosis.by_all {
        Some(_) => Vec::new(),
        None => diagnosis.by_node.iter().filter(|(_, why)| !why.unresolvable).map(|(slot, _)| *slot).collect(),
    };
    // Pods that come at the same time should not all look at the same nodes.
    let mut hasher = DefaultHasher::new();
    search.pod.uid.hash(&mut hasher);
    let offset = hasher.finish() as usize % potential.len().max(1);
    potential.rotate_left(offset);

    let enough = (potential.len() / 10).max(LEAST_CANDIDATES);
    let (promising, hopeless): (Vec<usize>, Vec<usize>) =
        potential.into_iter().partition(|slot| search.snapshot.node(*slot).has_lesser(search.pod.priority));
    let nobody = Arc::new(no_victims());
    let mut failed: Vec<_> = hopeless.into_iter().map(|slot| (slot, nobody.clone())).collect();
    if promising.is_empty() {
        return Err(NoRoom { words: words(diagnosis, failed), for_good: true });
    }
    let mut ignored = Diagnosis::default();
    let filters = search.pre_filter(&mut ignored).map(|(filters, _)| filters).unwrap_or_default();
    let (budgets, mut rooms) = (budgets.iter().filter_map(|of| Budget::of(of)).collect::<Vec<_>>(), Vec::new());
    for slot in promising {
        match on_node(search, &filters, slot, &budgets) {
            Ok(room) => rooms.push(room),
            Err(rejection) => failed.push((slot, Arc::new(rejection))),
        }
        if rooms.len() >= enough && rooms.iter().any(|room| room.violations == 0) {
            break;
        }
    }
    rooms.into_iter().min_by_key(badness).ok_or_else(|| NoRoom { words: words(diagnosis, failed), for_good: true })
}

/// Why a pod must not make others go, if so.
fn may_not(search: Search<'_>, diagnosis: &Diagnosis) -> Option<&'static str> {
    let spec = search.pod.spec();
    if spec.and_then(|spec| spec.preemption_policy.as_deref()) == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let slot = search.snapshot.slot(search.nominations.node_of(&search.pod.uid)?)?;
    let of_no_use = diagnosis.by_node.iter().any(|(rejected, why)| *rejected == slot && why.unresolvable);
    let goes = |pod: &Arc<PodInfo>| pod.priority < search.pod.priority && is_being_preempted(pod);
    (!of_no_use && search.snapshot.node(slot).pods().iter().any(goes))
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

fn is_being_preempted(pod: &PodInfo) -> bool {
    let conditions = pod.status().and_then(|status| status.conditions.as_ref());
    let target = conditions.into_iter().flatten().find(|condition| condition.type_ == "DisruptionTarget");
    pod.is_terminating()
        && target.is_some_and(|target| target.status == "True" && target.reason.as_deref() == Some(REASON))
}

fn no_victims() -> Rejection {
    Rejection::for_good(NAME, "No preemption victims found for incoming pod")
}

/// Who would have to go from a node, on which there are less important pods.
fn on_node(
    search: Search<'_>,
    filters: &[Box<dyn Filter + '_>],
    slot: usize,
    budgets: &[Budget<'_>],
) -> Result<Room, Rejection> {
    let mut node = search.snapshot.node(slot).clone();
    let mut filters: Vec<_> = filters.iter().map(|filter| filter.copy()).collect();
    let mut lesser: Vec<_> = node.pods().iter().filter(|pod| pod.priority < search.pod.priority).cloned().collect();
    for pod in &lesser {
        suppose(&mut filters, &mut node, pod, slot, false);
    }
    search.judge_supposed(&filters, slot, &node)?;
    lesser.sort_by_key(importance);
    let (breaking, others) = by_budget(lesser, budgets);
    let (mut victims, mut violations) = (Vec::new(), 0);
    for (pod, breaks) in breaking.into_iter().map(|pod| (pod, true)).chain(others.into_iter().map(|pod| (pod, false))) {
        suppose(&mut filters, &mut node, &pod, slot, true);
        if search.judge_supposed(&filters, slot, &node).is_err() {
            suppose(&mut filters, &mut node, &pod, slot, false);
            violations += usize::from(breaks);
            victims.push(pod);
        }
    }
    victims.sort_by_key(importance);
    if victims.is_empty() {
        return Err(no_victims());
    }
    Ok(Room { node: node.name().to_owned(), victims, violations })
}

fn suppose(filters: &mut [Box<dyn Filter + '_>], node: &mut NodeInfo, pod: &Arc<PodInfo>, slot: usize, came: bool) {
    filters.iter_mut().for_each(|filter| filter.suppose(pod, slot, came));
    if came {
        node.add(pod.clone());
    } else {
        node.remove(&pod.uid);
    }
}

/// The most important first: by priority, then those that have run longest.
fn importance(pod: &Arc<PodInfo>) -> (Reverse<i32>, Timestamp) {
    (Reverse(pod.priority), started(pod))
}

fn started(pod: &PodInfo) -> Timestamp {
    let started = pod.status().and_then(|status| status.start_time.as_ref());
    started.map_or(Timestamp::MAX, |time| time.0)
}

/// A budget that selects any pods, with its selector read once for all of them.
struct Budget<'a> {
    of: &'a PodDisruptionBudget,
    selector: LabelSelector,
}

/// Pods whose going would break a budget, and the others. Order stays.
fn by_budget(pods: Vec<Arc<PodInfo>>, budgets: &[Budget<'_>]) -> (Vec<Arc<PodInfo>>, Vec<Arc<PodInfo>>) {
    let mut allowed: Vec<i32> = budgets
        .iter()
        .map(|budget| budget.of.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0))
        .collect();
    pods.into_iter().partition(|pod| {
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            if budget.covers(pod) {
                *allowed -= 1;
                if *allowed < 0 {
                    return true;
                }
            }
        }
        false
    })
}

impl<'a> Budget<'a> {
    fn of(of: &'a PodDisruptionBudget) -> Option<Self> {
        let selector = label_selector(of.spec.as_ref()?.selector.as_ref()?)?;
        (!selector.is_everything()).then_some(Self { of, selector })
    }

    /// Whether a pod counts for the budget. One that goes already has been counted.
    fn covers(&self, pod: &PodInfo) -> bool {
        let goes = self.of.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
        self.of.metadata.namespace.as_deref() == Some(&pod.key.namespace)
            && !pod.labels().is_empty()
            && selects(&self.selector, pod.labels())
            && !goes.is_some_and(|goes| goes.contains_key(&pod.key.name))
    }
}

/// The smaller, the better: broken budgets, the most important victim, the importance of all, their number, and how long the most
/// important ones have run.
fn badness(room: &Room) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let highest = room.victims.first().map_or(i32::MIN, |pod| pod.priority);
    let sum = room.victims.iter().map(|pod| i64::from(pod.priority) - i64::from(i32::MIN)).sum();
    let earliest = room.victims.iter().filter(|pod| pod.priority == highest).map(|pod| started(pod)).min();
    (room.violations, highest, sum, room.victims.len(), Reverse(earliest.unwrap_or(Timestamp::MAX)))
}

fn words(diagnosis: &Diagnosis, mut failed: Vec<(usize, Arc<Rejection>)>) -> String {
    let of_no_use = Arc::new(Rejection::for_good(NAME, "Preemption is not helpful for scheduling"));
    failed.resize(diagnosis.nodes, (usize::MAX, of_no_use));
    Diagnosis { nodes: diagnosis.nodes, by_node: failed, ..Diagnosis::default() }.to_string()
}
