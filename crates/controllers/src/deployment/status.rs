//! The status of a Deployment: a function of its ReplicaSets.

use std::sync::Arc;

use k8s_openapi::{
    api::apps::v1::{Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, ReplicaSet},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::arithmetic::{available, max_unavailable, replicas, total};

pub const PROGRESSING: &str = "Progressing";
pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
pub const PAUSED: &str = "DeploymentPaused";
const AVAILABLE: &str = "Available";
const FAILURE: &str = "ReplicaFailure";
const DONE: &str = "NewReplicaSetAvailable";

/// The time that a rollout may take without progress, if there is a limit.
pub fn deadline(spec: &DeploymentSpec) -> Option<i64> {
    spec.progress_deadline_seconds.filter(|seconds| *seconds != i32::MAX).map(i64::from)
}

pub fn condition(status: &DeploymentStatus, type_: &str) -> Option<DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_).cloned()
}

/// Sets a condition, unless it says the same already: then it stays as it is, message and times included.
pub fn set_condition(
    status: &mut DeploymentStatus,
    type_: &str,
    value: &str,
    reason: &str,
    message: impl Into<String>,
    now: &Time,
) {
    let known = condition(status, type_);
    if known.as_ref().is_some_and(|known| known.status == value && known.reason.as_deref() == Some(reason)) {
        return;
    }
    let since = known.filter(|known| known.status == value).and_then(|known| known.last_transition_time);
    replace(
        status,
        DeploymentCondition {
            type_: type_.to_owned(),
            status: value.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.into()),
            last_update_time: Some(now.clone()),
            last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
        },
    );
}

fn replace(status: &mut DeploymentStatus, condition: DeploymentCondition) {
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != type_);
    if conditions.is_empty() {
        status.conditions = None;
    }
}

/// Counts, and whether enough pods are available.
pub fn of(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    all: &[Arc<ReplicaSet>],
    new: Option<&ReplicaSet>,
    now: &Time,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let sum = |count: fn(&ReplicaSet) -> i32| all.iter().map(|set| count(set)).sum::<i32>();
    // What is zero is not said, as in Kubernetes.
    let some = |count: i32| Some(count).filter(|count| *count > 0);
    let are_available = sum(available);
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: some(sum(pods)),
        updated_replicas: some(new.map_or(0, pods)),
        ready_replicas: some(sum(|set| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0))),
        available_replicas: some(are_available),
        unavailable_replicas: some(total(all) - are_available),
        terminating_replicas: terminating(all),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    if are_available >= replicas(spec) - max_unavailable(spec) {
        let message = "Deployment has minimum availability.";
        set_condition(&mut status, AVAILABLE, "True", "MinimumReplicasAvailable", message, now);
    } else {
        let message = "Deployment does not have minimum availability.";
        set_condition(&mut status, AVAILABLE, "False", "MinimumReplicasUnavailable", message, now);
    }
    status
}

/// How many pods a set has.
pub fn pods(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map_or(0, |status| status.replicas)
}

/// Whether a set has told of its pods since its size was last changed.
pub fn is_current(set: &ReplicaSet) -> bool {
    set.status.as_ref().and_then(|status| status.observed_generation) >= set.metadata.generation
}

/// Unknown while a set that has been looked at does not say it.
fn terminating(all: &[Arc<ReplicaSet>]) -> Option<i32> {
    all.iter().try_fold(0, |sum, set| {
        let status = set.status.as_ref();
        match status.and_then(|status| status.terminating_replicas) {
            Some(count) => Some(sum + count),
            None if status.and_then(|status| status.observed_generation).unwrap_or(0) == 0 => Some(sum),
            None => None,
        }
    })
}

pub fn is_complete(deployment: &Deployment, spec: &DeploymentSpec, status: &DeploymentStatus) -> bool {
    let wanted = replicas(spec);
    [status.updated_replicas, status.replicas, status.available_replicas]
        .iter()
        .all(|count| count.unwrap_or(0) == wanted)
        && status.observed_generation >= deployment.metadata.generation
}

/// The same, and how the rollout goes.
pub fn of_rollout(
    deployment: &Deployment,
    spec: &DeploymentSpec,
    all: &[Arc<ReplicaSet>],
    new: Option<&ReplicaSet>,
    now: &Time,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    let mut status = of(deployment, spec, all, new, now);
    if deadline(spec).is_none() {
        remove(&mut status, PROGRESSING);
    }
    let known = condition(&old, PROGRESSING);
    let was_done = status.replicas == status.updated_replicas
        && known.as_ref().is_some_and(|known| known.reason.as_deref() == Some(DONE));
    if let Some(deadline) = deadline(spec)
        && !was_done
    {
        let name = |object: Option<&str>| object.unwrap_or_default().to_owned();
        let what = new.map_or_else(
            || format!("Deployment {:?}", name(deployment.metadata.name.as_deref())),
            |new| format!("ReplicaSet {:?}", name(new.metadata.name.as_deref())),
        );
        if is_complete(deployment, spec, &status) {
            let message = format!("{what} has successfully progressed.");
            set_condition(&mut status, PROGRESSING, "True", DONE, message, now);
        } else if progresses(&old, &status) {
            let since = known.filter(|known| known.status == "True").and_then(|known| known.last_transition_time);
            replace(
                &mut status,
                DeploymentCondition {
                    type_: PROGRESSING.to_owned(),
                    status: "True".to_owned(),
                    reason: Some("ReplicaSetUpdated".to_owned()),
                    message: Some(format!("{what} is progressing.")),
                    last_update_time: Some(now.clone()),
                    last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
                },
            );
        } else if has_timed_out(&status, deadline, now) {
            let message = format!("{what} has timed out progressing.");
            set_condition(&mut status, PROGRESSING, "False", TIMED_OUT, message, now);
        }
    }
    match failure(all, new) {
        Some(failure) => set_failure(&mut status, failure),
        None => remove(&mut status, FAILURE),
    }
    if status.conditions.as_ref().is_some_and(Vec::is_empty) {
        status.conditions = None;
    }
    status
}

fn set_failure(status: &mut DeploymentStatus, failure: DeploymentCondition) {
    let known = condition(status, FAILURE);
    if known.is_some_and(|known| known.status == failure.status && known.reason == failure.reason) {
        return;
    }
    replace(status, failure);
}

fn progresses(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or(0);
    let outdated = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || outdated(new) < outdated(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

fn has_timed_out(status: &DeploymentStatus, deadline: i64, now: &Time) -> bool {
    let Some(condition) = condition(status, PROGRESSING) else { return false };
    match condition.reason.as_deref() {
        Some(DONE) => false,
        Some(TIMED_OUT) => true,
        _ => condition.last_update_time.is_none_or(|last| last.0.as_second() + deadline < now.0.as_second()),
    }
}

/// What keeps a set from having its pods, the new one's first.
fn failure(all: &[Arc<ReplicaSet>], new: Option<&ReplicaSet>) -> Option<DeploymentCondition> {
    let sets = new.into_iter().chain(all.iter().map(|set| &**set));
    let mut conditions = sets.filter_map(|set| set.status.as_ref()?.conditions.as_ref()).flatten();
    let failure = conditions.find(|condition| condition.type_ == FAILURE)?.clone();
    Some(DeploymentCondition {
        type_: failure.type_,
        status: failure.status,
        reason: failure.reason,
        message: failure.message,
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time,
    })
}
