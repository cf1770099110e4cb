//! Which pods go when there are too many: those that are missed least.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

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
        victims.sort_by(|a, b| compare(a, b, neighbours(a), neighbours(b), now));
    }
    victims.truncate(count);
    victims
}

fn compare(a: &Pod, b: &Pod, near_a: usize, near_b: usize, now: Timestamp) -> Ordering {
    let (ready_a, ready_b) = (pods::ready(a), pods::ready(b));
    (!pods::node(a).is_empty())
        .cmp(&!pods::node(b).is_empty())
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| ready_a.is_some().cmp(&ready_b.is_some()))
        .then_with(|| cost(a).cmp(&cost(b)))
        .then_with(|| near_b.cmp(&near_a))
        .then_with(|| match (ready_a, ready_b) {
            (Some(a_since), Some(b_since)) => by_age(a, b, a_since, b_since, now),
            _ => Ordering::Equal,
        })
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| by_age(a, b, created(a), created(b), now))
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

/// The younger first, but only by orders of magnitude, so that not always the youngest goes.
fn by_age(a: &Pod, b: &Pod, a_since: Option<Timestamp>, b_since: Option<Timestamp>, now: Timestamp) -> Ordering {
    match (a_since, b_since) {
        (a_since, b_since) if a_since == b_since => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(a_since), Some(b_since)) => {
            magnitude(a_since, now).cmp(&magnitude(b_since, now)).then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
        }
    }
}

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
}
