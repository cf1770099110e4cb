//! One look at a Job and its pods: how it stands, whether it is over, and which pods to make or delete. Without any I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobCondition, JobSpec, JobStatus},
        core::v1::Pod,
    },
    jiff::{SignedDuration, Timestamp},
};

use super::{
    backoff::{self, Record},
    indexes::Indexes,
    policies::{self, Verdict},
};
use crate::{pod_writes::BURST, pods, replica_set::victims};

/// Keeps a pod until it has been counted.
pub const TRACKED: &str = "batch.kubernetes.io/job-tracking";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
pub const IGNORED_FAILURES: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Why nothing more is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    pub succeeded: bool,
    pub reason: String,
    pub message: String,
}

impl Over {
    fn failed(reason: &str, message: &str) -> Self {
        Self { succeeded: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    fn told(condition: &JobCondition) -> Self {
        let (reason, message) = (condition.reason.clone(), condition.message.clone());
        let succeeded = condition.type_ == "SuccessCriteriaMet";
        Self { succeeded, reason: reason.unwrap_or_default(), message: message.unwrap_or_default() }
    }
}

/// What to do about the pods.
#[derive(Debug, PartialEq)]
pub enum Plan {
    Nothing,
    /// Pods that failed are replaced later.
    Wait(Duration),
    Delete(Vec<Arc<Pod>>),
    /// Pods to make, each with its index where the Job has indexes.
    Create(Vec<Option<i32>>),
}

pub struct Look<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    pub pods: Vec<Arc<Pod>>,
    pub active: Vec<Arc<Pod>>,
    pub terminating: i32,
    pub succeeded: i32,
    pub failed: i32,
    /// How the Job fares, with what has ended now.
    pub backoff: Record,
    /// The indexes that had succeeded when the status was last written, and those that have by now.
    pub succeeded_before: Indexes,
    pub succeeded_indexes: Indexes,
    /// Only where indexes have limits of their own.
    pub failed_indexes: Option<Indexes>,
    /// The last pod of each index that failed and was not replaced yet. It stays until its successor knows its count.
    pub to_replace: BTreeMap<i32, Arc<Pod>>,
    pub now: Timestamp,
}

impl<'a> Look<'a> {
    pub fn new(job: &'a Job, spec: &'a JobSpec, mut pods: Vec<Arc<Pod>>, backoff: Record, now: Timestamp) -> Self {
        if is_indexed(spec) {
            pods.sort_by_key(|pod| completion_index(pod));
        }
        let status = job.status.clone().unwrap_or_default();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (known_succeeded, known_failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let active: Vec<Arc<Pod>> = pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let mut look = Self {
            job,
            spec,
            terminating: count(pods.iter().filter(|pod| pods::is_terminating(pod)).count()),
            active,
            pods,
            succeeded: 0,
            failed: 0,
            backoff,
            succeeded_before: Indexes::default(),
            succeeded_indexes: Indexes::default(),
            failed_indexes: None,
            to_replace: BTreeMap::new(),
            now,
        };
        let succeeded = look.ended(&known_succeeded, |pod| pods::phase(pod) == "Succeeded");
        let failed = look.ended(&known_failed, |pod| look.has_failed(pod));
        let counted = failed.iter().filter(|pod| policies::verdict(spec, pod) != Verdict::Ignored).count();
        look.succeeded = status.succeeded.unwrap_or(0) + count(succeeded.len() + known_succeeded.len());
        look.failed = status.failed.unwrap_or(0) + count(counted + known_failed.len());
        look.backoff = backoff.after(&succeeded, &failed);
        if is_indexed(spec) {
            look.see_indexes(&status);
        }
        look
    }

    fn see_indexes(&mut self, status: &JobStatus) {
        let completions = self.completions();
        let before = Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), completions);
        let succeeded = self.pods.iter().filter(|pod| is_tracked(pod) && pods::phase(pod) == "Succeeded");
        let succeeded = before.with(succeeded.filter_map(|pod| self.index(pod)));
        self.succeeded = succeeded.count();
        (self.succeeded_before, self.succeeded_indexes) = (before, succeeded);
        if let Some(limit) = self.spec.backoff_limit_per_index {
            self.see_failures(status.failed_indexes.as_deref().unwrap_or_default(), limit);
        }
    }

    /// Which indexes have failed for good, and which pods are to be replaced.
    fn see_failures(&mut self, before: &str, limit: i32) {
        let failed = self.pods.iter().filter(|pod| is_tracked(pod) && self.index_has_failed(pod, limit));
        let failed = Indexes::parse(before, self.completions()).with(failed.filter_map(|pod| self.index(pod)));
        let active: BTreeSet<i32> = self.active.iter().filter_map(|pod| completion_index(pod)).collect();
        let settled = |index: i32| self.succeeded_indexes.has(index) || failed.has(index) || active.contains(&index);
        let mut last: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
        for pod in self.pods.iter().filter(|pod| is_tracked(pod) && self.has_failed(pod)) {
            let Some(index) = self.index(pod).filter(|index| !settled(*index)) else { continue };
            let later = |known: &Arc<Pod>| {
                all_failures(known) <= all_failures(pod) && backoff::finished(pod) >= backoff::finished(known)
            };
            if last.get(&index).is_none_or(later) {
                last.insert(index, pod.clone());
            }
        }
        self.to_replace = last;
        self.failed_indexes = Some(failed);
    }

    /// Pods that have ended, are not among those counted, and belong to an index there is.
    fn ended(&self, counted: &[String], has: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        let known = |pod: &Pod| pod.metadata.uid.as_ref().is_some_and(|uid| counted.contains(uid));
        let belongs = |pod: &Pod| !is_indexed(self.spec) || self.index(pod).is_some();
        let ended = self.pods.iter().filter(|pod| is_tracked(pod) && !known(pod) && belongs(pod) && has(pod));
        ended.cloned().collect()
    }

    /// Whether a pod counts as failed. Where only those that have really ended are replaced, one that is going does not yet.
    pub fn has_failed(&self, pod: &Pod) -> bool {
        pods::phase(pod) == "Failed" || (pods::is_terminating(pod) && !replaces_only_failed(self.spec))
    }

    fn index_has_failed(&self, pod: &Pod, limit: i32) -> bool {
        self.has_failed(pod)
            && match policies::verdict(self.spec, pod) {
                Verdict::FailsIndex => true,
                Verdict::Ignored => false,
                Verdict::Counts | Verdict::FailsJob(_) => number(pod, FAILURES) >= limit,
            }
    }

    pub fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or(0)
    }

    /// The index of a pod, if the Job has it.
    pub fn index(&self, pod: &Pod) -> Option<i32> {
        completion_index(pod).filter(|index| *index < self.completions())
    }

    /// Whether the Job is over for another reason than that all was done.
    pub fn over(&self) -> Option<Over> {
        let conditions = self.job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let told = |type_: &str| conditions.iter().find(|c| c.type_ == type_ && c.status == "True").map(Over::told);
        told("SuccessCriteriaMet")
            .or_else(|| told("FailureTarget"))
            .or_else(|| self.policy_fails())
            .or_else(|| self.limit_exceeded())
            .or_else(|| self.indexes_failed())
            .or_else(|| {
                let met =
                    policies::success(self.spec.success_policy.as_ref(), self.completions(), &self.succeeded_indexes);
                met.map(|message| Over { succeeded: true, reason: "SuccessPolicy".to_owned(), message })
            })
    }

    fn policy_fails(&self) -> Option<Over> {
        let verdicts = self.pods.iter().filter(|pod| self.has_failed(pod)).map(|pod| policies::verdict(self.spec, pod));
        verdicts.into_iter().find_map(|verdict| match verdict {
            Verdict::FailsJob(message) => Some(Over::failed("PodFailurePolicy", &message)),
            _ => None,
        })
    }

    fn limit_exceeded(&self) -> Option<Over> {
        let limit = self.spec.backoff_limit.unwrap_or(i32::MAX);
        if self.failed > limit || self.restarts().is_some_and(|restarts| restarts >= limit.max(1)) {
            return Some(Over::failed("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        let late = self.time_left().is_some_and(|left| left.is_zero());
        late.then(|| Over::failed("DeadlineExceeded", "Job was active longer than specified deadline"))
    }

    /// How often containers were started again, where pods do that themselves.
    fn restarts(&self) -> Option<i32> {
        let template = self.spec.template.spec.as_ref()?;
        if template.restart_policy.as_deref() != Some("OnFailure") {
            return None;
        }
        let lives = |pod: &&Arc<Pod>| matches!(pods::phase(pod), "Running" | "Pending");
        Some(self.pods.iter().filter(lives).map(|pod| restarts(pod)).sum())
    }

    /// What is left of the time the Job may take. None if there is no such limit, or the Job does not run.
    pub fn time_left(&self) -> Option<Duration> {
        let limit = self.spec.active_deadline_seconds.filter(|_| !is_suspended(self.spec))?;
        let start = self.job.status.as_ref()?.start_time.as_ref()?.0;
        let left = SignedDuration::from_secs(limit).saturating_sub(self.now.duration_since(start));
        Some(Duration::try_from(left).unwrap_or_default())
    }

    fn indexes_failed(&self) -> Option<Over> {
        let failed = self.failed_indexes.as_ref()?.count();
        if self.spec.max_failed_indexes.is_some_and(|most| failed > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Over::failed("MaxFailedIndexesExceeded", message));
        }
        let all = failed > 0 && failed + self.succeeded_indexes.count() >= self.completions();
        all.then(|| Over::failed("FailedIndexes", "Job has failed indexes"))
    }

    /// Whether all was done, when so many pods are active.
    pub fn complete(&self, active: i32) -> Option<Over> {
        let enough = self.spec.completions.unwrap_or(1);
        let done = active == 0 && self.succeeded >= enough;
        done.then(|| Over {
            succeeded: true,
            reason: "CompletionsReached".to_owned(),
            message: "Reached expected number of succeeded pods".to_owned(),
        })
    }

    /// What to do about the pods of a Job that is not over.
    pub fn plan(&self) -> Plan {
        let active = count(self.active.len());
        if is_suspended(self.spec) {
            return if active > 0 { Plan::Delete(self.active.clone()) } else { Plan::Nothing };
        }
        let parallelism = self.spec.parallelism.unwrap_or(1);
        let wanted = match self.spec.completions {
            None if self.succeeded > 0 => active,
            None => parallelism,
            Some(completions) => (completions - self.succeeded).min(parallelism).max(0),
        };
        let mut too_many = self.too_many(usize::try_from(active - wanted).unwrap_or(0));
        if !too_many.is_empty() {
            too_many.truncate(BURST);
            return Plan::Delete(too_many);
        }
        let going = if replaces_only_failed(self.spec) { self.terminating } else { 0 };
        let missing = usize::try_from(wanted - going - active).unwrap_or(0);
        if missing == 0 {
            return Plan::Nothing;
        }
        let wait = self.backoff.wait(self.now);
        if self.spec.backoff_limit_per_index.is_none() && !wait.is_zero() {
            return Plan::Wait(wait);
        }
        let missing = missing.min(BURST);
        if is_indexed(self.spec) { self.indexes_to_start(missing) } else { Plan::Create(vec![None; missing]) }
    }

    /// At least so many of the active pods, and all whose index is none, or another pod's.
    fn too_many(&self, at_least: usize) -> Vec<Arc<Pod>> {
        let (mut surplus, mut kept) = (Vec::new(), self.active.clone());
        if is_indexed(self.spec) {
            let mut by_index: BTreeMap<i32, Vec<Arc<Pod>>> = BTreeMap::new();
            for pod in std::mem::take(&mut kept) {
                match self.index(&pod) {
                    None => surplus.push(pod),
                    Some(index) => by_index.entry(index).or_default().push(pod),
                }
            }
            for same in by_index.into_values() {
                let least = victims::choose(&same, &[], same.len() - 1, self.now);
                kept.extend(same.into_iter().filter(|pod| !least.iter().any(|other| Arc::ptr_eq(pod, other))));
                surplus.extend(least);
            }
        }
        let more = at_least.saturating_sub(surplus.len());
        if more > 0 {
            surplus.extend(victims::choose(&kept, &[], more, self.now));
        }
        surplus
    }

    fn indexes_to_start(&self, missing: usize) -> Plan {
        let at_work =
            |pod: &&Arc<Pod>| pods::is_active(pod) || (replaces_only_failed(self.spec) && pods::is_terminating(pod));
        let at_work = self.pods.iter().filter(at_work).filter_map(|pod| completion_index(pod));
        let mut taken = self.succeeded_indexes.with(at_work);
        if let Some(failed) = &self.failed_indexes {
            taken = taken.union(failed);
        }
        let wait = |index: i32| {
            let last = self.to_replace.get(&index).filter(|_| self.spec.backoff_limit_per_index.is_some());
            last.map_or(Duration::ZERO, |pod| {
                let failures = u32::try_from(all_failures(pod) + 1).unwrap_or(1);
                backoff::wait(failures, backoff::finished(pod), self.now)
            })
        };
        let (now, later): (Vec<i32>, Vec<i32>) =
            taken.first_missing(missing, self.completions()).into_iter().partition(|index| wait(*index).is_zero());
        match later.into_iter().map(wait).min() {
            Some(soonest) if now.is_empty() => Plan::Wait(soonest),
            _ if now.is_empty() => Plan::Nothing,
            _ => Plan::Create(now.into_iter().map(Some).collect()),
        }
    }
}

/// How often containers of a pod were started again.
fn restarts(pod: &Pod) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten()).map(|container| container.restart_count).sum()
}

pub fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

pub fn is_suspended(spec: &JobSpec) -> bool {
    spec.suspend == Some(true)
}

fn replaces_only_failed(spec: &JobSpec) -> bool {
    spec.pod_replacement_policy.as_deref() == Some("Failed") || spec.pod_failure_policy.is_some()
}

/// How a Job has ended, if it has.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    let mut conditions = job.status.as_ref()?.conditions.iter().flatten();
    conditions.find(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True")
}

pub fn is_tracked(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == TRACKED)
}

pub fn completion_index(pod: &Pod) -> Option<i32> {
    let text = pod.metadata.annotations.as_ref()?.get(INDEX)?;
    text.parse().ok().filter(|index| *index >= 0)
}

/// A number in an annotation, zero if there is none.
pub fn number(pod: &Pod, annotation: &str) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(annotation));
    text.and_then(|text| text.parse().ok()).filter(|number| *number >= 0).unwrap_or(0)
}

/// How often an index had failed when the pod was made.
fn all_failures(pod: &Pod) -> i32 {
    number(pod, FAILURES) + number(pod, IGNORED_FAILURES)
}

pub fn count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
