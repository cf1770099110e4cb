use serde_json::{Value, json};

use super::*;
use crate::{
    cycle::Cycles,
    fixtures::{asking, cluster, framework, node, pod, search},
    nominations::Nominations,
    snapshot::Snapshot,
};

fn important(name: &str, priority: i32, cpu: &str) -> Arc<PodInfo> {
    labelled(name, priority, cpu, "none", "2026-01-01T00:00:00Z")
}

fn labelled(name: &str, priority: i32, cpu: &str, app: &str, started: &str) -> Arc<PodInfo> {
    let mut pod_ = asking(json!({"cpu": cpu}));
    pod_["spec"]["priority"] = json!(priority);
    pod_["metadata"] = json!({"labels": {"app": app}});
    pod_["status"] = json!({"startTime": started});
    pod(name, pod_)
}

fn budget(app: &str, allowed: i32) -> Arc<PodDisruptionBudget> {
    let budget: Value = json!({
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {
            "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
        },
    });
    Arc::new(serde_json::from_value(budget).expect("a budget"))
}

/// Where room is made, and by whom; or why not.
fn room(
    snapshot: &Snapshot,
    pod: &PodInfo,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<(String, Vec<String>), String> {
    room_beside(&Nominations::default(), snapshot, pod, budgets)
}

fn room_beside(
    nominations: &Nominations,
    snapshot: &Snapshot,
    pod: &PodInfo,
    budgets: &[Arc<PodDisruptionBudget>],
) -> Result<(String, Vec<String>), String> {
    let framework = framework();
    let search = search(&framework, snapshot, nominations, pod);
    let diagnosis = Cycles::default().find(search).expect_err("it fits nowhere");
    let room = make_room(search, &diagnosis, budgets).map_err(|none| none.words)?;
    Ok((room.node, room.victims.iter().map(|victim| victim.uid.clone()).collect()))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn as_few_and_unimportant_as_possible_go() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let pods =
        [(important("a", 1, "500m"), "one"), (important("b", 2, "1500m"), "one"), (important("c", 3, "2"), "two")];
    let snapshot = cluster(nodes, pods);
    assert_eq!(room(&snapshot, &important("new", 10, "500m"), &[]), Ok(("one".into(), names(&["a"]))));
    assert_eq!(room(&snapshot, &important("new", 10, "2"), &[]), Ok(("one".into(), names(&["b", "a"]))));
}

#[test]
fn nobody_goes_for_a_pod_that_is_not_more_important() {
    let snapshot = cluster([node("one", json!({}))], [(important("a", 10, "2"), "one")]);
    let words = "0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(room(&snapshot, &important("new", 10, "1"), &[]), Err(words.into()));
    let never = pod(
        "never",
        json!({"spec": {
            "priority": 20, "preemptionPolicy": "Never",
            "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": "1"}}}],
        }}),
    );
    assert_eq!(room(&snapshot, &never, &[]), Err("not eligible due to preemptionPolicy=Never.".into()));
}

#[test]
fn where_nobodys_going_helps_nobody_goes() {
    let tainted = json!({"spec": {"taints": [{"key": "for", "effect": "NoSchedule"}]}});
    let nodes = [node("one", json!({})), node("kept", tainted)];
    let snapshot = cluster(nodes, [(important("a", 1, "1"), "one"), (important("b", 1, "1"), "kept")]);
    let words = "0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(room(&snapshot, &important("new", 10, "3"), &[]), Err(words.into()));
}

#[test]
fn budgets_are_kept_where_possible() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let kept = labelled("kept", 1, "2", "kept", "2026-01-01T00:00:00Z");
    let free = labelled("free", 5, "2", "free", "2026-01-01T00:00:00Z");
    let snapshot = cluster(nodes, [(kept, "one"), (free, "two")]);
    let new = important("new", 10, "1");
    assert_eq!(room(&snapshot, &new, &[]), Ok(("one".into(), names(&["kept"]))));
    assert_eq!(room(&snapshot, &new, &[budget("kept", 1)]), Ok(("one".into(), names(&["kept"]))));
    assert_eq!(room(&snapshot, &new, &[budget("kept", 0)]), Ok(("two".into(), names(&["free"]))));
    // If it must be, a budget is broken.
    assert_eq!(room(&snapshot, &new, &[budget("kept", 0), budget("free", 0)]), Ok(("one".into(), names(&["kept"]))));
}

#[test]
fn of_equals_those_go_that_began_last() {
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let old = labelled("old", 1, "2", "x", "2026-01-01T00:00:00Z");
    let young = labelled("young", 1, "2", "x", "2026-02-01T00:00:00Z");
    let snapshot = cluster(nodes, [(old, "one"), (young, "two")]);
    assert_eq!(room(&snapshot, &important("new", 10, "1"), &[]), Ok(("two".into(), names(&["young"]))));
}

#[test]
fn who_keeps_another_away_can_be_made_to_go() {
    let mut hostile = asking(json!({"cpu": "100m"}));
    hostile["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": "none"}}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    let snapshot = cluster([node("one", json!({}))], [(pod("hostile", hostile), "one")]);
    assert_eq!(room(&snapshot, &important("new", 10, "1"), &[]), Ok(("one".into(), names(&["hostile"]))));
}

#[test]
fn who_waits_for_one_that_goes_makes_no_other_go() {
    let goes = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": asking(json!({"cpu": "2"}))["spec"],
        "status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": REASON}]},
    });
    let nodes = [node("one", json!({})), node("two", json!({}))];
    let snapshot = cluster(nodes, [(pod("goes", goes), "one"), (important("stays", -1, "2"), "two")]);
    let mut new = asking(json!({"cpu": "1"}));
    new["spec"]["priority"] = json!(10);
    new["status"] = json!({"nominatedNodeName": "one"});
    let new = pod("new", new);

    let mut nominations = Nominations::default();
    nominations.set(&new, Some("one"));
    let words = "not eligible due to a terminating pod on the nominated node.";
    assert_eq!(room_beside(&nominations, &snapshot, &new, &[]), Err(words.to_owned()));
    // That room is another's now, although the status does not say so yet.
    nominations.set(&new, None);
    assert_eq!(room_beside(&nominations, &snapshot, &new, &[]), Ok(("two".into(), names(&["stays"]))));
}
