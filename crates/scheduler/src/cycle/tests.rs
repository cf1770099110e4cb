use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{asking, cluster, framework, node, pod, search, shaped},
    pod::Shapes,
};

fn find(snapshot: &Snapshot, pod: &PodInfo) -> Result<String, String> {
    let (framework, nominations) = (framework(), Nominations::default());
    let found = Cycles::default().find(search(&framework, snapshot, &nominations, pod));
    found.map(|slot| snapshot.node(slot).name().to_owned()).map_err(|diagnosis| diagnosis.to_string())
}

#[test]
fn the_emptiest_node_is_best() {
    let busy = pod("busy", asking(json!({"cpu": "1", "memory": "1Gi"})));
    let snapshot = cluster([node("one", json!({})), node("two", json!({}))], [(busy, "one")]);
    assert_eq!(find(&snapshot, &pod("web", asking(json!({"cpu": "500m", "memory": "1Gi"})))), Ok("two".into()));
}

#[test]
fn the_words_count_reasons_in_kubernetes_order() {
    let tainted = json!({"spec": {"taints": [{"key": "for", "effect": "NoSchedule"}]}});
    let closed = json!({"spec": {"unschedulable": true}});
    let nodes = [
        node("a", json!({})),
        node("b", json!({})),
        node("c", tainted),
        node("d", closed),
        node("e", json!({"status": {"allocatable": {"pods": "0"}}})),
    ];
    let snapshot = cluster(nodes, []);
    assert_eq!(
        find(&snapshot, &pod("web", asking(json!({"cpu": "3", "memory": "8Gi"})))),
        Err("0/5 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s), 1 node(s) were \
             unschedulable, 3 Insufficient cpu, 3 Insufficient memory."
            .into())
    );
    assert_eq!(find(&cluster([], []), &pod("web", json!({}))), Err("no nodes available to schedule pods".into()));
}

#[test]
fn a_pod_that_names_its_node_by_affinity_is_tried_there_only() {
    let naming = |names: Value| {
        let terms = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}]);
        json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}}})
    };
    let snapshot = cluster([node("one", json!({})), node("two", json!({}))], []);
    assert_eq!(find(&snapshot, &pod("web", naming(json!(["two"])))), Ok("two".into()));
    assert_eq!(
        find(&snapshot, &pod("web", naming(json!(["gone"])))),
        Err("0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity].".into())
    );
}

#[test]
fn room_that_was_made_for_another_is_left_free() {
    let snapshot = cluster([node("one", json!({}))], []);
    let (framework, mut nominations) = (framework(), Nominations::default());
    let mut awaited = asking(json!({"cpu": "2"}));
    awaited["spec"]["priority"] = json!(10);
    let awaited = pod("awaited", awaited);
    nominations.set(&awaited, Some("one"));
    let lesser = pod("lesser", asking(json!({"cpu": "1"})));
    let mut cycles = Cycles::default();
    assert!(cycles.find(search(&framework, &snapshot, &nominations, &lesser)).is_err());
    assert!(cycles.find(search(&framework, &snapshot, &nominations, &awaited)).is_ok());
    let mut greater = asking(json!({"cpu": "1"}));
    greater["spec"]["priority"] = json!(20);
    assert!(cycles.find(search(&framework, &snapshot, &nominations, &pod("greater", greater))).is_ok());
}

/// Verdicts that are kept must never differ from new ones, whatever happens to nodes in between.
#[test]
fn what_is_kept_is_what_would_be_found_anew() {
    let mut shapes = Shapes::default();
    let nodes = (0..20).map(|i| node(&format!("n{i:02}"), json!({})));
    let mut snapshot = cluster(nodes, []);
    let (framework, nominations, mut keeping) = (framework(), Nominations::default(), Cycles::default());
    let mut placed: BTreeMap<String, usize> = BTreeMap::new();
    for i in 0..130 {
        let cpu = if i % 3 == 0 { "500m" } else { "250m" };
        let pod = shaped(&mut shapes, &format!("p{i}"), asking(json!({"cpu": cpu})));
        if i % 10 == 7 {
            let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
            let changes = if i % 20 == 7 { taint } else { json!({}) };
            snapshot.set_node(node(&format!("n{:02}", i % 20), changes));
        }
        if i % 9 == 8 {
            snapshot.remove_pod(&format!("p{}", i - 5));
        }
        snapshot.refresh();
        let search = search(&framework, &snapshot, &nominations, &pod);
        let (kept, anew) = (keeping.find(search), Cycles::default().find(search));
        match (kept, anew) {
            (Ok(slot), Ok(_)) => {
                let node = snapshot.node(slot);
                assert!(search.framework.node_filters.iter().all(|f| f.filter(&pod.shape, node).is_ok()), "p{i}");
                *placed.entry(node.name().to_owned()).or_default() += 1;
                let name = node.name().to_owned();
                snapshot.add_pod(pod, &name);
            }
            (Err(kept), Err(anew)) => assert_eq!(kept.to_string(), anew.to_string(), "p{i}"),
            (kept, anew) => panic!("p{i}: {:?} {:?}", kept.map_err(|e| e.to_string()), anew.map_err(|e| e.to_string())),
        }
    }
    assert!(placed.len() >= 18, "{placed:?}");
}

#[test]
fn a_large_cluster_is_not_looked_at_in_whole() {
    assert_eq!(enough_of(50), 50);
    assert_eq!(enough_of(100), 100);
    assert_eq!(enough_of(1000), 420);
    assert_eq!(enough_of(5000), 500);
    assert_eq!(enough_of(20_000), 1000);
}
