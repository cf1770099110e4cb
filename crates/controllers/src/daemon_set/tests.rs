use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn set(strategy: Value) -> DaemonSet {
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "updateStrategy": strategy,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}});
    let set = json!({"metadata": {"name": "d", "namespace": "n", "uid": "u", "generation": 2}, "spec": spec});
    serde_json::from_value(set).expect("a set")
}

fn rolling(surge: i32, unavailable: i32) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn nodes(count: usize) -> Vec<Arc<Node>> {
    let node = |at| serde_json::from_value(json!({"metadata": {"name": format!("n{at}")}})).expect("a node");
    (0..count).map(|at| Arc::new(node(at))).collect()
}

/// A pod on a node: `N`ew or `O`ld, ready if large, or `F`ailed, or one that `W`aits for its node.
fn pod(node: usize, state: char) -> Arc<Pod> {
    let of = if "Nn".contains(state) { "new" } else { "old" };
    let name = format!("{node}{state}");
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "labels": {"a": "b", POD_REVISION: of}},
        "spec": {"nodeName": format!("n{node}"), "containers": []}, "status": {"phase": "Running"},
    });
    match state {
        'N' | 'O' => pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]),
        'F' => pod["status"]["phase"] = json!("Failed"),
        'W' => {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [format!("n{node}")]});
            let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
            pod["spec"] = json!({"affinity": affinity, "containers": []});
        }
        _ => {}
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

/// The pods of each node, one word for each.
fn pods(of: &str) -> Vec<Arc<Pod>> {
    let word = |(node, word): (usize, &str)| word.chars().map(|state| pod(node, state)).collect::<Vec<_>>();
    of.split(' ').map(|word| word.trim_matches('-')).enumerate().flat_map(word).collect()
}

fn plan<'a>(set: &'a DaemonSet, count: usize, of: &str) -> Plan<'a> {
    let now: Timestamp = NOW.parse().expect("a time");
    Plan::new(set, &nodes(count), &pods(of), "new", now)
}

fn names(work: &Work) -> (String, String) {
    let deleted: Vec<&str> = work.delete.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
    (work.create.join(" "), deleted.join(" "))
}

#[test]
fn one_pod_on_each_node() {
    for (strategy, of, created, deleted) in [
        (rolling(0, 1), "N - N", "n1", ""),
        (rolling(0, 1), "NO N N", "", "0O"),
        (rolling(0, 1), "N N N W", "", "3W"),
        (rolling(0, 1), "N N N N", "", ""),
        (rolling(0, 1), "F N N", "", ""),
        // Where a new pod may come first, old and new are there together until the new one is ready.
        (rolling(1, 0), "nO N N", "", ""),
        (rolling(1, 0), "NO N N", "", "0O"),
        (rolling(1, 0), "no N N", "", "0o"),
        (rolling(1, 0), "F N N", "n0", ""),
    ] {
        let set = set(strategy.clone());
        let work = plan(&set, 3, of).placement();
        assert_eq!(names(&work), (created.to_owned(), deleted.to_owned()), "{strategy} {of}");
        assert_eq!(work.ended.len(), of.matches('F').count());
    }
}

#[test]
fn an_update_goes_as_fast_as_it_may() {
    for (strategy, of, created, deleted) in [
        (rolling(0, 1), "O O O", "", "0O"),
        (rolling(0, 2), "O O O", "", "0O 1O"),
        (rolling(0, 2), "n O O", "", "1O"),
        (rolling(0, 1), "n O O", "", ""),
        (rolling(0, 1), "N O O", "", "1O"),
        (rolling(0, 1), "o o O", "", "0o 1o"),
        (rolling(1, 0), "O O O", "n0", ""),
        (rolling(1, 0), "nO O O", "", ""),
        (rolling(1, 0), "NO O O", "n1", "0O"),
        (rolling(1, 0), "O o O", "n1 n0", ""),
        (json!({"type": "OnDelete"}), "O O O", "", ""),
    ] {
        let set = set(strategy.clone());
        let work = plan(&set, 3, of).rolling_update();
        assert_eq!(names(&work), (created.to_owned(), deleted.to_owned()), "{strategy} {of}");
    }
}

#[test]
fn the_status_counts_nodes() {
    let set = set(rolling(0, 1));
    let status = plan(&set, 4, "N O n - N").status();
    assert_eq!((status.desired_number_scheduled, status.current_number_scheduled), (4, 3));
    assert_eq!((status.number_ready, status.number_misscheduled), (2, 0));
    assert_eq!((status.number_available, status.number_unavailable), (Some(2), Some(2)));
    assert_eq!((status.updated_number_scheduled, status.observed_generation), (Some(2), Some(2)));
}

#[test]
fn a_pod_knows_its_node() {
    let set = set(rolling(0, 1));
    let pod = new_pod::new_pod(&set, "n7", "abc");
    assert_eq!(plan::target(&pod), Some("n7"));
    assert_eq!(label(&pod.metadata, POD_REVISION), Some("abc"));
    assert_eq!(pod.spec.and_then(|spec| spec.tolerations).map(|all| all.len()), Some(6));
}

proptest! {
    #[test]
    fn no_update_takes_more_than_it_may(
        states in prop::collection::vec(prop::sample::select(vec!["N", "O", "n", "o"]), 1..12), most in 1..5i32,
    ) {
        let set = set(rolling(0, most));
        let work = plan(&set, states.len(), &states.join(" ")).rolling_update();
        let away = states.iter().filter(|state| **state == "n" || **state == "o").count();
        let ready_ones = work.delete.iter().filter(|pod| pods::ready(pod).is_some()).count();
        prop_assert!(ready_ones == 0 || away + ready_ones <= most as usize);
        prop_assert!(work.create.is_empty());
    }
}
