use serde_json::{Value, json};

use super::pod_warnings;

fn warnings(spec: Value) -> Vec<String> {
    pod_warnings(&json!({"metadata": {"name": "p"}, "spec": spec}))
}

fn of_ports(ports: &Value) -> Vec<String> {
    let warnings = warnings(json!({"containers": [{"name": "c", "ports": ports}]}));
    warnings.into_iter().map(|warning| warning.replace("spec.containers[0].ports", "")).collect()
}

fn of_paths<'p>(paths: impl IntoIterator<Item = &'p str>) -> Vec<String> {
    let items: Value = paths.into_iter().map(|path| json!({"key": "k", "path": path})).collect();
    let warnings = warnings(json!({"volumes": [{"name": "v", "configMap": {"name": "m", "items": items}}]}));
    let prefix = "volume \"v\" (ConfigMap \"m\"): overlapping paths: ";
    warnings.iter().map(|warning| warning.strip_prefix(prefix).expect("a prefix").replace('"', "")).collect()
}

/// Each with each, the way Kubernetes does it.
fn by_pairs(paths: &[&str]) -> Vec<String> {
    let mut told = Vec::new();
    for (i, this) in paths.iter().enumerate() {
        for other in &paths[..i] {
            let (this, other) = (this.trim_end_matches('/'), other.trim_end_matches('/'));
            let (a, b) = (format!("{this}/"), format!("{other}/"));
            let warning = format!("{this} with {other}");
            if !this.is_empty()
                && !other.is_empty()
                && (a.starts_with(&b) || b.starts_with(&a))
                && !told.contains(&warning)
            {
                told.push(warning);
            }
        }
    }
    told
}

#[test]
fn ports_that_meet() {
    let ports = json!([
        {"containerPort": 80, "protocol": "TCP"},
        {"containerPort": 80, "protocol": "TCP", "hostPort": 1, "hostIP": "10.0.0.1"},
        {"containerPort": 80, "protocol": "TCP", "hostPort": 1},
        {"containerPort": 80, "protocol": "TCP", "hostPort": 1, "hostIP": "10.0.0.2"},
        {"containerPort": 80, "protocol": "TCP", "hostPort": 2},
        {"containerPort": 80, "protocol": "UDP"},
        {"containerPort": 80, "protocol": "TCP"},
    ]);
    assert_eq!(
        of_ports(&ports),
        [
            "[1]: overlapping port definition with [0]",
            "[2]: overlapping port definition with [0]",
            "[2]: dangerously ambiguous port definition with [1]",
            "[3]: overlapping port definition with [0]",
            "[3]: dangerously ambiguous port definition with [2]",
            "[4]: overlapping port definition with [0]",
            "[6]: duplicate port definition with [0]",
            "[6]: overlapping port definition with [1]",
            "[6]: overlapping port definition with [2]",
            "[6]: overlapping port definition with [3]",
            "[6]: overlapping port definition with [4]",
        ]
    );
    let named = json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]);
    assert_eq!(
        of_ports(&named),
        ["[1]: duplicate port name \"a\" with [0], services and probes that select ports by name will use [0]"]
    );
}

/// A pod with twenty thousand equal ports has two hundred million pairs of them; not all can be told, nor need be made.
#[test]
fn warnings_of_pairs_end() {
    let equal: Value = (0..20_000).map(|_| json!({"containerPort": 80, "protocol": "TCP"})).collect();
    let told = of_ports(&equal);
    assert!((40..60).contains(&told.len()), "{}", told.len());
    assert_eq!(told[2], "[2]: duplicate port definition with [1]");
    // These meet nobody, and there are billions of pairs of them.
    let apart: Value =
        (0..60_000).map(|n| json!({"containerPort": 80, "hostPort": n + 1, "protocol": "TCP"})).collect();
    assert_eq!(of_ports(&apart), Vec::<String>::new());
}

#[test]
fn paths_that_overlap_are_told_in_order() {
    assert_eq!(of_paths(["b/c", "a", "b", "a", "a"]), ["b with b/c", "a with a"]);
    let paths =
        ["a/b", "a", "a-b", "a/b/c/", "", "a", "a//b", "b/a/x", "b/a/y", "b/c", "b", "a/b", "b/a", "a/b/c", "a/"];
    assert_eq!(of_paths(paths), by_pairs(&paths));
    // Every order of some that lie between each other in the alphabet.
    let some = ["a", "a/b", "a/b!", "a/b/c", "a/b/d/e", "a/c", "a!"];
    for seed in 0..200_usize {
        let mixed: Vec<&str> = (0..12).map(|n| some[(seed * 31 + n * n * 7 + seed * n) % some.len()]).collect();
        assert_eq!(of_paths(mixed.iter().copied()), by_pairs(&mixed), "{mixed:?}");
    }
}

#[test]
fn many_paths_are_not_compared_each_with_each() {
    let apart: Vec<String> = (0..50_000).map(|n| format!("d/{n}")).collect();
    assert_eq!(of_paths(apart.iter().map(String::as_str)), Vec::<String>::new());
    let told = of_paths(apart.iter().map(String::as_str).chain(["d"]));
    assert_eq!(told[0..2], ["d with d/0", "d with d/1"]);
    assert!(told.len() < 500, "{}", told.len());
    assert_eq!(of_paths(std::iter::repeat_n("a", 50_000)), ["a with a"]);
}

#[test]
fn projected_sources_say_what_overlaps() {
    let sources = json!([
        {"configMap": {"name": "m", "items": [{"key": "k", "path": "x"}]}},
        {},
        {"serviceAccountToken": {"path": "x/token"}},
        {"downwardAPI": {"items": [{"path": "x"}]}},
        {"clusterTrustBundle": {"signerName": "s", "path": "x"}},
    ]);
    let told = warnings(json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}));
    let overlap = |a: &str, b: &str| format!("volume \"v\" (Projected): overlapping paths: {a} with {b}");
    let (map, token) = ("\"x\" (ConfigMap \"m\")", "\"x/token\" (ServiceAccountToken)");
    let (downward, bundle) = ("\"x\" (DownwardAPI)", "\"x\" (ClusterTrustBundle \"s\")");
    assert_eq!(
        told,
        [
            "volume \"v\" (Projected) has no sources provided".to_owned(),
            overlap(token, map),
            overlap(downward, map),
            overlap(downward, token),
            overlap(bundle, map),
            overlap(bundle, token),
            overlap(bundle, downward),
        ]
    );
}
