//! The load generator against a real server: every row runs, and its figures make sense.

use std::process::Command;

use testing::{Habits, HollowNodes, TestServer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measures_a_server() {
    let server = TestServer::embedded().await;
    let pid = std::process::id().to_string();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.arg("--kubeconfig").arg(server.kubeconfig()).args(["--server-pid", &pid, "--seconds", "0.3"]);
    bench.args(["--connections", "4", "--objects", "200", "--rounds", "1", "--watchers", "5", "--idle", "10"]);
    let output = tokio::task::spawn_blocking(move || bench.output()).await.expect("it ends").expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    let rows = [
        "create",
        "get",
        "list 200",
        "list 200 by label",
        "list 2 of 200 by label",
        "patch with 5 watchers",
        "events of it, since sent",
        "delete",
    ];
    for row in rows {
        let line = text.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("no {row} in\n{text}"));
        let rate = line.strip_prefix(row).and_then(|rest| rest.split_whitespace().find_map(|n| n.parse::<f64>().ok()));
        assert!(rate.is_some_and(|rate| rate > 0.0), "{line}");
    }
    assert!(text.contains("10 idle connections") && text.contains("server memory"), "{text}");
    // Nothing is left behind.
    let list = server.client().get("/api/v1/namespaces/default/configmaps?labelSelector=app%3Dbench").await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measures_a_scheduler() {
    let server = TestServer::embedded().await;
    let account = serde_json::json!({"metadata": {"name": "default"}});
    server.client().post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    server.run_scheduler();
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.arg("--kubeconfig").arg(server.kubeconfig()).args(["--connections", "4", "--nodes", "20", "--pods", "30"]);
    bench.args(["bind", "apart"]);
    let output = tokio::task::spawn_blocking(move || bench.output()).await.expect("it ends").expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("bind 30 pods to 20 nodes") && text.contains("bind 20 pods to 20 nodes, one each"), "{text}");
    for left in ["/api/v1/nodes", "/api/v1/namespaces/default/pods"] {
        let list = server.client().get(left).await.expect(200);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "{left}");
    }
}

/// Nobody runs the pods of this cluster, so there is nothing beside their processes; everything else is measured.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measures_a_cluster() {
    let server = TestServer::embedded().await;
    let account = serde_json::json!({"metadata": {"name": "default"}});
    server.client().post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    server.run_scheduler();
    let nodes = HollowNodes::new(&server, 1).await;
    let _node = nodes.add("real", Habits::default()).await;
    let mut bench = Command::new(env!("CARGO_BIN_EXE_bench"));
    bench.arg("cluster").arg("--kubeconfig").arg(server.kubeconfig());
    bench.args(["--server-pid", &std::process::id().to_string(), "--seconds", "0.2"]);
    bench.args(["--one-by-one", "3", "--at-once", "5", "--nodes", "20", "--pods", "30"]);
    let output = tokio::task::spawn_blocking(move || bench.output()).await.expect("it ends").expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}\n{errors}");
    for figure in [
        "idle: resident memory of the cluster",
        "create → Running, 3 pods one by one, p50",
        "create → Running, 5 pods at once, all",
        "5 pods: CPU, of one core",
        "delete → gone, 5 pods, all",
    ] {
        let line = text.lines().find_map(|line| line.strip_prefix(figure)).unwrap_or_else(|| panic!("{text}"));
        let figure = line.split_whitespace().next().and_then(|figure| figure.parse::<f64>().ok());
        assert!(figure.is_some_and(|figure| figure >= 0.0), "{text}");
    }
    assert!(text.contains("bind 20 pods to 20 nodes, one each"), "{text}");
    let list = server.client().get("/api/v1/namespaces/default/pods").await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(0), "nothing is left");
}
