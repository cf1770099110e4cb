use k8s_openapi::jiff::Timestamp;
use plan::{Step, Steps};
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn set(spec: Value) -> StatefulSet {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
    let mut whole = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template, "serviceName": "svc",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}});
    whole.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    let meta = json!({"name": "s", "namespace": "n", "uid": "u"});
    serde_json::from_value(json!({"metadata": meta, "spec": whole})).expect("a set")
}

/// `N`ew or `O`ld and ready, small ones not ready; `F`ailed; `T`erminating; `-` for none.
fn pods(of: &str, first: i32) -> Vec<Arc<Pod>> {
    let pod = |(number, state): (i32, char)| {
        let name = format!("s-{number}");
        let of = if "OoT".contains(state) { "old" } else { "new" };
        let labels = json!({"a": "b", "controller-revision-hash": of, "statefulset.kubernetes.io/pod-name": name});
        let phase = match state {
            'F' => "Failed",
            'n' | 'o' => "Pending",
            _ => "Running",
        };
        let mut pod =
            json!({"metadata": {"name": name, "namespace": "n", "labels": labels}, "status": {"phase": phase}});
        if "NOT".contains(state) {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        }
        if state == 'T' {
            pod["metadata"]["deletionTimestamp"] = json!(NOW);
        }
        Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
    };
    (first..).zip(of.chars()).filter(|(_, state)| *state != '-').map(pod).collect()
}

fn on_plan<T>(set: &StatefulSet, of: &str, look: impl FnOnce(&Plan<'_>) -> T) -> T {
    let spec = set.spec.as_ref().expect("a spec");
    let version = |name: &str| Version { name: name.to_owned(), template: spec.template.clone() };
    let (current, update, pods) = (version("old"), version("new"), pods(of, identity::start(spec)));
    let now: Timestamp = NOW.parse().expect("a time");
    look(&Plan { set, spec, current: &current, update: &update, pods: &pods, now })
}

/// What is made (`+`) and deleted (`-`), by number.
fn changes(steps: &Steps) -> String {
    let number = |pod: &Pod| identity::ordinal(pod).expect("a number");
    let change = |step: &Step| match step {
        Step::Create(pod) => Some(format!("+{}", number(pod))),
        Step::Delete(pod) => Some(format!("-{}", number(pod))),
        _ => None,
    };
    steps.parts.iter().flatten().filter_map(change).collect::<Vec<_>>().join(" ")
}

#[test]
fn pods_come_and_go_in_order() {
    let (ordered, parallel) = (json!({}), json!({"podManagementPolicy": "Parallel"}));
    for (spec, of, wanted) in [
        (&ordered, "", "+0"),
        (&ordered, "N", "+1"),
        (&ordered, "n", ""),
        (&ordered, "NN", "+2"),
        (&ordered, "N-N", "+1"),
        (&ordered, "NNN", ""),
        (&ordered, "NFN", "-1"),
        // Too many: the highest goes first, one at a time, while all others are well.
        (&ordered, "NNNNN", "-4"),
        (&ordered, "NNNNT", ""),
        (&ordered, "NnNNN", ""),
        (&ordered, "NNNNn", "-4"),
        (&ordered, "NNNnn", ""),
        (&parallel, "", "+0 +1 +2"),
        (&parallel, "n-F", "+1 -2"),
        (&parallel, "nNNNnT", "-4 -3"),
    ] {
        let set = set(spec.clone());
        assert_eq!(on_plan(&set, of, |plan| changes(&plan.steps())), wanted, "{spec} {of}");
    }
    let late = set(json!({"ordinals": {"start": 5}, "replicas": 2}));
    assert_eq!(on_plan(&late, "N", |plan| changes(&plan.steps())), "+6");
}

#[test]
fn a_set_that_asks_for_billions_gets_some_at_a_time() {
    let spec = json!({"podManagementPolicy": "Parallel", "replicas": i32::MAX, "ordinals": {"start": 7}});
    let made = on_plan(&set(spec), "N-N", |plan| changes(&plan.steps()));
    let made: Vec<&str> = made.split(' ').collect();
    assert_eq!((made.len(), made[0], made[1], made[499]), (500, "+8", "+10", "+508"));
}

#[test]
fn updates_come_from_above() {
    let rolling = |update: Value| json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": update}});
    for (spec, of, wanted) in [
        (rolling(json!({"partition": 0})), "OOO", "-2"),
        (rolling(json!({"partition": 0})), "OOn", ""),
        (rolling(json!({"partition": 0})), "OON", "-1"),
        (rolling(json!({"partition": 0})), "ONN", "-0"),
        (rolling(json!({"partition": 2})), "OOO", "-2"),
        (rolling(json!({"partition": 2})), "OON", ""),
        (rolling(json!({"partition": 3})), "OOO", ""),
        (rolling(json!({"partition": 0, "maxUnavailable": 2})), "OOO", "-2 -1"),
        (rolling(json!({"partition": 0, "maxUnavailable": "50%"})), "OOO", "-2"),
        (json!({"updateStrategy": {"type": "OnDelete"}}), "OOO", ""),
    ] {
        let set = set(spec.clone());
        assert_eq!(on_plan(&set, of, |plan| changes(&plan.steps())), wanted, "{spec} {of}");
    }
    // Below the partition a pod comes back as it was.
    let set = set(rolling(json!({"partition": 2})));
    let steps = on_plan(&set, "O-O", |plan| plan.steps());
    let made =
        steps.parts.iter().flatten().find_map(|step| if let Step::Create(pod) = step { Some(pod) } else { None });
    assert_eq!(made.and_then(|pod| identity::pod_revision(pod)), Some("old"));
}

#[test]
fn the_status_is_what_was_seen() {
    let set = set(json!({}));
    let status = on_plan(&set, "OnT", |plan| plan.status(0));
    assert_eq!((status.replicas, status.ready_replicas, status.available_replicas), (3, Some(2), Some(2)));
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(1), Some(1)));
    assert_eq!(status.current_revision.as_deref(), Some("old"));
    let done = on_plan(&set, "NNN", |plan| plan.status(0));
    assert_eq!((done.current_revision.as_deref(), done.current_replicas), (Some("new"), Some(3)));
    assert_eq!(on_plan(&set, "OOO", |plan| plan.status(1)).current_replicas, Some(2));
}

#[test]
fn a_pod_is_the_one_it_is() {
    let claim = json!({"metadata": {"name": "data", "labels": {"x": "y"}}, "spec": {}});
    let set = set(json!({"volumeClaimTemplates": [claim]}));
    let template = set.spec.as_ref().expect("a spec").template.clone();
    let mut pod = identity::new_pod(&set, &template, "rev", 2);
    assert!(identity::has_identity(&set, &pod) && identity::is_member(&set, &pod));
    let spec = pod.spec.clone().expect("a spec");
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("s-2"), Some("svc")));
    let volumes = spec.volumes.expect("volumes");
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().expect("a claim").claim_name, "data-s-2");
    let claims = identity::claims(&set, 2);
    assert!(identity::is_claim(&set, &claims[0].1));
    let labels = claims[0].1.metadata.labels.clone().expect("labels");
    assert_eq!((labels["x"].as_str(), labels["a"].as_str()), ("y", "b"));
    pod.metadata.labels.as_mut().expect("labels").remove("statefulset.kubernetes.io/pod-name");
    assert!(!identity::has_identity(&set, &pod));
    identity::give_identity(&set, &mut pod);
    assert!(identity::has_identity(&set, &pod));
    for (name, member) in [("s-0", true), ("s-x-0", false), ("s-", false), ("s--1", false), ("t-0", false)] {
        pod.metadata.name = Some(name.into());
        assert_eq!(identity::is_member(&set, &pod), member, "{name}");
    }
}
