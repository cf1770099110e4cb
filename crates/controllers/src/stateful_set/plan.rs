//! What to do next about the pods of a StatefulSet, in order, and how it stands. Without any I/O.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        apps::v1::{StatefulSet, StatefulSetSpec, StatefulSetStatus},
        core::v1::{Pod, PodTemplateSpec},
    },
    jiff::Timestamp,
};

use super::identity::{is_wanted, new_pod, numbers, ordinal, pod_revision, replicas, start};
use crate::{pod_writes::BURST, pods, share::scaled};

/// A template with the name of its revision.
pub struct Version {
    pub name: String,
    pub template: PodTemplateSpec,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Makes a pod and its claims, unless one of them is on its way out.
    Create(Box<Pod>),
    Delete(Arc<Pod>),
    /// Makes claims that a pod waits for.
    Claims(Arc<Pod>),
    /// Sees that a pod and its claims are what they should be.
    Keep(Arc<Pod>),
    /// Sees that the claims of a pod that goes have the right owners.
    KeepClaims(Arc<Pod>),
}

/// What to do. The next part begins only when all of the one before went well.
#[derive(Debug, Default, PartialEq)]
pub struct Steps {
    pub parts: Vec<Vec<Step>>,
    /// How many pods of the old template make way for new ones.
    pub updates: i32,
}

/// A number, and the pod that has it.
type Place = (i32, Option<Arc<Pod>>);

pub struct Plan<'a> {
    pub set: &'a StatefulSet,
    pub spec: &'a StatefulSetSpec,
    pub current: &'a Version,
    pub update: &'a Version,
    pub pods: &'a [Arc<Pod>],
    pub now: Timestamp,
}

impl Plan<'_> {
    pub fn is_ordered(&self) -> bool {
        self.spec.pod_management_policy.as_deref() != Some("Parallel")
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.min_ready_seconds.unwrap_or(0)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        pods::is_available(pod, self.min_ready_seconds(), self.now)
    }

    fn is_there(&self, pod: &Pod) -> bool {
        self.is_available(pod) && pod.metadata.deletion_timestamp.is_none()
    }

    /// The pods by their numbers, and those that are too many, the highest first.
    fn sorted(&self) -> (Vec<Place>, Vec<Arc<Pod>>) {
        let (wanted, mut surplus): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            self.pods.iter().filter(|pod| ordinal(pod).is_some()).partition(|pod| is_wanted(self.spec, pod));
        let mut all: BTreeMap<i32, Option<Arc<Pod>>> =
            wanted.into_iter().filter_map(|pod| Some((ordinal(pod)?, Some(pod.clone())))).collect();
        // Only so many of those that are missing: a set may ask for billions.
        let missing: Vec<i32> = numbers(self.spec).filter(|number| !all.contains_key(number)).take(BURST).collect();
        all.extend(missing.into_iter().map(|number| (number, None)));
        surplus.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
        (all.into_iter().collect(), surplus.into_iter().cloned().collect())
    }

    /// The whole way to what should be, as far as it can be gone now.
    pub fn steps(&self) -> Steps {
        let mut steps = Steps::default();
        if self.set.metadata.deletion_timestamp.is_some() {
            return steps;
        }
        let (wanted, surplus) = self.sorted();
        let first_missing = wanted.iter().find(|(_, pod)| !pod.as_ref().is_some_and(|pod| self.is_there(pod)));
        let first_missing = match first_missing {
            Some((_, pod)) => pod.clone(),
            None => surplus.iter().rev().find(|pod| !self.is_there(pod)).cloned(),
        };
        let (tended, go_on) = self.tend(&wanted);
        steps.parts.push(tended);
        if !go_on {
            return steps;
        }
        steps.parts.push(surplus.iter().cloned().map(Step::KeepClaims).collect());
        let (condemned, go_on) = self.condemn(&surplus, first_missing.as_ref());
        steps.parts.push(condemned.into_iter().map(Step::Delete).collect());
        if !go_on {
            return steps;
        }
        let outdated = self.outdated(&wanted);
        steps.updates = i32::try_from(outdated.len()).unwrap_or(i32::MAX);
        steps.parts.push(outdated.into_iter().map(Step::Delete).collect());
        steps
    }

    /// Each number has its pod. In order, the next must wait until the one before is available.
    fn tend(&self, wanted: &[Place]) -> (Vec<Step>, bool) {
        let mut steps = Vec::new();
        for (number, pod) in wanted {
            let Some(pod) = pod else {
                steps.push(Step::Create(Box::new(self.new_pod(*number))));
                if self.is_ordered() {
                    return (steps, false);
                }
                continue;
            };
            let going = pod.metadata.deletion_timestamp.is_some();
            if pods::is_finished(pod) {
                if !going {
                    steps.push(Step::Delete(pod.clone()));
                }
                if self.is_ordered() {
                    return (steps, false);
                }
                continue;
            }
            if pods::phase(pod) == "Pending" {
                steps.push(Step::Claims(pod.clone()));
            }
            if self.is_ordered() && (going || pods::phase(pod) != "Running" || !self.is_available(pod)) {
                return (steps, false);
            }
            steps.push(Step::Keep(pod.clone()));
        }
        (steps, true)
    }

    /// Pods that are too many go: in order, the highest first, one at a time, and only while the others are well.
    fn condemn(&self, surplus: &[Arc<Pod>], first_missing: Option<&Arc<Pod>>) -> (Vec<Arc<Pod>>, bool) {
        let lives = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
        if !self.is_ordered() {
            return (surplus.iter().filter(lives).cloned().collect(), true);
        }
        let Some(last) = surplus.first() else { return (Vec::new(), true) };
        let is_first_missing = first_missing.is_some_and(|first| Arc::ptr_eq(first, last));
        let well = pods::phase(last) == "Running" && self.is_available(last);
        let may_go = lives(&last) && (well || is_first_missing);
        (may_go.then(|| last.clone()).into_iter().collect(), false)
    }

    /// Pods of the old template that make way for new ones, the highest first.
    fn outdated(&self, wanted: &[Place]) -> Vec<Arc<Pod>> {
        let strategy = self.spec.update_strategy.as_ref();
        if strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete") {
            return Vec::new();
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let from = start(self.spec).saturating_add(self.partition());
        let is_there = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| self.is_there(pod));
        let may_go = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).map(|most| {
            let most = scaled(Some(most), replicas(self.spec), false).max(1);
            let missing = wanted.iter().filter(|(_, pod)| !is_there(pod)).count();
            usize::try_from(most).unwrap_or(1).saturating_sub(missing)
        });
        let mut going = Vec::new();
        for (_, pod) in wanted.iter().rev().take_while(|(number, _)| *number >= from) {
            if going.len() >= may_go.unwrap_or(1) {
                break;
            }
            let old = pod.as_ref().filter(|pod| {
                pod_revision(pod) != Some(&self.update.name) && pod.metadata.deletion_timestamp.is_none()
            });
            match old {
                Some(old) => going.push(old.clone()),
                // One at a time: the one before must be there first.
                None if may_go.is_none() && !is_there(pod) => break,
                None => {}
            }
        }
        going
    }

    fn partition(&self) -> i32 {
        let rolling = self.spec.update_strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
        rolling.and_then(|rolling| rolling.partition).unwrap_or(0)
    }

    /// A pod of the current template where an update has not come to it, else of the new one.
    fn new_pod(&self, number: i32) -> Pod {
        let strategy = self.spec.update_strategy.as_ref();
        let is_rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete");
        let current = match strategy.and_then(|strategy| strategy.rolling_update.as_ref()) {
            Some(_) => self.partition(),
            None if is_rolling => self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0),
            None => 0,
        };
        let version = if number < start(self.spec).saturating_add(current) { self.current } else { self.update };
        new_pod(self.set, &version.template, &version.name, number)
    }

    /// The status, when so many pods of the old template have just been deleted.
    pub fn status(&self, updates: i32) -> StatefulSetStatus {
        let count = |is: &dyn Fn(&Pod) -> bool| {
            i32::try_from(self.pods.iter().filter(|pod| is(pod)).count()).unwrap_or(i32::MAX)
        };
        let ready = |pod: &Pod| pods::phase(pod) == "Running" && pods::ready(pod).is_some();
        let of = |pod: &Pod, version: &Version| {
            pod.metadata.deletion_timestamp.is_none() && pod_revision(pod) == Some(&version.name)
        };
        let all = count(&|_| true);
        let (ready, available) = (count(&ready), count(&|pod| ready(pod) && self.is_available(pod)));
        let updated = count(&|pod| of(pod, self.update));
        let mut current = count(&|pod| of(pod, self.current)) - updates;
        let mut current_revision = &self.current.name;
        let is_rolling =
            self.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate");
        if is_rolling && [updated, ready, all] == [replicas(self.spec); 3] {
            (current, current_revision) = (updated, &self.update.name);
        }
        let old = self.set.status.clone().unwrap_or_default();
        let some = |number: i32| Some(number).filter(|number| *number != 0);
        StatefulSetStatus {
            observed_generation: self.set.metadata.generation,
            replicas: all,
            ready_replicas: some(ready),
            available_replicas: Some(available),
            current_replicas: some(current),
            updated_replicas: some(updated),
            current_revision: Some(current_revision.clone()),
            update_revision: Some(self.update.name.clone()),
            collision_count: Some(old.collision_count.unwrap_or(0)),
            conditions: old.conditions,
        }
    }
}
