//! The server over real TLS behind a real API server, with real kubectl where there is one.

use std::{
    collections::HashMap,
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Mutex,
};

use container_runtime::services::{
    ContainerEvent, ContainerEventType, ContainerMetadata, ContainerState, ContainerStatus,
};
use controller_runtime::transport;
use serde_json::json;
use testing::{
    TestServer,
    client::{Client, Trust},
    skipped,
};

use super::*;
use crate::fakes::{self, FakeRuntime};

/// An agent with one pod `p`, whose container `main` writes to a log.
struct Fixture {
    server: TestServer,
    address: SocketAddr,
    runtime: Arc<FakeRuntime>,
    log: PathBuf,
    stop: CancellationToken,
}

#[derive(Default)]
struct Pods(Mutex<HashMap<String, Arc<Pod>>>);

impl Host for Pods {
    fn pods(&self) -> Vec<Arc<Pod>> {
        self.0.lock().expect("a lock").values().cloned().collect()
    }

    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        self.0.lock().expect("a lock").get(name).filter(|_| namespace == "default").cloned()
    }

    fn sandbox(&self, _: &str) -> Option<String> {
        Some("sandbox".into())
    }

    fn container(&self, _: &str, name: &str) -> Option<String> {
        Some("id1".into()).filter(|_| name == "main")
    }
}

impl Fixture {
    async fn new() -> Self {
        let server = TestServer::embedded().await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let runtime = Arc::new(FakeRuntime::default());
        let mut settings = fakes::settings(server.folder());
        let node = server.kubeconfig_of("system:node:n1", "system:nodes");
        settings.client = transport::from_kubeconfig(&node, "kubelet").await.expect("a client");
        settings.tls = Arc::new(server.agent_tls(address.ip()));
        settings.runtime = runtime.clone();
        let log = server.folder().join("0.log");
        fs::write(&log, "").expect("a log");
        runtime.containers.lock().expect("a lock").insert("id1".into(), running(&log));
        let pods = Pods::default();
        let pod = Arc::new(pod(&server, address).await);
        pods.0.lock().expect("a lock").insert("p".into(), pod);
        let stop = CancellationToken::new();
        tokio::spawn(serve_on(listener, settings, Arc::new(pods), stop.clone()));
        Self { server, address, runtime, log, stop }
    }

    fn client(&self, trust: Trust) -> Client {
        Client::new(self.address, trust)
    }

    fn write(&self, lines: &[&str]) {
        let mut file = fs::OpenOptions::new().append(true).open(&self.log).expect("a log");
        for line in lines {
            writeln!(file, "2026-01-01T00:00:00.000000000Z stdout F {line}").expect("it is written");
        }
    }

    fn end(&self) {
        if let Some(status) = self.runtime.containers.lock().expect("a lock").get_mut("id1") {
            status.state = ContainerState::Exited;
        }
        self.runtime.tell(&ContainerEvent {
            container_id: "id1".into(),
            pod_sandbox_id: "sandbox".into(),
            container_event_type: ContainerEventType::Stopped,
            created_at: 0,
        });
    }

    /// `None`, loudly, where there is no kubectl.
    fn kubectl(&self, arguments: &[&str]) -> Option<Command> {
        if Command::new("kubectl").args(["version", "--client"]).stdout(Stdio::null()).status().is_err() {
            skipped("kubectl is not on the PATH");
            return None;
        }
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.server.kubeconfig()).args(arguments);
        command.env("HOME", self.server.folder()).env_remove("KUBECONFIG").stdin(Stdio::null());
        Some(command)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn running(log: &std::path::Path) -> ContainerStatus {
    ContainerStatus {
        id: "id1".into(),
        pod_sandbox_id: "sandbox".into(),
        metadata: ContainerMetadata { name: "main".into(), attempt: 0 },
        state: ContainerState::Running,
        created_at: 0,
        started_at: Some(0),
        finished_at: None,
        exit_code: 0,
        image: String::new(),
        image_ref: String::new(),
        reason: String::new(),
        message: String::new(),
        labels: Default::default(),
        annotations: Default::default(),
        mounts: Vec::new(),
        log_path: log.to_string_lossy().into_owned(),
        resources: Default::default(),
        pid: None,
    }
}

/// Registers a node at the agent's address, and a pod that runs on it.
async fn pod(server: &TestServer, address: SocketAddr) -> Pod {
    let client = server.client();
    let mut node = client.post("/api/v1/nodes", &json!({"metadata": {"name": "n1"}})).await.expect(201);
    node["status"] = json!({
        "addresses": [{"type": "InternalIP", "address": address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}},
        "declaredFeatures": ["ExtendWebSocketsToKubelet"],
    });
    client.put("/api/v1/nodes/n1/status", &node).await.expect(200);
    let namespace = "/api/v1/namespaces/default";
    client.post(&format!("{namespace}/serviceaccounts"), &json!({"metadata": {"name": "default"}})).await.expect(201);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [
        {"name": "main", "image": "i"}, {"name": "other", "image": "i"}]}});
    let mut pod = client.post(&format!("{namespace}/pods"), &pod).await.expect(201);
    pod["status"]["phase"] = json!("Running");
    pod["status"]["containerStatuses"] = json!([{"name": "other", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    let pod = client.put(&format!("{namespace}/pods/p/status"), &pod).await.expect(200);
    serde_json::from_value(pod).expect("a pod")
}

/// Off the threads that serve.
async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().expect("kubectl runs")).await.expect("it ends")
}

async fn text(command: Command) -> String {
    let output = output(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_logs() {
    let fixture = Fixture::new().await;
    fixture.write(&["one", "two", "three"]);
    let Some(all) = fixture.kubectl(&["logs", "p", "-c", "main"]) else { return };
    assert_eq!(text(all).await, "one\ntwo\nthree\n");
    let logs = |more: &[&str]| fixture.kubectl(&[&["logs", "p", "-c", "main"], more].concat()).expect("kubectl");
    assert_eq!(text(logs(&["--tail=1"])).await, "three\n");
    assert_eq!(text(logs(&["--limit-bytes=5"])).await, "one\nt");
    assert_eq!(text(logs(&["--since=1s"])).await, "");
    assert_eq!(text(logs(&["--timestamps", "--tail=1"])).await, "2026-01-01T00:00:00.000000000Z three\n");
    let refused = output(logs(&["--previous"])).await;
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("previous terminated container \"main\" in pod \"p\" not found"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_followed_until_the_container_ends() {
    let fixture = Fixture::new().await;
    fixture.write(&["one"]);
    let admin = fixture.client(Trust::admin(&fixture.server.authority()));
    let request = |path: &str| Request::get(path.to_owned()).body(Default::default()).expect("a request");
    let answer =
        admin.begin(request("/containerLogs/default/p/main?follow=true&tailLines=1")).await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    let mut next = async || {
        use http_body_util::BodyExt;
        loop {
            let frame = body.frame().await?.expect("more of the body").into_data().expect("data");
            // The last frame may be empty.
            if !frame.is_empty() {
                return Some(String::from_utf8(frame.to_vec()).expect("text"));
            }
        }
    };
    assert_eq!(next().await.as_deref(), Some("one\n"));
    fixture.write(&["two"]);
    assert_eq!(next().await.as_deref(), Some("two\n"));
    fs::rename(&fixture.log, fixture.server.folder().join("0.log.20260101-000000")).expect("it is rotated");
    fs::write(&fixture.log, "").expect("a new log");
    fixture.write(&["three"]);
    assert_eq!(next().await.as_deref(), Some("three\n"));
    fixture.write(&["last"]);
    fixture.end();
    assert_eq!(next().await.as_deref(), Some("last\n"));
    assert_eq!(next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_runs_commands_and_attaches() {
    let fixture = Fixture::new().await;
    let script = "echo out; echo err >&2; exit 3";
    let Some(exec) = fixture.kubectl(&["exec", "p", "-c", "main", "--", "sh", "-c", script]) else { return };
    let done = output(exec).await;
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!((&*out, done.status.code()), ("out\n", Some(3)));
    assert!(err.starts_with("err\n"), "{err}");
    let file = fixture.server.folder().join("input");
    fs::write(&file, "typed").expect("a file");
    let mut piped = fixture.kubectl(&["exec", "-i", "p", "-c", "main", "--", "cat"]).expect("kubectl");
    piped.stdin(fs::File::open(&file).expect("a file"));
    assert_eq!(text(piped).await, "typed");
    let mut attached = fixture.kubectl(&["attach", "-i", "p", "-c", "main"]).expect("kubectl");
    attached.stdin(fs::File::open(&file).expect("a file"));
    assert!(text(attached).await.contains("attached: typed"));
    let none = output(fixture.kubectl(&["exec", "p", "-c", "other", "--", "true"]).expect("kubectl")).await;
    let why = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(why.contains("container not found (\"other\")"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_forwards_ports() {
    use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
    let fixture = Fixture::new().await;
    let Some(command) = fixture.kubectl(&[]) else { return };
    drop(command);
    let behind = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let port = behind.local_addr().expect("its address").port();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = behind.accept().await {
            let _ = connection.write_all(b"hello").await;
        }
    });
    let ports = format!(":{port}");
    let command = fixture.kubectl(&["port-forward", "pod/p", &ports, "--address", "127.0.0.1"]).expect("kubectl");
    let mut kubectl =
        tokio::process::Command::from(command).stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("kubectl runs");
    let mut lines = BufReader::new(kubectl.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("it says something").expect("a line");
    let local = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split(' ').next()).expect("a port").to_owned();
    let mut connection = TcpStream::connect(format!("127.0.0.1:{local}")).await.expect("it is forwarded");
    let mut said = String::new();
    connection.read_to_string(&mut said).await.expect("it is answered");
    assert_eq!(said, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_are_answered_who_may() {
    let fixture = Fixture::new().await;
    let authority = fixture.server.authority();
    let get = |client: Client, path: &'static str| async move { client.http1().get(path).await };
    let nobody = fixture.client(Trust::nobody(&authority));
    assert_eq!(get(nobody.clone(), "/pods").await.code, 401);
    assert_eq!(get(nobody.bearing("nonsense"), "/pods").await.code, 401);
    let bob = fixture.client(Trust::user(&authority, "bob", "people"));
    let refused = get(bob.clone(), "/metrics/resource").await;
    assert_eq!(refused.code, 403);
    assert_eq!(refused.text(), "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[metrics])\n");
    assert_eq!(
        get(bob, "/pods").await.text(),
        "Forbidden (user=bob, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "scrape"}, "rules": [
        {"apiGroups": [""], "resources": ["nodes/metrics", "nodes/pods"], "verbs": ["get"]}]});
    fixture.server.client().post(&format!("{rbac}/clusterroles"), &role).await.expect(201);
    let binding = json!({"metadata": {"name": "scrape"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scrape"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    fixture.server.client().post(&format!("{rbac}/clusterrolebindings"), &binding).await.expect(201);
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = fixture.server.client().post(path, &json!({"spec": {}})).await.expect(201);
    let scraper = nobody.bearing(token["status"]["token"].as_str().expect("a token"));
    assert_eq!(get(scraper.clone(), "/metrics/resource").await.code, 200);
    assert_eq!(get(scraper.clone(), "/pods").await.code, 200);
    assert_eq!(get(scraper, "/stats/summary").await.code, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_has_its_answer() {
    let fixture = Fixture::new().await;
    let admin = fixture.client(Trust::admin(&fixture.server.authority()));
    for http1 in [true, false] {
        let client = if http1 { admin.http1() } else { admin.clone() };
        let get = async |path: &str| client.get(path).await;
        let pods = get("/pods").await;
        assert_eq!(pods.json()["items"][0]["metadata"]["name"], "p");
        assert_eq!(get("/runningpods/").await.json()["items"], json!([]));
        let summary = get("/stats/summary").await.json();
        assert_eq!(summary["node"]["nodeName"], "n1");
        assert!(summary["node"]["memory"]["workingSetBytes"].as_u64() > Some(0), "{summary}");
        assert!(get("/metrics").await.text().contains("kubelet_node_name{node=\"n1\"} 1\n"));
        assert!(get("/metrics/cadvisor").await.text().contains("machine_cpu_cores "));
        assert_eq!(get("/healthz").await.text(), "ok");
        assert_eq!(get("/configz").await.json()["kubeletconfig"]["clusterDomain"], "cluster.local");
        for (path, code, why) in [
            ("/checkpoint/default/p/main", 404, "no checkpoints"),
            ("/nothing", 404, "404 page not found"),
            ("/containerLogs/default/none/main", 404, "pod \"none\" does not exist"),
            ("/containerLogs/default/p/none", 404, "container \"none\" not found in pod \"p\""),
            ("/containerLogs/default/p/other", 400, "is waiting to start: trying and failing to pull image"),
            ("/containerLogs/default/p/main?tailLines=x", 400, "tailLines must be a number"),
            ("/exec/default/none/main?command=a&output=1", 404, "pod does not exist"),
            ("/exec/default/p/other-uid/main?command=a&output=1", 404, "pod does not exist"),
            ("/exec/default/p/main?output=1", 400, "a command is required"),
        ] {
            let answer = get(path).await;
            assert_eq!(answer.code, code, "{path}: {}", answer.text());
            assert!(answer.text().contains(why), "{path}: {}", answer.text());
        }
    }
    let run = admin.send(http::Method::POST, "/run/default/p/main?cmd=echo%20a", &[], "").await;
    assert_eq!((run.code, run.text()), (200, "echo a".into()));
}
