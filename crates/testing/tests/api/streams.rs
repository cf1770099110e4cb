//! Logs, exec, attach, port-forward and copies with the real kubectl, through the server to a stand-in agent.
//!
//! Everything runs in each protocol that kubectl has, towards agents that speak WebSockets and agents that do not.

use std::{
    net::{IpAddr, Ipv4Addr},
    process::{Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use testing::{StandInAgent, TestServer, skipped};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

/// A server with a pod on a node.
pub struct Cluster {
    pub server: TestServer,
    pub agent: StandInAgent,
}

/// How kubectl speaks.
const WEBSOCKET: &[(&str, &str)] = &[];
const SPDY: &[(&str, &str)] =
    &[("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false"), ("KUBECTL_PORT_FORWARD_WEBSOCKETS", "false")];

impl Cluster {
    pub async fn new(speaks_websocket: bool) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), speaks_websocket).await
    }

    pub async fn at(address: IpAddr, speaks_websocket: bool) -> Self {
        let server = TestServer::embedded().await;
        let agent = StandInAgent::start(&server, "node-1", address, speaks_websocket).await;
        let client = server.client();
        let account = json!({"metadata": {"name": "default"}});
        client.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
        let cluster = Self { server, agent };
        cluster.pod("p", &["c"], Some("node-1"), address).await;
        cluster
    }

    /// A pod that runs, as far as its status goes.
    pub async fn pod(&self, name: &str, containers: &[&str], node: Option<&str>, address: IpAddr) {
        let client = self.server.client();
        let containers: Vec<Value> = containers
            .iter()
            .map(|name| json!({"name": name, "image": "registry.example/app:1", "stdin": true}))
            .collect();
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = node.into();
        }
        let mut made = client.post("/api/v1/namespaces/default/pods", &pod).await.expect(201);
        made["status"] = json!({
            "phase": "Running", "podIP": address.to_string(), "podIPs": [{"ip": address.to_string()}],
            "conditions": [{"type": "Ready", "status": "True"}],
        });
        client.put(&format!("/api/v1/namespaces/default/pods/{name}/status"), &made).await.expect(200);
    }

    fn command(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(self.server.kubeconfig()).args(arguments);
        command.env("HOME", self.server.folder()).env_remove("KUBECONFIG").envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn kubectl(&self, arguments: &[&str], environment: &[(&str, &str)], input: &[u8]) -> Output {
        let mut child = self.command(arguments, environment).stdin(Stdio::piped()).spawn().expect("kubectl runs");
        let (mut stdin, input) = (child.stdin.take().expect("its input"), input.to_vec());
        let typing = tokio::spawn(async move {
            let _ = stdin.write_all(&input).await;
        });
        let ended = tokio::time::timeout(Duration::from_secs(120), child.wait_with_output()).await;
        typing.abort();
        ended.unwrap_or_else(|_| panic!("kubectl {arguments:?} does not end")).expect("kubectl runs")
    }

    /// What kubectl prints, if all is well.
    async fn prints(&self, arguments: &[&str], environment: &[(&str, &str)], input: &[u8]) -> String {
        let output = self.kubectl(arguments, environment, input).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "kubectl {arguments:?} {environment:?}\n{out}{err}");
        out.into_owned()
    }
}

fn kubectl_is_installed() -> bool {
    let installed = std::process::Command::new("kubectl").args(["version", "--client"]).stdout(Stdio::null()).status();
    if installed.is_err() {
        skipped("kubectl is not on the PATH");
    }
    installed.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs() {
    if !kubectl_is_installed() {
        return;
    }
    let cluster = Cluster::new(false).await;
    let all: String = (1..=10).map(|i| format!("current c {i}\n")).collect();
    assert_eq!(cluster.prints(&["logs", "p"], &[], b"").await, all);
    assert_eq!(cluster.prints(&["logs", "p", "--tail=2"], &[], b"").await, "current c 9\ncurrent c 10\n");
    assert!(cluster.prints(&["logs", "p", "--previous"], &[], b"").await.starts_with("previous c 1\n"));
    assert_eq!(cluster.prints(&["logs", "p", "--limit-bytes=7"], &[], b"").await, "current");
    cluster.prints(&["logs", "p", "--since=5s", "--timestamps"], &[], b"").await;
    let seen = cluster.agent.seen();
    assert_eq!(seen.last().map(String::as_str), Some("GET /containerLogs/default/p/c?timestamps=true&sinceSeconds=5"));

    let mut follower = cluster.command(&["logs", "-f", "p", "--tail=1"], &[]).spawn().expect("kubectl runs");
    let mut lines = BufReader::new(follower.stdout.take().expect("its output")).lines();
    assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("current c 10"));
    cluster.agent.followed_by(1).await;
    assert_eq!(cluster.agent.tell_followers("something new"), 1);
    assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("something new"));
    follower.kill().await.expect("it ends");
    cluster.agent.followed_by(0).await;
}

async fn each_way(test: impl AsyncFn(&Cluster, &'static [(&'static str, &'static str)])) {
    if !kubectl_is_installed() {
        return;
    }
    for speaks_websocket in [false, true] {
        let cluster = Cluster::new(speaks_websocket).await;
        for way in [WEBSOCKET, SPDY] {
            test(&cluster, way).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exec() {
    each_way(async |cluster, way| {
        assert_eq!(cluster.prints(&["exec", "p", "--", "echo", "hello", "it's me"], way, b"").await, "hello it's me\n");
        assert_eq!(cluster.prints(&["exec", "-i", "p", "--", "cat"], way, b"typed").await, "typed");

        let output =
            cluster.kubectl(&["exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3"], way, b"").await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "out\n"));
        assert_eq!(text(&output.stderr), "err\ncommand terminated with exit code 3\n");

        let output = cluster.kubectl(&["exec", "p", "--", "/does/not/exist"], way, b"").await;
        assert!(text(&output.stderr).contains("cannot run /does/not/exist"), "{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(1));
    })
    .await;
}

/// A file of 10 MiB in which every byte has its place.
fn large() -> Vec<u8> {
    (0..10u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_files_arrive_whole() {
    let large = large();
    each_way(async |cluster, way| {
        let path = cluster.server.folder().join("large");
        std::fs::write(&path, &large).expect("a file");
        let path = path.to_str().expect("a path");
        let output = cluster.kubectl(&["exec", "p", "--", "cat", path], way, b"").await;
        assert!(output.status.success() && output.stdout == large, "{} bytes arrived", output.stdout.len());
        let output = cluster.kubectl(&["exec", "-i", "p", "--", "cat"], way, &large).await;
        assert!(output.status.success() && output.stdout == large, "{} bytes came back", output.stdout.len());

        let (there, back) = (cluster.server.folder().join("there"), cluster.server.folder().join("back"));
        let _ = std::fs::remove_file(&there);
        let (remote, local) = (format!("p:{}", there.display()), back.display().to_string());
        cluster.prints(&["cp", path, &remote], way, b"").await;
        assert!(std::fs::read(&there).expect("the copy") == large);
        cluster.prints(&["cp", &remote, &local], way, b"").await;
        assert!(std::fs::read(&back).expect("the copy") == large);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attach() {
    each_way(async |cluster, way| {
        let said = cluster.prints(&["attach", "-i", "p"], way, b"hello").await;
        assert_eq!(said, "attached\nyou said: hello");
    })
    .await;
}

/// Begins to forward, and says to which port of this machine.
async fn forward(cluster: &Cluster, way: &[(&str, &str)], port: u16) -> (Child, u16) {
    let mut child = cluster.command(&["port-forward", "p", &format!(":{port}")], way).spawn().expect("kubectl runs");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("a line").expect("it says where it forwards from");
    let local = line.split(' ').find_map(|word| word.strip_prefix("127.0.0.1:")).and_then(|port| port.parse().ok());
    // It would be killed by its next line if nobody read it.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, local.unwrap_or_else(|| panic!("no port in {line:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn port_forward() {
    each_way(async |cluster, way| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let echoing = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut reader, mut writer) = stream.split();
                    let _ = tokio::io::copy(&mut reader, &mut writer).await;
                    let _ = writer.shutdown().await;
                });
            }
        });
        let (_kubectl, local) = forward(cluster, way, port).await;
        let mut connections = Vec::new();
        for i in 0..3u8 {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, local)).await.expect("a connection");
            stream.write_all(&[i; 1000]).await.expect("it is sent");
            connections.push(stream);
        }
        for (i, mut stream) in connections.into_iter().enumerate() {
            stream.shutdown().await.expect("its end is sent");
            let mut back = Vec::new();
            stream.read_to_end(&mut back).await.expect("it comes back");
            assert_eq!(back, [i as u8; 1000]);
        }
        echoing.abort();
    })
    .await;
}
