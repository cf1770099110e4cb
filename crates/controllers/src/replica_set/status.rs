//! The status of a set: a function of the pods that were seen.

use std::sync::Arc;

use k8s_openapi::{
    api::{
        apps::v1::{ReplicaSetCondition, ReplicaSetStatus},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

use super::kinds::{Replicating, Wanted};
use crate::pods;

const FAILURE: &str = "ReplicaFailure";

/// `problem` is why pods could not be made or deleted.
pub fn of<S: Replicating>(
    set: &S,
    wanted: &Wanted<'_>,
    active: &[Arc<Pod>],
    terminating: usize,
    problem: Option<&str>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let template = wanted.template.and_then(|template| template.metadata.as_ref()?.labels.as_ref());
    let fully_labeled = |pod: &&Arc<Pod>| {
        let labels = pod.metadata.labels.as_ref();
        template.is_none_or(|wanted| wanted.iter().all(|(name, value)| labels.and_then(|l| l.get(name)) == Some(value)))
    };
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    // What is zero is not said, as in Kubernetes.
    let some = |number: usize| Some(count(number)).filter(|count| *count > 0);
    let old = set.status().unwrap_or_default();
    ReplicaSetStatus {
        replicas: count(active.len()),
        fully_labeled_replicas: some(active.iter().filter(fully_labeled).count()),
        ready_replicas: some(active.iter().filter(|pod| pods::ready(pod).is_some()).count()),
        available_replicas: some(
            active.iter().filter(|pod| pods::is_available(pod, wanted.min_ready_seconds, now)).count(),
        ),
        terminating_replicas: Some(count(terminating)),
        observed_generation: set.meta().generation,
        conditions: conditions(old.conditions, count(active.len()) < wanted.replicas, problem, now),
    }
}

fn conditions(
    old: Option<Vec<ReplicaSetCondition>>,
    too_few: bool,
    problem: Option<&str>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = old.unwrap_or_default();
    let known = conditions.iter().any(|condition| condition.type_ == FAILURE);
    match problem {
        None => conditions.retain(|condition| condition.type_ != FAILURE),
        Some(problem) if !known => conditions.push(ReplicaSetCondition {
            type_: FAILURE.to_owned(),
            status: "True".to_owned(),
            reason: Some(if too_few { "FailedCreate" } else { "FailedDelete" }.to_owned()),
            message: Some(problem.to_owned()),
            last_transition_time: Some(Time(Timestamp::from_second(now.as_second()).unwrap_or(now))),
        }),
        Some(_) => {}
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}
