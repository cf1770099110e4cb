use std::sync::Arc;

use object_model::selector::LabelSelector;
use serde_json::{Value, json};

use super::*;
use crate::fixtures::{cluster, in_zone, judged, node, passing, pod, scored};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn plugin() -> TopologySpread {
    TopologySpread { together: Box::new(|_| None) }
}

fn zones() -> [Arc<Node>; 3] {
    [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
}

fn web(name: &str) -> Arc<PodInfo> {
    pod(name, json!({"metadata": {"labels": {"app": "web"}}}))
}

fn constraint(topology: &str, required: bool) -> Value {
    json!({
        "maxSkew": 1, "topologyKey": topology, "labelSelector": {"matchLabels": {"app": "web"}},
        "whenUnsatisfiable": if required { "DoNotSchedule" } else { "ScheduleAnyway" },
    })
}

fn spread(constraints: Value) -> Arc<PodInfo> {
    pod("new", json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": constraints}}))
}

#[test]
fn the_fullest_part_takes_no_more() {
    let snapshot = cluster(zones(), [(web("1"), "a1"), (web("2"), "a2")]);
    assert_eq!(passing(&plugin(), &spread(json!([constraint(ZONE, true)])), &snapshot), ["b1"]);
    assert_eq!(passing(&plugin(), &spread(json!([constraint(HOST, true)])), &snapshot), ["b1"]);
    let both = json!([constraint(ZONE, true), constraint(HOST, true)]);
    assert_eq!(passing(&plugin(), &spread(both), &snapshot), ["b1"]);
    let snapshot = cluster(zones(), [(web("1"), "a1"), (web("2"), "b1")]);
    assert_eq!(passing(&plugin(), &spread(json!([constraint(ZONE, true)])), &snapshot).len(), 3);
}

#[test]
fn a_node_without_the_label_takes_none() {
    let snapshot = cluster(zones().into_iter().chain([node("bare", json!({}))]), []);
    let why = judged(&plugin(), &spread(json!([constraint(ZONE, true)])), &snapshot);
    assert_eq!(why["bare"], "node(s) didn't match pod topology spread constraints (missing required label)");
    assert_eq!(why["a1"], "");
}

#[test]
fn pods_that_go_and_pods_of_others_do_not_count() {
    let going = pod(
        "going",
        json!({"metadata": {
            "labels": {"app": "web"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
        }}),
    );
    let foreign = pod("foreign", json!({"metadata": {"namespace": "other", "labels": {"app": "web"}}}));
    let snapshot = cluster(zones(), [(going, "a1"), (foreign, "a2")]);
    assert_eq!(passing(&plugin(), &spread(json!([constraint(ZONE, true)])), &snapshot).len(), 3);
}

#[test]
fn too_few_parts_count_as_one_that_is_empty() {
    let mut constraint = constraint(ZONE, true);
    constraint["minDomains"] = json!(3);
    let snapshot = cluster(zones(), [(web("1"), "a1"), (web("2"), "b1")]);
    assert!(passing(&plugin(), &spread(json!([constraint])), &snapshot).is_empty());
}

#[test]
fn nodes_that_the_pod_cannot_go_to_do_not_count() {
    let kept = node(
        "c1",
        json!({
            "metadata": {"labels": {ZONE: "c", "kind": "special"}},
            "spec": {"taints": [{"key": "for", "effect": "NoSchedule"}]},
        }),
    );
    let snapshot = cluster(zones().into_iter().chain([kept]), [(web("1"), "a1"), (web("2"), "b1")]);
    // Zone c is empty, so a and b are full.
    assert_eq!(passing(&plugin(), &spread(json!([constraint(ZONE, true)])), &snapshot), ["c1"]);
    let mut honouring = constraint(ZONE, true);
    honouring["nodeTaintsPolicy"] = json!("Honor");
    assert_eq!(passing(&plugin(), &spread(json!([honouring])), &snapshot).len(), 4);
    let selecting = pod(
        "new",
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {
            "topologySpreadConstraints": [constraint(ZONE, true)],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kind", "operator": "DoesNotExist"}]},
            ]}}},
        }}),
    );
    assert!(passing(&plugin(), &selecting, &snapshot).contains(&"a1".to_owned()));
}

#[test]
fn match_label_keys_narrow_whom_a_pod_is_spread_with() {
    let mut constraint = constraint(ZONE, true);
    constraint["matchLabelKeys"] = json!(["revision"]);
    let of = |name: &str, revision: &str| {
        pod(
            name,
            json!({
                "metadata": {"labels": {"app": "web", "revision": revision}},
                "spec": {"topologySpreadConstraints": [constraint]},
            }),
        )
    };
    let snapshot = cluster(zones(), [(of("1", "old"), "a1"), (of("2", "old"), "a2")]);
    assert_eq!(passing(&plugin(), &of("new", "new"), &snapshot).len(), 3);
    assert_eq!(passing(&plugin(), &of("late", "old"), &snapshot), ["b1"]);
}

#[test]
fn supposing_changes_the_count() {
    let snapshot = cluster(zones(), [(web("1"), "a1"), (web("2"), "a2")]);
    let (plugin, new) = (plugin(), spread(json!([constraint(ZONE, true)])));
    let PreFiltered::Filter(filter) = plugin.pre_filter(&new, &snapshot) else { panic!("there is something to say") };
    let slot = snapshot.slot("a1").expect("a node");
    let mut supposed = filter.copy();
    assert!(supposed.filter(slot, snapshot.node(slot)).is_err());
    supposed.suppose(&web("1"), slot, false);
    supposed.suppose(&web("2"), snapshot.slot("a2").expect("a node"), false);
    assert!(supposed.filter(slot, snapshot.node(slot)).is_ok());
    assert!(filter.filter(slot, snapshot.node(slot)).is_err());
}

#[test]
fn emptier_parts_are_liked_more() {
    let snapshot = cluster(zones(), [(web("1"), "a1"), (web("2"), "a1"), (web("3"), "b1")]);
    let scores = scored(&plugin(), &spread(json!([constraint(ZONE, false)])), &snapshot).expect("scores");
    assert!(scores["b1"] > scores["a1"], "{scores:?}");
    assert_eq!(scores["a1"], scores["a2"]);
    let scores = scored(&plugin(), &spread(json!([constraint(HOST, false)])), &snapshot).expect("scores");
    assert!(scores["a2"] > scores["b1"] && scores["b1"] > scores["a1"], "{scores:?}");
    assert_eq!(scored(&plugin(), &web("plain"), &snapshot), None);
}

#[test]
fn by_default_pods_of_an_owner_are_spread_over_nodes_even_without_zones() {
    let plugin = TopologySpread { together: Box::new(|_| Some(LabelSelector::from_labels([("app", "web")]))) };
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let snapshot = cluster(nodes, [(web("1"), "one"), (web("2"), "one"), (web("3"), "one")]);
    let scores = scored(&plugin, &web("new"), &snapshot).expect("scores");
    assert!(scores["two"] > scores["one"], "{scores:?}");
}

#[test]
fn only_events_that_could_help_wake() {
    let new = spread(json!([constraint(ZONE, true)]));
    let plugin = plugin();
    assert!(plugin.helps(&Event::PodRemoved(&web("1")), &new));
    assert!(!plugin.helps(&Event::PodRemoved(&pod("other", json!({}))), &new));
    assert!(plugin.helps(&Event::NodeAdded(&in_zone("c1", "c")), &new));
    assert!(!plugin.helps(&Event::NodeAdded(&node("bare", json!({}))), &new));
    assert!(plugin.helps(&Event::NodeRemoved(&in_zone("c1", "c")), &new));
}
