//! How many replicas which ReplicaSet may have.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::api::apps::v1::{DeploymentSpec, ReplicaSet};

use crate::share::scaled;

use super::revisions::{MAX_REPLICAS, annotation};

pub fn replicas(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

pub fn size(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The pods of a set that are available and will stay so. One that was shrunk goes on counting those that are to end, until it
/// has seen them go; Kubernetes believes it, and ends more pods of a rollout than can be spared.
pub fn available(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0).min(size(set))
}

pub fn is_rolling(spec: &DeploymentSpec) -> bool {
    spec.strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate")
}

/// How many more and how many fewer pods than wanted there may be during a rollout.
fn slack(spec: &DeploymentSpec) -> (i32, i32) {
    let rolling = spec.strategy.as_ref().and_then(|strategy| strategy.rolling_update.as_ref());
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()), replicas(spec), true);
    let unavailable = scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref()), replicas(spec), false);
    // Without any slack nothing could ever move.
    (surge, if surge == 0 && unavailable == 0 { 1 } else { unavailable })
}

pub fn max_surge(spec: &DeploymentSpec) -> i32 {
    if is_rolling(spec) { slack(spec).0 } else { 0 }
}

pub fn max_unavailable(spec: &DeploymentSpec) -> i32 {
    if is_rolling(spec) && replicas(spec) > 0 { slack(spec).1.min(replicas(spec)) } else { 0 }
}

/// How many pods there may be during a rollout.
pub fn most(spec: &DeploymentSpec) -> i32 {
    replicas(spec).saturating_add(max_surge(spec))
}

/// The size that the set of the new template may have now.
pub fn new_size(spec: &DeploymentSpec, all: i32, new: i32) -> i32 {
    if !is_rolling(spec) {
        return replicas(spec);
    }
    let room = most(spec).saturating_sub(all);
    if room <= 0 { new } else { new + room.min(replicas(spec) - new) }
}

pub fn total(sets: &[Arc<ReplicaSet>]) -> i32 {
    sets.iter().fold(0, |sum, set| sum.saturating_add(size(set)))
}

pub fn active(sets: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    sets.iter().filter(|set| size(set) > 0).cloned().collect()
}

/// Oldest first.
pub fn sort_by_age(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by_key(|set| (set.metadata.creation_timestamp.clone(), set.metadata.name.clone()));
}

/// New sizes for all sets when the Deployment was scaled in the middle of a rollout: each keeps its share. `before` is how
/// many pods there were at most, where a set does not say it.
pub fn shares(spec: &DeploymentSpec, sets: &[Arc<ReplicaSet>], before: i32) -> Vec<(Arc<ReplicaSet>, i32)> {
    let allowed = if replicas(spec) > 0 { most(spec) } else { 0 };
    let mut sets = active(sets);
    let to_add = allowed - total(&sets);
    sort_by_age(&mut sets);
    if to_add > 0 {
        sets.reverse();
    }
    if to_add != 0 {
        sets.sort_by_key(|set| Reverse(size(set)));
    }
    let mut added = 0;
    let mut sizes: Vec<(Arc<ReplicaSet>, i32)> = Vec::new();
    for set in sets {
        let fraction = share(spec, &set, before);
        let left = to_add - added;
        let own = if to_add > 0 { fraction.min(left) } else { fraction.max(left) };
        let own = if to_add == 0 || left == 0 { 0 } else { own };
        added += own;
        sizes.push((set.clone(), size(&set) + own));
    }
    // What rounding has left goes to the largest.
    if let Some((_, first)) = sizes.first_mut() {
        *first = (*first + to_add - added).max(0);
    }
    sizes
}

/// By how much a set changes if it keeps its share.
fn share(spec: &DeploymentSpec, set: &ReplicaSet, before: i32) -> i32 {
    if replicas(spec) == 0 {
        return -size(set);
    }
    let said = annotation(set, MAX_REPLICAS).and_then(|text| text.parse::<i32>().ok()).filter(|number| *number > 0);
    let before = said.unwrap_or(before);
    if before == 0 {
        return 0;
    }
    let most = f64::from(most(spec));
    // Sizes are far below what a float counts exactly.
    let new = (f64::from(size(set)) * most / f64::from(before)).round() as i32;
    new - size(set)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn spec(replicas: i32, surge: &str, unavailable: &str) -> DeploymentSpec {
        let value = |text: &str| text.parse::<i32>().map_or(json!(text), |number| json!(number));
        serde_json::from_value(json!({
            "replicas": replicas, "selector": {}, "template": {},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": value(surge), "maxUnavailable": value(unavailable)}},
        }))
        .expect("a spec")
    }

    fn set(name: &str, replicas: i32, most: i32) -> Arc<ReplicaSet> {
        Arc::new(
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": {MAX_REPLICAS: most.to_string()}},
                "spec": {"replicas": replicas, "selector": {}},
            }))
            .expect("a set"),
        )
    }

    #[test]
    fn slack_is_rounded_in_favour_of_those_who_use_the_pods() {
        assert_eq!((max_surge(&spec(10, "25%", "25%")), max_unavailable(&spec(10, "25%", "25%"))), (3, 2));
        assert_eq!((max_surge(&spec(1, "25%", "25%")), max_unavailable(&spec(1, "25%", "25%"))), (1, 0));
        assert_eq!(max_unavailable(&spec(1, "0", "25%")), 1, "something must be able to move");
        assert_eq!(max_unavailable(&spec(2, "0", "5")), 2);
        assert_eq!(new_size(&spec(10, "3", "2"), 10, 0), 3);
        assert_eq!(new_size(&spec(10, "3", "2"), 13, 5), 5);
        assert_eq!(new_size(&spec(10, "30%", "2"), 0, 0), 10);
        assert_eq!(new_size(&spec(i32::MAX, "30%", "2"), 5, 5), i32::MAX, "whatever somebody asks for");
    }

    #[test]
    fn a_rollout_that_is_scaled_keeps_its_proportions() {
        let names = |sizes: Vec<(Arc<ReplicaSet>, i32)>| {
            sizes
                .into_iter()
                .map(|(set, size)| (set.metadata.name.clone().unwrap_or_default(), size))
                .collect::<Vec<_>>()
        };
        let sets = [set("a", 8, 13), set("b", 5, 13)];
        assert_eq!(names(shares(&spec(15, "3", "2"), &sets, 13)), [("a".into(), 11), ("b".into(), 7)]);
        assert_eq!(names(shares(&spec(5, "3", "2"), &sets, 13)), [("a".into(), 5), ("b".into(), 3)]);
        assert_eq!(names(shares(&spec(0, "3", "2"), &sets, 13)), [("a".into(), 0), ("b".into(), 0)]);
    }

    proptest! {
        #[test]
        fn never_more_than_allowed(
            wanted in 0..50i32, surge in 0..10i32, sizes in prop::collection::vec(1..30i32, 1..5),
        ) {
            let most: i32 = sizes.iter().sum();
            let sets: Vec<_> = sizes.iter().enumerate().map(|(i, size)| set(&i.to_string(), *size, most)).collect();
            let spec = spec(wanted, &surge.to_string(), "1");
            let after = shares(&spec, &sets, most);
            let total: i32 = after.iter().map(|(_, size)| size).sum();
            prop_assert!(after.iter().all(|(_, size)| *size >= 0));
            prop_assert_eq!(total, if wanted == 0 { 0 } else { wanted + surge });
            let new = new_size(&spec, most, sizes[0]);
            prop_assert!(new <= sizes[0].max(wanted) && most - sizes[0] + new <= most.max(wanted + surge));
        }
    }
}
