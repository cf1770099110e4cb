use serde_json::{Value, json};

use super::*;
use crate::fixtures::{cluster, in_zone, judged, passing, pod, scored};

const ZONE: &str = "topology.kubernetes.io/zone";
const HOST: &str = "kubernetes.io/hostname";

fn zones() -> [Arc<Node>; 3] {
    [in_zone("a1", "a"), in_zone("a2", "a"), in_zone("b1", "b")]
}

fn labelled(app: &str) -> Value {
    json!({"metadata": {"labels": {"app": app}}})
}

fn term(app: &str, topology: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology})
}

/// A pod of an app with one required term.
fn with(app: &str, kind: &str, term: Value) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}},
    })
}

fn preferring(app: &str, kind: &str, weight: i32, term: Value) -> Value {
    let weighted = json!([{"weight": weight, "podAffinityTerm": term}]);
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}},
    })
}

#[test]
fn a_pod_goes_near_those_it_must_be_near() {
    let there = pod("db", labelled("db"));
    let snapshot = cluster(zones(), [(there, "a1")]);
    let cases = [
        (term("db", ZONE), vec!["a1", "a2"]),
        (term("db", HOST), vec!["a1"]),
        (term("web", ZONE), vec!["a1", "a2", "b1"]),
        (term("other", ZONE), vec![]),
        (term("db", "no-such-label"), vec![]),
    ];
    for (term, nodes) in cases {
        let web = pod("web", with("web", "podAffinity", term.clone()));
        assert_eq!(passing(&InterPodAffinity, &web, &snapshot), nodes, "{term}");
    }
}

#[test]
fn one_pod_must_fit_all_terms() {
    let both = pod("both", json!({"metadata": {"labels": {"app": "db", "tier": "back"}}}));
    let one = pod("one", labelled("db"));
    let terms = json!([
        term("db", ZONE),
        {"labelSelector": {"matchLabels": {"tier": "back"}}, "topologyKey": HOST},
    ]);
    let web = pod(
        "web",
        json!({"spec": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}}),
    );
    let snapshot = cluster(zones(), [(both, "a1"), (one, "b1")]);
    assert_eq!(passing(&InterPodAffinity, &web, &snapshot), ["a1"]);
}

#[test]
fn the_first_of_its_kind_goes_anywhere_with_the_label() {
    let web = pod("web", with("web", "podAffinity", term("web", ZONE)));
    let unlabelled = crate::fixtures::node("bare", json!({}));
    let snapshot = cluster(zones().into_iter().chain([unlabelled]), []);
    assert_eq!(passing(&InterPodAffinity, &web, &snapshot), ["a1", "a2", "b1"]);
}

#[test]
fn pods_keep_each_other_away() {
    let there = pod("there", with("web", "podAntiAffinity", term("web", ZONE)));
    let snapshot = cluster(zones(), [(there, "a1")]);
    let same = pod("same", with("web", "podAntiAffinity", term("web", HOST)));
    let why = judged(&InterPodAffinity, &same, &snapshot);
    assert_eq!(why["a1"], "node(s) didn't match pod anti-affinity rules");
    assert_eq!(why["a2"], "node(s) didn't satisfy existing pods anti-affinity rules");
    assert_eq!(why["b1"], "");
    assert_eq!(passing(&InterPodAffinity, &pod("other", labelled("db")), &snapshot), ["a1", "a2", "b1"]);
}

#[test]
fn namespaces_are_those_that_are_named_or_selected() {
    let there = pod("there", json!({"metadata": {"namespace": "prod", "labels": {"app": "db"}}}));
    let mut snapshot = cluster(zones(), [(there, "a1")]);
    snapshot.set_namespace("prod", Some(&[("env".to_owned(), "prod".to_owned())].into()));
    let selecting = |value: &str| {
        let mut term = term("db", ZONE);
        term["namespaceSelector"] = json!({"matchLabels": {"env": value}});
        pod("web", with("web", "podAffinity", term))
    };
    assert_eq!(passing(&InterPodAffinity, &selecting("prod"), &snapshot), ["a1", "a2"]);
    assert!(passing(&InterPodAffinity, &selecting("test"), &snapshot).is_empty());
    assert!(
        passing(&InterPodAffinity, &pod("web", with("web", "podAffinity", term("db", ZONE))), &snapshot).is_empty()
    );
    let mut named = term("db", ZONE);
    named["namespaces"] = json!(["prod"]);
    assert_eq!(passing(&InterPodAffinity, &pod("web", with("web", "podAffinity", named)), &snapshot), ["a1", "a2"]);
    // The labels of a namespace count as they are now.
    snapshot.set_namespace("prod", Some(&[("env".to_owned(), "test".to_owned())].into()));
    assert_eq!(passing(&InterPodAffinity, &selecting("test"), &snapshot), ["a1", "a2"]);
}

#[test]
fn counts_follow_pods_and_nodes() {
    let web = pod("web", with("web", "podAntiAffinity", term("db", ZONE)));
    let mut snapshot = cluster(zones(), []);
    assert_eq!(passing(&InterPodAffinity, &web, &snapshot).len(), 3);
    snapshot.add_pod(pod("db", labelled("db")), "a1");
    assert_eq!(passing(&InterPodAffinity, &web, &snapshot), ["b1"]);
    snapshot.add_pod(pod("db", labelled("db")), "b1");
    assert_eq!(passing(&InterPodAffinity, &web, &snapshot), ["a1", "a2"]);
    snapshot.set_node(in_zone("b1", "a"));
    snapshot.refresh();
    assert!(passing(&InterPodAffinity, &web, &snapshot).is_empty());
    snapshot.remove_pod("db");
    assert_eq!(passing(&InterPodAffinity, &web, &snapshot).len(), 3);
}

#[test]
fn likings_add_up() {
    let there = pod("there", labelled("db"));
    let snapshot = cluster(zones(), [(there, "a1")]);
    let near =
        scored(&InterPodAffinity, &pod("web", preferring("web", "podAffinity", 10, term("db", ZONE))), &snapshot);
    assert_eq!(near, Some([("a1".into(), 100), ("a2".into(), 100), ("b1".into(), 0)].into()));
    let away =
        scored(&InterPodAffinity, &pod("web", preferring("web", "podAntiAffinity", 10, term("db", HOST))), &snapshot);
    assert_eq!(away, Some([("a1".into(), 0), ("a2".into(), 100), ("b1".into(), 100)].into()));
    assert_eq!(scored(&InterPodAffinity, &pod("web", labelled("web")), &snapshot), None);
}

#[test]
fn what_pods_say_that_are_there_counts_too() {
    let loving = pod("loving", preferring("x", "podAffinity", 5, term("web", ZONE)));
    let snapshot = cluster(zones(), [(loving, "b1")]);
    let scores = scored(&InterPodAffinity, &pod("web", labelled("web")), &snapshot);
    assert_eq!(scores, Some([("a1".into(), 0), ("a2".into(), 0), ("b1".into(), 100)].into()));
    let requiring = pod("requiring", with("x", "podAffinity", term("web", HOST)));
    let snapshot = cluster(zones(), [(requiring, "a2")]);
    let scores = scored(&InterPodAffinity, &pod("web", labelled("web")), &snapshot);
    assert_eq!(scores, Some([("a1".into(), 0), ("a2".into(), 100), ("b1".into(), 0)].into()));
}

#[test]
fn only_events_that_could_help_wake() {
    let web = pod("web", with("web", "podAffinity", term("db", ZONE)));
    let (db, other) = (pod("db", labelled("db")), pod("other", labelled("other")));
    assert!(InterPodAffinity.helps(&Event::PodAdded(&db), &web));
    assert!(!InterPodAffinity.helps(&Event::PodAdded(&other), &web));
    assert!(!InterPodAffinity.helps(&Event::PodRemoved(&db), &web));
    let away = pod("web", with("web", "podAntiAffinity", term("db", ZONE)));
    assert!(InterPodAffinity.helps(&Event::PodRemoved(&db), &away));
    assert!(!InterPodAffinity.helps(&Event::PodRemoved(&other), &away));
    assert!(InterPodAffinity.helps(&Event::NodeAdded(&in_zone("new", "c")), &away));
    let kept_away = pod("plain", labelled("web"));
    assert!(
        InterPodAffinity
            .helps(&Event::PodRemoved(&pod("x", with("x", "podAntiAffinity", term("web", ZONE)))), &kept_away)
    );
}
