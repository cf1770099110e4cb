use serde_json::{Value, json};

use super::*;

const PODS: usize = 0;
const VOLUMES: usize = 1;
const ATTACHMENTS: usize = 2;
const SLICES: usize = 3;

fn pod(name: &str, node: &str, mut spec: Value) -> Value {
    spec["nodeName"] = json!(node);
    json!({"metadata": {"name": name, "namespace": "n"}, "spec": spec})
}

fn graph() -> Graph {
    let mut graph = Graph::default();
    let spec = json!({
        "serviceAccountName": "account",
        "imagePullSecrets": [{"name": "pull"}],
        "initContainers": [{"envFrom": [{"secretRef": {"name": "env-from"}}]}],
        "containers": [{"env": [{"name": "a", "valueFrom": {"configMapKeyRef": {"name": "env"}}}]}],
        "ephemeralContainers": [{"env": [{"name": "a", "valueFrom": {"secretKeyRef": {"name": "debug"}}}]}],
        "volumes": [
            {"name": "a", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "map"}}]}},
            {"name": "b", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "c", "ephemeral": {}},
            {"name": "d", "csi": {"nodePublishSecretRef": {"name": "csi"}}},
        ],
        "resourceClaims": [{"name": "x", "resourceClaimName": "named"}, {"name": "y", "resourceClaimTemplateName": "t"}],
    });
    let mut first = pod("p", "a", spec);
    first["status"] = json!({"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}]});
    graph.apply_object(PODS, "n/p", Some(&first));
    graph.apply_object(PODS, "n/q", Some(&pod("q", "b", json!({"serviceAccountName": "other"}))));
    let bound = json!({"spec": {"claimRef": {"namespace": "n", "name": "claim"},
                                "csi": {"nodeStageSecretRef": {"namespace": "s", "name": "stage"},
                                        "controllerPublishSecretRef": {"namespace": "s", "name": "control"}}}});
    graph.apply_object(VOLUMES, "v", Some(&bound));
    let elsewhere = json!({"spec": {"claimRef": {"namespace": "n", "name": "else"},
                                    "csi": {"nodeStageSecretRef": {"namespace": "s", "name": "else"}}}});
    graph.apply_object(VOLUMES, "w", Some(&elsewhere));
    graph.apply_object(ATTACHMENTS, "att", Some(&json!({"spec": {"nodeName": "a"}})));
    graph.apply_object(SLICES, "slice", Some(&json!({"spec": {"nodeName": "a"}})));
    graph
}

#[test]
fn a_node_needs_what_its_pods_name() {
    let graph = graph();
    let needed: &[(Kind, &[&str])] = &[
        (Kind::Secret, &["pull", "env-from", "debug", "projected", "csi"]),
        (Kind::ConfigMap, &["env", "map"]),
        (Kind::ServiceAccount, &["account"]),
        (Kind::VolumeClaim, &["claim", "p-c"]),
        (Kind::ResourceClaim, &["named", "made"]),
        (Kind::Pod, &["p"]),
    ];
    for (kind, names) in needed {
        for name in *names {
            assert!(graph.needs("a", *kind, "n", name), "{kind:?} {name}");
            assert!(!graph.needs("b", *kind, "n", name), "{kind:?} {name} of another node");
            assert!(!graph.needs("a", *kind, "m", name), "{kind:?} {name} of another namespace");
        }
    }
    assert!(graph.needs("a", Kind::Secret, "s", "stage"));
    assert!(!graph.needs("a", Kind::Secret, "s", "control"));
    assert!(!graph.needs("a", Kind::Secret, "s", "else"));
    assert!(graph.needs_volume("a", "v") && !graph.needs_volume("b", "v") && !graph.needs_volume("a", "w"));
    assert!(graph.has_attachment("a", "att") && !graph.has_attachment("b", "att"));
    assert!(graph.has_slice("a", "slice") && !graph.has_slice("b", "slice"));
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut graph = graph();
    let another = pod("r", "a", json!({"serviceAccountName": "account"}));
    graph.apply_object(PODS, "n/r", Some(&another));
    graph.apply_object(PODS, "n/p", None);
    assert!(graph.needs("a", Kind::ServiceAccount, "n", "account"), "the other pod has it too");
    assert!(!graph.needs("a", Kind::Secret, "n", "pull") && !graph.needs("a", Kind::Secret, "s", "stage"));
    graph.apply_object(PODS, "n/r", None);
    graph.apply_object(PODS, "n/q", None);
    assert!(!graph.needs("a", Kind::ServiceAccount, "n", "account"));
}

/// Whichever way is shorter, from the secret or from the node, the answer is the same.
#[test]
fn secrets_of_many_volumes() {
    let mut graph = graph();
    for n in 0..10 {
        let volume = json!({"spec": {"claimRef": {"namespace": "n", "name": format!("c{n}")},
                                     "csi": {"nodeStageSecretRef": {"namespace": "s", "name": "stage"}}}});
        graph.apply_object(VOLUMES, &format!("v{n}"), Some(&volume));
    }
    assert!(graph.needs("a", Kind::Secret, "s", "stage") && !graph.needs("b", Kind::Secret, "s", "stage"));
    graph.apply_object(VOLUMES, "v", None);
    assert!(!graph.needs("a", Kind::Secret, "s", "stage"));
}

#[test]
fn mirror_pods_give_nothing() {
    let mut graph = Graph::default();
    let mut mirror = pod("m", "a", json!({"serviceAccountName": "account"}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    graph.apply_object(PODS, "n/m", Some(&mirror));
    assert!(graph.needs("a", Kind::Pod, "n", "m") && !graph.needs("a", Kind::ServiceAccount, "n", "account"));
}
