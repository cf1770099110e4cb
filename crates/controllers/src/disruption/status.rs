//! The status of a PodDisruptionBudget: a function of the pods that were seen.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::{
        core::v1::Pod,
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus},
    },
    apimachinery::pkg::{
        apis::meta::v1::{Condition, Time},
        util::intstr::IntOrString,
    },
    jiff::{SignedDuration, Timestamp},
};

use crate::{pods, share::scaled};

/// A pod whose eviction was granted is gone within this time, or counts again.
const GOES_WITHIN: SignedDuration = SignedDuration::from_mins(2);
const ALLOWED: &str = "DisruptionAllowed";

/// How many pods there should be, and how many of them healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub pods: i32,
    pub healthy: i32,
}

/// Whether a budget speaks of a share, or of how many may be missing: then it must be known how many there should be.
pub fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// `all` is how many pods there are, or should be where that is needed.
pub fn expected(spec: &PodDisruptionBudgetSpec, all: i32) -> Expected {
    let healthy = match (&spec.max_unavailable, &spec.min_available) {
        (Some(missing), _) => (all - scaled(Some(missing), all, true)).max(0),
        (None, Some(least)) => scaled(Some(least), all, true),
        (None, None) => return Expected { pods: 0, healthy: 0 },
    };
    Expected { pods: all, healthy }
}

/// Pods whose eviction was granted and that are still there.
pub struct Disrupted {
    pub still_going: BTreeMap<String, Time>,
    /// They should be gone.
    pub overdue: Vec<Arc<Pod>>,
    /// When the next one should be gone.
    pub next: Option<Timestamp>,
}

pub fn disrupted(budget: &PodDisruptionBudget, pods: &[Arc<Pod>], now: Timestamp) -> Disrupted {
    let granted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
    let mut found = Disrupted { still_going: BTreeMap::new(), overdue: Vec::new(), next: None };
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let Some(since) = granted.and_then(|granted| granted.get(&name)) else { continue };
        let due = since.0 + GOES_WITHIN;
        if due < now {
            found.overdue.push(pod.clone());
        } else {
            found.next = Some(found.next.map_or(due, |next| next.min(due)));
            found.still_going.insert(name, since.clone());
        }
    }
    found
}

pub fn of(
    budget: &PodDisruptionBudget,
    pods: &[Arc<Pod>],
    expected: Expected,
    disrupted: BTreeMap<String, Time>,
    now: &Time,
) -> PodDisruptionBudgetStatus {
    let healthy = |pod: &&Arc<Pod>| {
        let goes = disrupted.get(pod.metadata.name.as_deref().unwrap_or_default());
        pod.metadata.deletion_timestamp.is_none()
            && goes.is_none_or(|since| since.0 + GOES_WITHIN <= now.0)
            && pods::ready(pod).is_some()
    };
    let current = i32::try_from(pods.iter().filter(healthy).count()).unwrap_or(i32::MAX);
    let allowed = if expected.pods <= 0 { 0 } else { (current - expected.healthy).max(0) };
    let old = budget.status.clone().unwrap_or_default();
    let generation = budget.metadata.generation;
    let (status, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    PodDisruptionBudgetStatus {
        current_healthy: Some(current),
        desired_healthy: Some(expected.healthy),
        expected_pods: Some(expected.pods),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
        observed_generation: generation,
        conditions: Some(with_condition(old.conditions, status, reason, "", generation, now)),
    }
}

/// Nothing may go while it is not known what there should be.
pub fn unknown(budget: &PodDisruptionBudget, problem: &str, now: &Time) -> PodDisruptionBudgetStatus {
    let old = budget.status.clone().unwrap_or_default();
    let seen = old.observed_generation;
    let conditions = with_condition(old.conditions.clone(), "False", "SyncFailed", problem, seen, now);
    PodDisruptionBudgetStatus { disruptions_allowed: Some(0), conditions: Some(conditions), ..old }
}

fn with_condition(
    old: Option<Vec<Condition>>,
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let mut conditions = old.unwrap_or_default();
    let before = conditions.iter().position(|condition| condition.type_ == ALLOWED);
    let since = before.and_then(|at| conditions.get(at)).filter(|before| before.status == status);
    let condition = Condition {
        type_: ALLOWED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: since.map_or_else(|| now.clone(), |before| before.last_transition_time.clone()),
    };
    match before {
        Some(at) => drop(conditions.splice(at..=at, [condition])),
        None => conditions.push(condition),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": spec, "status": status}))
            .expect("a budget")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).expect("a time")
    }

    fn pods(names: &[&str]) -> Vec<Arc<Pod>> {
        let pod = |name: &&str| {
            let ready = if name.starts_with('r') { "True" } else { "False" };
            let pod = json!({
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": ready}]},
            });
            Arc::new(serde_json::from_value(pod).expect("a pod"))
        };
        names.iter().map(pod).collect()
    }

    #[test]
    fn shares_are_rounded_in_favour_of_those_who_use_the_pods() {
        for (spec, all, healthy) in [
            (json!({"minAvailable": 2}), 5, 2),
            (json!({"minAvailable": "50%"}), 5, 3),
            (json!({"maxUnavailable": 1}), 5, 4),
            (json!({"maxUnavailable": "30%"}), 5, 3),
            (json!({"maxUnavailable": 9}), 5, 0),
        ] {
            let spec: PodDisruptionBudgetSpec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(expected(&spec, all), Expected { pods: all, healthy });
        }
    }

    #[test]
    fn what_is_healthy_beyond_what_is_wanted_may_go() {
        let (budget, now) = (budget(json!({}), Value::Null), Time(at(0)));
        let status =
            of(&budget, &pods(&["r1", "r2", "r3", "x"]), Expected { pods: 4, healthy: 2 }, BTreeMap::new(), &now);
        let figures =
            (status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed);
        assert_eq!((figures, status.observed_generation), ((Some(3), Some(2), Some(4), Some(1)), Some(3)));
        let condition = &status.conditions.expect("conditions")[0];
        assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("True", "SufficientPods"));
        let none = of(&budget, &[], Expected { pods: 0, healthy: 0 }, BTreeMap::new(), &now);
        assert_eq!(none.conditions.expect("conditions")[0].reason, "InsufficientPods");
        let lost = unknown(&budget, "why", &now);
        let condition = &lost.conditions.expect("conditions")[0];
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("SyncFailed", "why"));
    }

    #[test]
    fn a_granted_eviction_counts_until_it_is_overdue() {
        let granted = json!({"r1": at(0).to_string(), "r2": at(100).to_string(), "gone": at(100).to_string()});
        let status = json!({
            "disruptedPods": granted,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
            "disruptionsAllowed": 0,
        });
        let budget = budget(json!({}), status);
        let pods = pods(&["r1", "r2", "r3"]);
        let found = disrupted(&budget, &pods, at(130));
        assert_eq!(found.still_going.keys().collect::<Vec<_>>(), ["r2"]);
        assert_eq!((found.overdue.len(), found.next), (1, Some(at(220))));
        let status = of(&budget, &pods, Expected { pods: 3, healthy: 1 }, found.still_going, &Time(at(130)));
        assert_eq!((status.current_healthy, status.disruptions_allowed), (Some(2), Some(1)));
    }
}
