//! The binary as its users run it.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use api_server::serving::authority::Authority;
use serde_json::json;
use testing::client::{Client, Trust};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn ferry(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = ferry(arguments).output().expect("ferry runs");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// A cluster that runs until it is told to stop.
struct Cluster {
    process: Child,
    address: SocketAddr,
}

impl Cluster {
    fn up(data: &Path, more: &[&str]) -> Self {
        let folder = data.to_str().expect("a path");
        let arguments = ["up", "--control-plane-only", "--data-dir", folder, "--api-port", "0"];
        let mut process = ferry(&arguments).args(more).stderr(Stdio::piped()).spawn().expect("ferry runs");
        let mut lines = BufReader::new(process.stderr.take().expect("its words")).lines();
        let ready = lines.next().expect("a line").expect("text");
        let address = ready.strip_prefix("API ready on https://").and_then(|rest| rest.split(' ').next());
        let address = address.and_then(|a| a.parse().ok()).unwrap_or_else(|| panic!("{ready}"));
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address }
    }

    fn client(&self, data: &Path) -> Client {
        let authority = Authority::open(&data.join("pki")).expect("the cluster's authority");
        Client::new(self.address, Trust::admin(&authority))
    }

    /// How it ended, which it must within ten seconds.
    fn ended(&mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("its status") {
                return status.code();
            }
            assert!(since.elapsed() < Duration::from_secs(10), "it does not stop");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn terminate(&mut self) -> Option<i32> {
        let told = Command::new("kill").arg("-TERM").arg(self.process.id().to_string()).status();
        assert!(told.expect("kill runs").success());
        self.ended()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// The client must be able to answer while the test waits for the server to stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cluster_comes_and_goes() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let outside = folder.path().join("elsewhere/config");
    let mut cluster = Cluster::up(&data, &[]);
    let kubeconfig = fs::metadata(data.join("kubeconfig.yaml")).expect("a kubeconfig");
    assert_eq!(kubeconfig.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(data.join("pki/ca.key")).expect("a key").permissions().mode() & 0o777, 0o600);
    let client = cluster.client(&data);
    let object = json!({"metadata": {"name": "kept"}, "data": {"a": "1"}});
    let made = client.post(MAPS, &object).await.expect(201);

    // A folder has one cluster at a time.
    let (code, words) = run(&["up", "--data-dir", data.to_str().expect("a path"), "--api-port", "0"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("hint:") || words.contains("in use"), "{words}");

    // It stops in order even while somebody watches.
    let mut watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await.expect("a watch");
    assert_eq!(watch.told().await.1, "kept");
    assert_eq!(cluster.terminate(), Some(0));
    assert!(!data.join("ferry.pid").exists());

    let mut cluster = Cluster::up(&data, &["--kubeconfig", outside.to_str().expect("a path")]);
    let found = cluster.client(&data).get(&format!("{MAPS}/kept")).await.expect(200);
    assert_eq!(found, made);
    assert!(outside.exists());
    let (code, words) = run(&["down", "--purge", "--data-dir", data.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(cluster.ended(), Some(0));
    assert!(!data.exists() && !outside.exists(), "every trace is gone");
    let (code, words) = run(&["down", "--purge", "--data-dir", data.to_str().expect("a path")]);
    assert_eq!((code, words.contains("no cluster is running")), (Some(0), true), "{words}");
}

#[tokio::test]
async fn a_crash_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::up(folder.path(), &[]);
    let client = cluster.client(folder.path());
    for i in 0..20 {
        client.post(MAPS, &json!({"metadata": {"name": format!("c{i}")}})).await.expect(201);
    }
    cluster.process.kill().expect("killed");
    assert_eq!(cluster.ended(), None);
    let cluster = Cluster::up(folder.path(), &[]);
    let list = cluster.client(folder.path()).get(MAPS).await.expect(200);
    assert_eq!(list["items"].as_array().map(Vec::len), Some(20));
}

#[test]
fn mistakes_get_a_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let at = data.to_str().expect("a path");
    for (arguments, code, wanted) in [
        (vec!["up", "--disable", "wheels", "--data-dir", at], 1, "hint: --disable knows"),
        (vec!["up", "--store", "wheels", "--data-dir", at], 1, "--store"),
        (vec!["up", "--store", "etcd://", "--data-dir", at], 1, "--store"),
        (vec!["up", "--api-port", "99999"], 2, "99999"),
        (vec!["sail"], 2, "sail"),
        (vec![], 2, "Usage"),
    ] {
        let (got, words) = run(&arguments);
        assert_eq!((got, words.contains(wanted)), (Some(code), true), "{arguments:?}: {words}");
    }
    assert!(!data.exists(), "nothing is made for a mistake");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let (code, words) = run(&["up", "--data-dir", at, "--api-port", &port]);
    assert_eq!((code, words.contains("hint:")), (Some(1), true), "{words}");

    // A folder that is not ours is left alone.
    fs::write(folder.path().join("precious"), "x").expect("a file");
    let (code, words) = run(&["down", "--purge", "--data-dir", folder.path().to_str().expect("a path")]);
    assert_eq!((code, words.contains("hint:")), (Some(1), true), "{words}");
    assert!(folder.path().join("precious").exists());
}
