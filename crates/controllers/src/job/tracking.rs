//! Every pod is counted once, whatever happens in between.
//!
//! A pod that has ended is kept by a finalizer. First its uid is written into the Job's status as uncounted; then the
//! finalizer goes; then the uid leaves the status and the number grows. After a crash at any point the status says where to
//! go on. Indexes need no such care: an index is in the set or it is not.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::{
    api::{
        batch::v1::{JobCondition, JobStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    look::{Look, Over, count, is_indexed, is_tracked},
    policies::{self, Verdict},
};
use crate::pods;

/// How many pods are uncounted at most at a time.
const MOST_UNCOUNTED: usize = 500;

/// What was found out about the pods that have ended.
pub struct Tally {
    /// Pods whose finalizer can go once the status is written.
    pub release: Vec<Arc<Pod>>,
    /// The uids of all pods that have the finalizer.
    pub tracked: HashSet<String>,
    /// Whether all pods were looked at.
    pub all: bool,
}

/// Notes in the status which pods have ended.
pub fn tally(look: &Look<'_>, over: Option<&Over>, status: &mut JobStatus) -> Tally {
    let indexed = is_indexed(look.spec);
    let tracked = look.pods.iter().filter(|pod| is_tracked(pod));
    let mut tally = Tally {
        release: Vec::new(),
        tracked: tracked.clone().filter_map(|pod| pod.metadata.uid.clone()).collect(),
        all: true,
    };
    settle(status, &tally.tracked);
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let (mut succeeded, mut failed) =
        (uncounted.succeeded.take().unwrap_or_default(), uncounted.failed.take().unwrap_or_default());
    let mut new_indexes = Vec::new();
    for pod in tracked {
        let has_failed = look.has_failed(pod);
        if !can_go(look, over, pod, has_failed) {
            continue;
        }
        tally.release.push(pod.clone());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let index = look.index(pod);
        if pods::phase(pod) == "Succeeded" && !failed.contains(&uid) {
            if indexed {
                new_indexes.extend(index.filter(|index| !look.succeeded_before.has(*index)));
            } else if !succeeded.contains(&uid) {
                succeeded.push(uid);
            }
        } else if (has_failed || over.is_some_and(|over| !over.succeeded))
            && !failed.contains(&uid)
            && (!indexed || index.is_some())
            && policies::verdict(look.spec, pod) != Verdict::Ignored
        {
            failed.push(uid);
        }
        if new_indexes.len() + succeeded.len() + failed.len() >= MOST_UNCOUNTED {
            tally.all = false;
            break;
        }
    }
    let some = |uids: Vec<String>| Some(uids).filter(|uids| !uids.is_empty());
    (uncounted.succeeded, uncounted.failed) = (some(succeeded), some(failed));
    if indexed {
        let succeeded = look.succeeded_indexes.with(new_indexes);
        status.succeeded = Some(succeeded.count()).filter(|count| *count > 0);
        status.completed_indexes = Some(succeeded.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = look.failed_indexes.as_ref().map(ToString::to_string);
    }
    tally
}

/// Whether the finalizer of a pod can go.
fn can_go(look: &Look<'_>, over: Option<&Over>, pod: &Pod, has_failed: bool) -> bool {
    if look.job.metadata.deletion_timestamp.is_some() || over.is_some() || pods::phase(pod) == "Succeeded" {
        return true;
    }
    let to_replace = look.index(pod).and_then(|index| look.to_replace.get(&index));
    has_failed && to_replace.is_none_or(|other| other.metadata.uid != pod.metadata.uid)
}

/// Counts those uncounted pods whose finalizer is gone.
pub fn settle(status: &mut JobStatus, tracked: &HashSet<String>) {
    let uncounted = status.uncounted_terminated_pods.get_or_insert_default();
    let settle = |uids: &mut Option<Vec<String>>, number: &mut Option<i32>| {
        let (left, gone): (Vec<String>, Vec<String>) =
            uids.take().unwrap_or_default().into_iter().partition(|uid| tracked.contains(uid));
        *number = Some(number.unwrap_or(0) + count(gone.len())).filter(|number| *number > 0);
        *uids = Some(left).filter(|left| !left.is_empty());
    };
    settle(&mut uncounted.succeeded, &mut status.succeeded);
    settle(&mut uncounted.failed, &mut status.failed);
}

/// Says that the end is coming, once.
pub fn tell_target(status: &mut JobStatus, over: &Over, now: &Time) {
    let type_ = if over.succeeded { "SuccessCriteriaMet" } else { "FailureTarget" };
    let conditions = status.conditions.get_or_insert_default();
    if !conditions.iter().any(|condition| condition.type_ == type_ && condition.status == "True") {
        conditions.push(condition(type_, "True", &over.reason, &over.message, now));
    }
}

/// Says that the Job is at its end, if all pods are counted and none is going any more.
pub fn tell_end(status: &mut JobStatus, over: &Over, now: &Time) -> bool {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    if uncounted.succeeded.is_some() || uncounted.failed.is_some() || status.terminating.unwrap_or(0) > 0 {
        return false;
    }
    let type_ = if over.succeeded { "Complete" } else { "Failed" };
    set_condition(status, type_, "True", &over.reason, &over.message, now);
    if over.succeeded {
        status.completion_time = Some(now.clone());
    }
    true
}

/// Sets a condition and says whether anything is new. What was never true is not said to be false.
pub fn set_condition(
    status: &mut JobStatus,
    type_: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: &Time,
) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let new = condition(type_, value, reason, message, now);
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(known) if known.status == value && known.reason == new.reason && known.message == new.message => false,
        Some(known) => {
            *known = new;
            true
        }
        None if value == "False" => false,
        None => {
            conditions.push(new);
            true
        }
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: &Time) -> JobCondition {
    JobCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()).filter(|text| !text.is_empty()),
        message: Some(message.to_owned()).filter(|text| !text.is_empty()),
        last_probe_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    }
}
