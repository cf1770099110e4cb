//! Which pods go when there are too many: those that are missed least.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};

use crate::pods;

const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The first `count` in the order of Kubernetes. `related` are all pods that do the same, also of other sets.
pub fn choose(active: &[Arc<Pod>], related: &[Arc<Pod>], count: usize, now: Timestamp) -> Vec<Arc<Pod>> {
    let mut victims = active.to_vec();
    if count < victims.len() {
        let mut on_node: HashMap<&str, usize> = HashMap::new();
        for pod in related.iter().filter(|pod| pods::is_active(pod)) {
            *on_node.entry(pods::node(pod)).or_default() += 1;
        }
        let neighbours = |pod: &Pod| on_node.get(pods::node(pod)).copied().unwrap_or(0);
        victims.sort_by_cached_key(|pod| worth(pod, neighbours(pod), now));
    }
    victims.truncate(count);
    victims
}

/// What orders pods, those first that are missed least. Kubernetes asks for the uid as soon as two times of the same magnitude
/// differ, and not if they are equal. That is no order: three pods can each come before the next one, in a circle. Here the
/// uid is always asked last.
fn worth(pod: &Pod, neighbours: usize, now: Timestamp) -> impl Ord + use<> {
    let ready = pods::ready(pod);
    (
        (!pods::node(pod).is_empty(), phase(pod), ready.is_some(), cost(pod)),
        Reverse(neighbours),
        ready.flatten().map(|since| magnitude(since, now)),
        Reverse(restarts(pod)),
        created(pod).map(|since| magnitude(since, now)),
        pod.metadata.uid.clone(),
    )
}

fn phase(pod: &Pod) -> u8 {
    match pods::phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

fn cost(pod: &Pod) -> i32 {
    let text = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(COST));
    // As Kubernetes reads it: no plus sign, no leading zeros.
    let cost = text.and_then(|text| text.parse().ok().filter(|cost: &i32| cost.to_string() == *text));
    cost.unwrap_or(0)
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// How long ago it was, by orders of magnitude: the younger go first, but not always the youngest.
fn magnitude(since: Timestamp, now: Timestamp) -> i64 {
    let nanos = now.duration_since(since).as_nanos();
    if nanos > 0 { i64::from(nanos.ilog2()) } else { -1 }
}

/// The most restarts of a container, and of a sidecar.
fn restarts(pod: &Pod) -> (i32, i32) {
    let Some(status) = &pod.status else { return (0, 0) };
    let sidecar = |name: &str| {
        let containers = pod.spec.iter().filter_map(|spec| spec.init_containers.as_ref()).flatten();
        containers.into_iter().any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
    };
    let most = status.container_statuses.iter().flatten().map(|status| status.restart_count).max();
    let sidecars = status.init_container_statuses.iter().flatten().filter(|status| sidecar(&status.name));
    (most.unwrap_or(0), sidecars.map(|status| status.restart_count).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;
    use proptest::{collection::vec, prelude::*, sample::Index};
    use serde_json::json;

    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T12:00:00Z".parse().expect("a time")
    }

    fn pod(name: &str, change: impl FnOnce(&mut serde_json::Value)) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T10:00:00Z", "annotations": {}},
            "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}
            ]},
        });
        change(&mut pod);
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn those_go_first_that_are_missed_least() {
        let expected = [
            pod("unassigned", |pod| pod["spec"]["nodeName"] = json!("")),
            pod("pending", |pod| pod["status"]["phase"] = json!("Pending")),
            pod("unknown", |pod| pod["status"]["phase"] = json!("Unknown")),
            pod("unready", |pod| pod["status"]["conditions"][0]["status"] = json!("False")),
            pod("cheap", |pod| pod["metadata"]["annotations"][COST] = json!("-5")),
            pod("crowded", |pod| pod["spec"]["nodeName"] = json!("busy")),
            pod("fresh", |pod| {
                pod["status"]["conditions"][0]["lastTransitionTime"] = json!("2026-01-01T11:59:00Z");
            }),
            pod("restarted", |pod| {
                pod["status"]["containerStatuses"] =
                    json!([{"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 3}]);
            }),
            pod("young", |pod| pod["metadata"]["creationTimestamp"] = json!("2026-01-01T11:59:00Z")),
            pod("plain", |_| {}),
            pod("dear", |pod| pod["metadata"]["annotations"][COST] = json!("10")),
        ];
        let related = [
            pod("x", |pod| pod["spec"]["nodeName"] = json!("busy")),
            pod("y", |pod| pod["spec"]["nodeName"] = json!("busy")),
        ];
        let mut active = expected.to_vec();
        active.reverse();
        let names = |pods: &[Arc<Pod>]| pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect::<Vec<_>>();
        let all = choose(&active, &related, active.len() - 1, now());
        assert_eq!(names(&all), names(&expected[..expected.len() - 1]));
        assert_eq!(choose(&active, &related, active.len(), now()).len(), active.len());
    }
    proptest! {
        /// The order is one, whatever the pods are like: a part that is chosen is the beginning of every larger part, and the
        /// order in which pods are given does not matter. A sort panics if it meets a contradiction among so many pods.
        #[test]
        fn it_is_an_order(
            facts in vec((0..4_i64, 0..3_i32, prop::option::of(0..3_i64)), 30..60),
            shuffle in vec(any::<Index>(), 60),
            count in any::<Index>(),
        ) {
            let second = |second: i64| (now() - SignedDuration::from_secs(1000 + second)).to_string();
            let pods: Vec<_> = facts.iter().enumerate().map(|(number, (made, restarts, ready))| {
                pod(&format!("{:02}", number * 37 % 64), |pod| {
                    pod["metadata"]["creationTimestamp"] = json!(second(*made));
                    pod["status"]["conditions"][0]["lastTransitionTime"] = json!(ready.map(second));
                    let status = json!({"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": restarts});
                    pod["status"]["containerStatuses"] = json!([status]);
                })
            }).collect();
            let mut shuffled = pods.clone();
            for (at, other) in shuffle.iter().enumerate().take(pods.len()) {
                shuffled.swap(at, other.index(pods.len()));
            }
            let all = choose(&pods, &[], pods.len() - 1, now());
            let count = count.index(pods.len());
            prop_assert_eq!(choose(&shuffled, &[], count, now()), &all[..count]);
        }
    }
}
