use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::{
    fixtures::{cluster, node, pod},
    selection::PodSelector,
};
use object_model::selector::LabelSelector;

fn question(app: &str) -> Question {
    let pods = PodSelector::in_namespace("default", Some(LabelSelector::from_labels([("app", app)])));
    Question { pods: vec![pods], terminating: true }
}

/// The same in all namespaces.
fn everywhere(app: &str) -> Question {
    let mut question = question(app);
    question.pods.iter_mut().for_each(|pods| pods.namespace_selector = Some(LabelSelector::default()));
    question
}

/// Everything that plugins could ask, by names instead of numbers.
fn seen(snapshot: &Snapshot) -> Value {
    let mut nodes = BTreeMap::new();
    for slot in snapshot.order() {
        let node = snapshot.node(*slot);
        let pods: BTreeSet<&str> = node.pods().iter().map(|pod| pod.uid.as_str()).collect();
        let questions = [question("web"), question("db"), everywhere("web")];
        let counts = questions.map(|asked| snapshot.count(&asked).get(*slot).copied().unwrap_or(0));
        let in_zone = snapshot
            .domains(ZONE)
            .of(*slot)
            .map(|zone| snapshot.domains(ZONE).sum(&snapshot.count(&question("web")))[zone]);
        let has = ["web:1", "db:1"].map(|image| snapshot.image(image).and_then(|(number, _)| node.image(number)));
        let sums = [node.requested.milli_cpu, node.assumed.milli_cpu];
        let lesser = [1, 2, 3].map(|priority| node.has_lesser(priority));
        nodes.insert(node.name().to_owned(), json!([pods, counts, in_zone, has, sums, lesser]));
    }
    let images = ["web:1", "db:1"].map(|image| snapshot.image(image).map(|(_, nodes)| nodes));
    let said = |namespace: &str| {
        snapshot.sayings(&pod("probe", json!({"metadata": {"namespace": namespace, "labels": {"app": "web"}}}))).count()
    };
    let said = ["default", "other"].map(said);
    json!({"nodes": nodes, "images": images, "said": said})
}

/// After any changes, everything is as in a cluster that was made as it is now.
#[test]
fn what_is_kept_is_what_a_new_cluster_would_have() {
    let mut random = 42_u64;
    let mut below = |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let (mut nodes, mut pods) = (BTreeMap::new(), BTreeMap::new());
    let mut snapshot = Snapshot::default();
    for step in 0..400 {
        let name = format!("n{}", below(6));
        let uid = format!("p{}", below(20));
        match below(5) {
            0 => {
                let images: Value = match below(3) {
                    0 => json!([]),
                    1 => json!([{"names": ["web:1", "web:1"], "sizeBytes": 5}]),
                    _ => json!([{"names": ["web:1"], "sizeBytes": 7}, {"names": ["db:1"], "sizeBytes": 9}]),
                };
                let zone = format!("z{}", below(3));
                let made = node(&name, json!({"metadata": {"labels": {ZONE: zone}}, "status": {"images": images}}));
                snapshot.set_node(made.clone());
                nodes.insert(name, made);
            }
            1 => {
                snapshot.remove_node(&name);
                nodes.remove(&name);
            }
            2 => {
                snapshot.remove_pod(&uid);
                pods.remove(&uid);
            }
            _ => {
                let app = if below(2) == 0 { "web" } else { "db" };
                let mut term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": ZONE});
                if below(3) == 0 {
                    term["namespaceSelector"] = json!({});
                }
                let made = pod(
                    &uid,
                    json!({
                        "metadata": {"labels": {"app": app}, "namespace": if below(3) == 0 { "other" } else { "default" }},
                        "spec": {
                            "priority": below(4),
                            "containers": [{"name": "main", "image": "web", "resources": {"requests": {"cpu": below(3).to_string()}}}],
                            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
                        },
                    }),
                );
                snapshot.add_pod(made.clone(), &name);
                pods.insert(uid, (made, name));
            }
        }
        snapshot.refresh();
        let mut anew = cluster(nodes.values().cloned(), []);
        pods.values().for_each(|(pod, node)| anew.add_pod(pod.clone(), node));
        assert_eq!(seen(&snapshot), seen(&anew), "after step {step}");
    }
}

#[test]
fn zones_take_turns() {
    let zones = [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("c1", "c"), ("c2", "c")];
    let snapshot = cluster(zones.map(|(name, zone)| crate::fixtures::in_zone(name, zone)), []);
    let order: Vec<&str> = snapshot.order().iter().map(|slot| snapshot.node(*slot).name()).collect();
    assert_eq!(order, ["a1", "b1", "c1", "a2", "c2", "a3"]);
}

#[test]
fn a_status_is_no_reason_to_judge_a_node_anew() {
    let mut shapes = crate::pod::Shapes::default();
    let mut snapshot = cluster([node("one", json!({}))], []);
    let slot = snapshot.slot("one").expect("a node");
    let mut add = |status: &str| {
        let pod = crate::fixtures::shaped(&mut shapes, "web", json!({"status": {"message": status}}));
        snapshot.add_pod(pod, "one");
        snapshot.node(slot).generation()
    };
    let (first, second) = (add("begins"), add("runs"));
    assert_eq!(first, second);
    let before = snapshot.node(slot).generation();
    snapshot.remove_pod("web");
    assert!(snapshot.node(slot).generation() > before);
}
