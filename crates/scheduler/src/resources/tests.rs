use serde_json::{Value, json};

use super::*;
use crate::fixtures::{asking, pod};

fn said(spec: Value) -> Resources {
    pod("web", json!({"spec": spec})).shape.requests.said.clone()
}

fn container(cpu: &str) -> Value {
    json!({"name": format!("c{cpu}"), "image": "web", "resources": {"requests": {"cpu": cpu}}})
}

fn sidecar(cpu: &str) -> Value {
    let mut sidecar = container(cpu);
    sidecar["restartPolicy"] = json!("Always");
    sidecar
}

#[test]
fn init_containers_raise_the_sum_and_sidecars_stay() {
    let cases = [
        (json!([]), 300),
        (json!([container("250m")]), 300),
        (json!([container("500m"), container("400m")]), 500),
        (json!([sidecar("100m")]), 400),
        (json!([sidecar("100m"), container("350m")]), 450),
        (json!([container("350m"), sidecar("100m")]), 400),
    ];
    for (init, milli_cpu) in cases {
        let spec = json!({"containers": [container("100m"), container("200m")], "initContainers": init});
        assert_eq!(said(spec.clone()).milli_cpu, milli_cpu, "{spec}");
    }
}

#[test]
fn the_pods_own_requests_stand_in_for_the_sum_and_overhead_comes_on_top() {
    let spec = json!({
        "containers": [container("100m")],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "overhead": {"cpu": "50m"},
    });
    let requests = said(spec);
    assert_eq!((requests.milli_cpu, requests.memory), (1050, 1 << 30));
}

#[test]
fn who_says_nothing_counts_in_scores() {
    let silent = pod("web", json!({}));
    assert_eq!(silent.shape.requests.said, Resources::default());
    assert_eq!(silent.shape.requests.assumed.milli_cpu, 100);
    assert_eq!(silent.shape.requests.assumed.memory, 200 << 20);
    let half = pod("web", asking(json!({"cpu": "0"})));
    assert_eq!((half.shape.requests.assumed.milli_cpu, half.shape.requests.assumed.memory), (0, 200 << 20));
}

#[test]
fn a_container_counts_for_what_it_was_given() {
    let resized = |infeasible: bool| {
        let conditions = match infeasible {
            true => json!([{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]),
            false => json!([]),
        };
        let mut changes = asking(json!({"cpu": "500m"}));
        changes["status"] = json!({"conditions": conditions, "containerStatuses": [{
            "name": "main", "image": "web", "imageID": "", "ready": true, "restartCount": 0,
            "allocatedResources": {"cpu": "200m"}, "resources": {"requests": {"cpu": "300m"}},
        }]});
        pod("web", changes).shape.requests.said.milli_cpu
    };
    assert_eq!(resized(false), 500);
    assert_eq!(resized(true), 300);
}

#[test]
fn endless_requests_stay_endless_however_many_there_are() {
    let container = |name: &str| {
        let requests = json!({"memory": "9223372036854775807", "example.com/gpu": "9223372036854775807"});
        json!({"name": name, "image": "web", "resources": {"requests": requests}})
    };
    let requests = said(json!({"containers": [container("a"), container("b"), container("c")]}));
    assert!(requests.memory > 1 << 50 && requests.other("example.com/gpu") > 1 << 50, "{requests:?}");
}

#[test]
fn any_resource_can_be_asked_for() {
    let gpus = pod("web", asking(json!({"example.com/gpu": "2", "hugepages-2Mi": "4Mi", "pods": "7"})));
    let said: Vec<_> = gpus.shape.requests.said.others().collect();
    assert_eq!(said, [("example.com/gpu", 2), ("hugepages-2Mi", 4 << 20)]);
}
