//! Cells of objects in states that no recording has.

use api::columns;
use object_model::time::Time;
use serde_json::{Value, json};

/// The cells of an object by the names of their columns, at `super::NOW`.
fn cells(group: &str, kind: &str, object: Value) -> Value {
    let columns = columns::of(group, kind);
    let cells = (columns.cells)(&object, Time::parse(super::NOW).expect("a time"));
    columns.columns.iter().map(|column| column.name.to_owned()).zip(cells).collect()
}

fn pod(spec: Value, status: Value) -> Value {
    let mut object = json!({"metadata": {"name": "p", "creationTimestamp": "2026-11-15T11:00:00Z"}});
    object["spec"] = spec;
    object["status"] = status;
    object
}

/// `Ready`, `Status` and `Restarts`.
fn pod_cells(object: Value) -> [String; 3] {
    let cells = cells("", "Pod", object);
    ["Ready", "Status", "Restarts"].map(|name| cells[name].as_str().unwrap_or_default().to_owned())
}

fn container(name: &str, state: Value, ready: bool, restarts: i64) -> Value {
    json!({"name": name, "state": state, "ready": ready, "restartCount": restarts})
}

fn running() -> Value {
    json!({"running": {}})
}

fn ended(code: i64, reason: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

#[test]
fn a_pod_says_what_its_containers_do() {
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let status = |containers: Value| json!({"phase": "Running", "containerStatuses": containers});
    let of = |containers: Value| pod_cells(pod(two.clone(), status(containers)));

    let both = json!([container("a", running(), true, 0), container("b", running(), true, 0)]);
    assert_eq!(of(both), ["2/2", "Running", "0"]);

    let mut crashed = container("b", waiting("CrashLoopBackOff"), false, 3);
    crashed["lastState"] = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-11-15T11:55:00Z"}});
    assert_eq!(of(json!([container("a", running(), true, 0), crashed])), ["1/2", "CrashLoopBackOff", "3 (5m ago)"]);

    let half = json!([container("a", ended(0, "Completed"), false, 0), container("b", running(), true, 0)]);
    assert_eq!(of(half.clone()), ["1/2", "NotReady", "0"]);
    let mut with_condition = status(half);
    with_condition["conditions"] = ready;
    assert_eq!(pod_cells(pod(two.clone(), with_condition)), ["1/2", "Running", "0"]);

    let failed = json!([container("a", ended(0, "Completed"), false, 0), container("b", ended(2, "Error"), false, 0)]);
    assert_eq!(of(failed), ["0/2", "Error", "0"]);
    let killed = json!([container("a", json!({"terminated": {"exitCode": 137, "signal": 9}}), false, 0)]);
    assert_eq!(of(killed), ["0/2", "Signal:9", "0"]);
    let exited = json!([container("a", json!({"terminated": {"exitCode": 7}}), false, 0)]);
    assert_eq!(of(exited), ["0/2", "ExitCode:7", "0"]);
}

#[test]
fn a_pod_says_how_far_its_init_containers_are() {
    let spec = json!({
        "initContainers": [{"name": "i"}, {"name": "side", "restartPolicy": "Always"}, {"name": "k"}],
        "containers": [{"name": "a"}],
    });
    let of = |init: Value| {
        let waits = json!([container("a", waiting("PodInitializing"), false, 0)]);
        let status = json!({"phase": "Pending", "initContainerStatuses": init, "containerStatuses": waits});
        pod_cells(pod(spec.clone(), status))
    };
    let done = container("i", ended(0, "Completed"), true, 1);
    let mut side = container("side", running(), true, 2);
    side["started"] = true.into();

    assert_eq!(of(json!([container("i", running(), false, 0)])), ["0/2", "Init:0/3", "0"]);
    assert_eq!(of(json!([container("i", ended(3, ""), false, 0)])), ["0/2", "Init:ExitCode:3", "0"]);
    assert_eq!(of(json!([container("i", waiting("ErrImagePull"), false, 0)])), ["0/2", "Init:ErrImagePull", "0"]);
    assert_eq!(of(json!([done, container("side", running(), false, 0)])), ["0/2", "Init:1/3", "1"]);
    let last = container("k", waiting("PodInitializing"), false, 0);
    assert_eq!(of(json!([done, side, last])), ["1/2", "Init:2/3", "3"]);
    let last = container("k", ended(0, "Completed"), true, 0);
    assert_eq!(of(json!([done, side, last])), ["1/2", "PodInitializing", "2"]);
}

#[test]
fn a_pod_that_ends_or_waits_says_so() {
    let spec = json!({"containers": [{"name": "a"}]});
    let of = |status: Value, deleting: bool| {
        let mut object = pod(spec.clone(), status);
        if deleting {
            object["metadata"]["deletionTimestamp"] = super::NOW.into();
        }
        pod_cells(object)[1].clone()
    };
    assert_eq!(of(json!({"phase": "Running"}), true), "Terminating");
    assert_eq!(of(json!({"phase": "Failed", "reason": "Evicted"}), true), "Evicted");
    assert_eq!(of(json!({"phase": "Running", "reason": "NodeLost"}), true), "Unknown");
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    assert_eq!(of(json!({"phase": "Pending", "conditions": gated}), false), "SchedulingGated");

    let conditions = |phase: &str| (columns::of("", "Pod").conditions)(&pod(spec.clone(), json!({"phase": phase})));
    assert_eq!(conditions("Running"), None);
    let want = json!([{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}]);
    assert_eq!(conditions("Failed"), Some(want));
    assert!(conditions("Succeeded").is_some());
}

#[test]
fn a_node_shows_its_state_and_roles() {
    let node = json!({
        "metadata": {"name": "n", "creationTimestamp": "2026-11-01T12:00:00Z", "labels": {
            "node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge",
            "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/": ""}},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.7"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "kernelVersion": "6.1", "architecture": "amd64"},
        },
    });
    let cells = cells("", "Node", node);
    assert_eq!(cells["Status"], "NotReady,SchedulingDisabled");
    assert_eq!(cells["Roles"], "control-plane,edge,worker");
    assert_eq!((&cells["Age"], &cells["Version"]), (&json!("14d"), &json!("v1.36.4")));
    assert_eq!((&cells["Internal-IP"], &cells["External-IP"]), (&json!("10.0.0.7"), &json!("<none>")));
    assert_eq!((&cells["OS-Image"], &cells["Kernel-Version"]), (&json!("<unknown>"), &json!("6.1 (amd64)")));
}

#[test]
fn a_service_shows_where_it_is_reached() {
    let service = |spec: Value, ingress: Value| {
        let status = json!({"loadBalancer": {"ingress": ingress}});
        cells("", "Service", json!({"metadata": {"name": "s"}, "spec": spec, "status": status}))["External-IP"].clone()
    };
    let points = json!([{"hostname": "lb.example"}, {"ip": "192.0.2.9"}]);
    assert_eq!(service(json!({"type": "LoadBalancer"}), json!([])), "<pending>");
    assert_eq!(service(json!({"type": "LoadBalancer"}), points.clone()), "192.0.2.9,lb.example");
    let both = json!({"type": "LoadBalancer", "externalIPs": ["198.51.100.1"]});
    assert_eq!(service(both, points), "192.0.2.9,lb.example,198.51.100.1");
    assert_eq!(
        service(json!({"type": "NodePort", "externalIPs": ["1.2.3.4", "5.6.7.8"]}), json!([])),
        "1.2.3.4,5.6.7.8"
    );
}

#[test]
fn only_the_first_few_of_many_are_shown() {
    let endpoints = json!({"subsets": [{
        "addresses": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
        "ports": [{"port": 80}, {"port": 443}],
    }]});
    assert_eq!(cells("", "Endpoints", endpoints)["Endpoints"], "10.1.0.1:80,[fd00::1]:80,10.1.0.1:443 + 1 more...");

    let hosts = |hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        cells("networking.k8s.io", "Ingress", json!({"spec": {"rules": rules}}))["Hosts"].clone()
    };
    assert_eq!(hosts(&[]), "*");
    assert_eq!(hosts(&["a", "b", "c"]), "a,b,c");
    assert_eq!(hosts(&["a", "b", "c", ""]), "a,b,c + 1 more...");
    assert_eq!(hosts(&["a", "", "b"]), "a,b");
}

#[test]
fn an_autoscaler_shows_where_each_metric_is() {
    let of = |metrics: Value, current: Value| {
        let object = json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}});
        cells("autoscaling", "HorizontalPodAutoscaler", object)["Targets"].clone()
    };
    let cpu = |target: Value| json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    let external = |target: Value| json!({"type": "External", "external": {"target": target}});
    let percent = cpu(json!({"averageUtilization": 80}));
    let used = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 20}}});
    assert_eq!(of(json!([]), json!([])), "<none>");
    assert_eq!(of(json!([percent]), json!([used])), "cpu: 20%/80%");
    assert_eq!(of(json!([cpu(json!({"averageValue": "500m"}))]), json!([])), "cpu: <unknown>/500m");
    assert_eq!(of(json!([cpu(json!({}))]), json!([])), "cpu: <unknown>/<auto>");
    assert_eq!(of(json!([external(json!({"averageValue": "4"}))]), json!([])), "<unknown>/4 (avg)");
    let seen = json!({"type": "External", "external": {"current": {"value": "7"}}});
    assert_eq!(of(json!([external(json!({"value": "9"}))]), json!([seen])), "7/9");
    let many = json!([percent, percent, percent]);
    assert_eq!(of(many, json!([])), "cpu: <unknown>/80%, cpu: <unknown>/80% + 1 more...");
}

#[test]
fn an_age_is_the_more_exact_the_shorter_it_is() {
    let age = |made: &str| cells("", "Namespace", json!({"metadata": {"creationTimestamp": made}}))["Age"].clone();
    for (made, shown) in [
        ("2026-11-15T12:00:05Z", "<invalid>"),
        ("2026-11-15T12:00:01Z", "0s"),
        ("2026-11-15T11:58:01Z", "119s"),
        ("2026-11-15T11:58:00Z", "2m"),
        ("2026-11-15T11:55:30Z", "4m30s"),
        ("2026-11-15T11:30:20Z", "29m"),
        ("2026-11-15T08:15:00Z", "3h45m"),
        ("2026-11-14T12:00:00Z", "24h"),
        ("2026-11-12T11:00:00Z", "3d1h"),
        ("2026-11-01T11:00:00Z", "14d"),
        ("2023-11-05T12:00:00Z", "3y11d"),
        ("2010-01-01T00:00:00Z", "16y"),
    ] {
        assert_eq!(age(made), shown, "{made}");
    }
    assert_eq!(cells("", "Namespace", json!({}))["Age"], "<unknown>");
}

#[test]
fn a_claim_shows_its_volume_and_a_quota_what_is_used() {
    let claim = json!({
        "metadata": {"deletionTimestamp": super::NOW},
        "spec": {"volumeName": "v", "storageClassName": "fast"},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "5Gi"}},
    });
    let cells_of_claim = cells("", "PersistentVolumeClaim", claim);
    assert_eq!((&cells_of_claim["Status"], &cells_of_claim["Capacity"]), (&json!("Terminating"), &json!("5Gi")));
    assert_eq!(cells_of_claim["Access Modes"], "RWO,RWX");

    let hard = json!({"limits.cpu": "4", "pods": "10", "requests.cpu": "2"});
    let quota = json!({"status": {"hard": hard, "used": {"pods": "3"}}});
    let quota = cells("", "ResourceQuota", quota);
    assert_eq!(
        (&quota["Request"], &quota["Limit"]),
        (&json!("pods: 3/10, requests.cpu: 0/2"), &json!("limits.cpu: 0/4"))
    );
}

#[test]
fn a_job_shows_its_state_and_duration() {
    let status = json!({
        "succeeded": 2, "startTime": "2026-11-15T11:00:00Z", "completionTime": "2026-11-15T11:03:20Z",
        "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}],
    });
    let done = cells("batch", "Job", json!({"spec": {"completions": 2}, "status": status}));
    assert_eq!((&done["Status"], &done["Completions"]), (&json!("Complete"), &json!("2/2")));
    assert_eq!(done["Duration"], "3m20s");
    let queue = cells(
        "batch",
        "Job",
        json!({"spec": {"parallelism": 5, "suspend": true},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]}}),
    );
    assert_eq!((&queue["Status"], &queue["Completions"]), (&json!("Suspended"), &json!("0/1 of 5")));
}
