//! Pods that wait for a node.
//!
//! A pod is in one place: `active` (to be tried, best first), `backing off` (to be tried, but not at once again),
//! `unschedulable` (to be tried when something happened that could help it, or after five minutes), or `gated` (not to be
//! tried until its gates are gone, or until what is being done for it has an end). When nobody is active, who backs off is
//! tried early, the most important first of those whose time comes in the same second: waiting would help nobody. Those
//! that failed by an error wait to the end. Time is given from outside.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    framework::{Event, Framework},
    pod::PodInfo,
};

#[cfg(test)]
mod tests;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// Backing off ends together for all whose time comes within this.
const WINDOW: Duration = Duration::from_secs(1);
/// When a pod is tried again although nothing happened that could help it.
const TRIED_AGAIN_AFTER: Duration = Duration::from_secs(300);

/// A pod with its history.
#[derive(Clone)]
pub struct Queued {
    pub pod: Arc<PodInfo>,
    /// Since when it waits, this time.
    pub since: Instant,
    /// How often it fitted nowhere.
    misfits: u32,
    /// How often something failed, in a row.
    errors: u32,
    /// Who rejected it last. Nobody: any event may help.
    pub rejected_by: BTreeSet<&'static str>,
}

impl Queued {
    fn backoff(&self) -> Duration {
        match if self.errors > 0 { self.errors } else { self.misfits } {
            0 => Duration::ZERO,
            count => FIRST_BACKOFF.saturating_mul(1 << (count - 1).min(16)).min(LONGEST_BACKOFF),
        }
    }
}

type Order = (Reverse<i32>, Instant, u64);

enum Place {
    Active(Order),
    /// Until when, and whether because of an error.
    BackingOff(Instant, Order, bool),
    Unschedulable,
    Gated,
}

pub struct Queue {
    framework: Arc<Framework>,
    /// From when on windows are counted.
    origin: Instant,
    pods: HashMap<String, (Queued, Place)>,
    /// Pods for which something is being done, by uid. Until it has an end, no event makes them be tried.
    held: HashSet<String>,
    active: BTreeSet<(Order, String)>,
    backing_off: BTreeSet<(Instant, Order, String)>,
    /// The same for those that failed by an error.
    after_errors: BTreeSet<(Instant, Order, String)>,
    /// By who rejected them: an event is put to the plugins that it means something to, and to their pods only.
    unschedulable: HashMap<BTreeSet<&'static str>, BTreeSet<(Instant, String)>>,
    /// Makes those equal that came at the same instant go in their order.
    added: u64,
}

impl Queue {
    pub fn new(framework: Arc<Framework>, now: Instant) -> Self {
        Self {
            framework,
            origin: now,
            pods: HashMap::new(),
            held: HashSet::new(),
            active: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            after_errors: BTreeSet::new(),
            unschedulable: HashMap::new(),
            added: 0,
        }
    }

    /// A pod is new, or has changed. A change of what it asks for makes it worth another try.
    pub fn set(&mut self, pod: Arc<PodInfo>, now: Instant) {
        let uid = pod.uid.clone();
        match self.pods.remove(&uid) {
            None => {
                let rejected_by = BTreeSet::new();
                self.try_soon(Queued { pod, since: now, misfits: 0, errors: 0, rejected_by }, now);
            }
            Some((mut queued, place)) => {
                self.leave(&uid, &queued, &place);
                let worth_a_try = asks_for_other_things(&queued.pod, &pod);
                queued.pod = pod;
                match place {
                    Place::Unschedulable if !worth_a_try => self.stay_unschedulable(queued),
                    Place::BackingOff(until, _, error) => self.back_off(queued, until, error),
                    _ => self.try_soon(queued, now),
                }
            }
        }
    }

    pub fn get(&self, uid: &str) -> Option<&Arc<PodInfo>> {
        self.pods.get(uid).map(|(queued, _)| &queued.pod)
    }

    pub fn remove(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let (queued, place) = self.pods.remove(uid)?;
        self.leave(uid, &queued, &place);
        Some(queued.pod)
    }

    /// The next to be tried.
    pub fn pop(&mut self, now: Instant) -> Option<Queued> {
        self.wake_by_time(now);
        let uid = match self.active.first() {
            Some((_, uid)) => uid.clone(),
            None => self.backing_off.first()?.2.clone(),
        };
        let (queued, place) = self.pods.remove(&uid)?;
        self.leave(&uid, &queued, &place);
        Some(queued)
    }

    /// A pod fitted nowhere, by these plugins.
    pub fn misfit(&mut self, mut queued: Queued, rejected_by: BTreeSet<&'static str>, now: Instant) {
        queued.misfits += 1;
        queued.errors = 0;
        queued.rejected_by = rejected_by;
        queued.since = now;
        self.stay_unschedulable(queued);
    }

    /// Something failed that has nothing to do with the pod.
    pub fn failed(&mut self, mut queued: Queued, now: Instant) {
        queued.errors += 1;
        queued.rejected_by.clear();
        queued.since = now;
        let until = now + queued.backoff();
        self.back_off(queued, until, true);
    }

    /// Something is being done for a pod that has its turn: it gets no other before that has an end.
    pub fn hold(&mut self, uid: &str) {
        self.held.insert(uid.to_owned());
    }

    /// What was being done for a pod has an end. If anything happened meanwhile that could help it, its turn comes now. If that failed
    /// which was being done, its turn comes in any case, but not before its backoff is over.
    pub fn release(&mut self, uid: &str, failed: bool, now: Instant) {
        self.held.remove(uid);
        match self.pods.get(uid) {
            Some((_, Place::Unschedulable | Place::Gated)) if failed => {
                if let Some((queued, place)) = self.pods.remove(uid) {
                    self.leave(uid, &queued, &place);
                    let until = queued.since + queued.backoff();
                    self.back_off(queued, until, true);
                }
            }
            Some((_, Place::Gated)) => self.wake_one(uid, now),
            _ => {}
        }
    }

    /// Something happened: tries those again whom it could help.
    pub fn wake(&mut self, event: &Event<'_>, now: Instant) {
        self.wake_up_to(i32::MAX, event, now);
    }

    /// The same, but only those who are no more important.
    pub fn wake_up_to(&mut self, priority: i32, event: &Event<'_>, now: Instant) {
        let hearing: Vec<_> = self.framework.rejecters.iter().filter(|plugin| plugin.hears(event)).cloned().collect();
        let mut helped: Vec<String> = Vec::new();
        for (rejected_by, pods) in &self.unschedulable {
            let asked: Vec<_> = hearing.iter().filter(|plugin| rejected_by.contains(plugin.name())).collect();
            if asked.is_empty() && !rejected_by.is_empty() {
                continue;
            }
            let helps = |uid: &String| {
                let pod = self.pods.get(uid).map(|(queued, _)| &queued.pod).filter(|pod| pod.priority <= priority);
                pod.is_some_and(|pod| rejected_by.is_empty() || asked.iter().any(|plugin| plugin.helps(event, pod)))
            };
            helped.extend(pods.iter().map(|(_, uid)| uid).filter(|uid| helps(uid)).cloned());
        }
        for uid in helped {
            self.wake_one(&uid, now);
        }
    }

    /// When time alone changes something.
    pub fn next_change(&self) -> Option<Instant> {
        let of = |waiting: &BTreeSet<(Instant, Order, String)>| waiting.first().map(|(until, ..)| *until);
        let unschedulable = self.longest_unschedulable().map(|(since, _)| *since + TRIED_AGAIN_AFTER);
        [of(&self.backing_off), of(&self.after_errors), unschedulable].into_iter().flatten().min()
    }

    fn longest_unschedulable(&self) -> Option<&(Instant, String)> {
        self.unschedulable.values().filter_map(BTreeSet::first).min()
    }

    fn wake_by_time(&mut self, now: Instant) {
        while let Some((since, uid)) = self.longest_unschedulable()
            && *since + TRIED_AGAIN_AFTER <= now
        {
            let uid = uid.clone();
            self.wake_one(&uid, now);
        }
        let over = |waiting: &BTreeSet<(Instant, Order, String)>| {
            let over = waiting.iter().take_while(|(until, ..)| *until <= now);
            over.map(|(_, _, uid)| uid.clone()).collect::<Vec<_>>()
        };
        for uid in over(&self.backing_off).into_iter().chain(over(&self.after_errors)) {
            self.wake_one(&uid, now);
        }
    }

    fn wake_one(&mut self, uid: &str, now: Instant) {
        if let Some((queued, place)) = self.pods.remove(uid) {
            self.leave(uid, &queued, &place);
            self.try_soon(queued, now);
        }
    }

    /// To be tried as soon as its gates, what is being done for it, and its backoff allow.
    fn try_soon(&mut self, queued: Queued, now: Instant) {
        let is_gated = self.framework.pre_enqueue.iter().any(|plugin| plugin.pre_enqueue(&queued.pod).is_err());
        if is_gated || self.held.contains(&queued.pod.uid) {
            self.pods.insert(queued.pod.uid.clone(), (queued, Place::Gated));
            return;
        }
        let until = queued.since + queued.backoff();
        if until > now {
            let until = self.end_of_window(until);
            return self.back_off(queued, until, false);
        }
        let (order, uid) = (self.order(&queued), queued.pod.uid.clone());
        self.active.insert((order, uid.clone()));
        self.pods.insert(uid, (queued, Place::Active(order)));
    }

    fn end_of_window(&self, time: Instant) -> Instant {
        let windows = time.duration_since(self.origin).as_nanos().div_ceil(WINDOW.as_nanos());
        self.origin + WINDOW.saturating_mul(u32::try_from(windows).unwrap_or(u32::MAX))
    }

    fn back_off(&mut self, queued: Queued, until: Instant, error: bool) {
        let (order, uid) = (self.order(&queued), queued.pod.uid.clone());
        let waiting = if error { &mut self.after_errors } else { &mut self.backing_off };
        waiting.insert((until, order, uid.clone()));
        self.pods.insert(uid, (queued, Place::BackingOff(until, order, error)));
    }

    fn stay_unschedulable(&mut self, queued: Queued) {
        let uid = queued.pod.uid.clone();
        let alike = self.unschedulable.entry(queued.rejected_by.clone()).or_default();
        alike.insert((queued.since, uid.clone()));
        self.pods.insert(uid, (queued, Place::Unschedulable));
    }

    fn leave(&mut self, uid: &str, queued: &Queued, place: &Place) {
        match place {
            Place::Active(order) => drop(self.active.remove(&(*order, uid.to_owned()))),
            Place::BackingOff(until, order, false) => drop(self.backing_off.remove(&(*until, *order, uid.to_owned()))),
            Place::BackingOff(until, order, true) => drop(self.after_errors.remove(&(*until, *order, uid.to_owned()))),
            Place::Unschedulable => self.leave_unschedulable(uid, queued),
            Place::Gated => {}
        }
    }

    fn leave_unschedulable(&mut self, uid: &str, queued: &Queued) {
        if let Some(alike) = self.unschedulable.get_mut(&queued.rejected_by) {
            alike.remove(&(queued.since, uid.to_owned()));
            if alike.is_empty() {
                self.unschedulable.remove(&queued.rejected_by);
            }
        }
    }

    fn order(&mut self, queued: &Queued) -> Order {
        self.added += 1;
        let (priority, since) = self.framework.queue_sort.order(queued);
        (priority, since, self.added)
    }
}

/// Whether a pod may fit elsewhere than it did before: its own status is no reason.
fn asks_for_other_things(was: &PodInfo, is: &PodInfo) -> bool {
    was.labels() != is.labels() || was.spec() != is.spec()
}
