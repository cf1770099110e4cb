//! The binary as its users run it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use api_server::serving::authority::Authority;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
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

/// A start that does not succeed.
fn refused_up(data: &Path, more: &[&str]) -> (Option<i32>, String) {
    let folder = data.to_str().expect("a path");
    run(&[&["up", "--control-plane-only", "--data-dir", folder, "--api-port", "0"], more].concat())
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

    /// The numbers in a line of one of the process's files in /proc.
    fn told_by_linux(&self, file: &str, line: &str) -> Vec<u64> {
        let text = fs::read_to_string(format!("/proc/{}/{file}", self.process.id())).expect("it runs");
        let found = text.lines().find_map(|l| l.strip_prefix(line)).unwrap_or_else(|| panic!("no {line} in {text}"));
        found.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    }

    /// How it ended, which it must soon: it waits ten seconds for whoever does not finish, and no longer.
    fn ended(&mut self) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("its status") {
                return status.code();
            }
            assert!(since.elapsed() < Duration::from_secs(30), "it does not stop");
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
    let (code, words) = refused_up(&data, &[]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("hint: stop it with: ferry down"), "{words}");

    // It stops in order even while somebody watches.
    let mut watch = client.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await.expect("a watch");
    assert_eq!(watch.told().await.1, "kept");
    assert_eq!(cluster.terminate(), Some(0));
    assert!(!data.join("ferry.pid").exists());

    let mut cluster = Cluster::up(&data, &["--kubeconfig", outside.to_str().expect("a path")]);
    let found = cluster.client(&data).get(&format!("{MAPS}/kept")).await.expect(200);
    assert_eq!(found, made);
    assert!(outside.exists());
    // A kubeconfig that somebody else made is left alone.
    let precious = folder.path().join("precious");
    fs::write(&precious, "apiVersion: v1\nclusters: []\n").expect("a file");
    let at = precious.to_str().expect("a path");
    let (code, words) = refused_up(&folder.path().join("another"), &["--kubeconfig", at]);
    assert_eq!((code, words.contains("hint:")), (Some(1), true), "{words}");
    assert!(fs::read_to_string(&precious).expect("it is there").contains("clusters: []"));
    // Also where one of the cluster's own was before.
    assert_eq!(cluster.terminate(), Some(0));
    let moved = folder.path().join("moved");
    fs::rename(&outside, &moved).expect("moved");
    fs::copy(&precious, &outside).expect("a copy");
    let (code, words) = refused_up(&data, &["--kubeconfig", outside.to_str().expect("a path")]);
    assert_eq!((code, words.contains("did not write it")), (Some(1), true), "{words}");
    fs::rename(&moved, &outside).expect("moved back");
    let mut cluster = Cluster::up(&data, &["--kubeconfig", outside.to_str().expect("a path")]);
    let (code, words) = run(&["down", "--purge", "--data-dir", data.to_str().expect("a path")]);
    assert_eq!(code, Some(0), "{words}");
    assert_eq!(cluster.ended(), Some(0));
    assert!(!data.exists() && !outside.exists(), "every trace is gone");
    let (code, words) = run(&["down", "--purge", "--data-dir", data.to_str().expect("a path")]);
    assert_eq!((code, words.contains("no cluster is running")), (Some(0), true), "{words}");
}

/// Requests that are open are waited for, but not by who says so twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn told_twice_it_stops_at_once() {
    use tokio::io::AsyncWriteExt;
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::up(folder.path(), &[]);
    let mut request = cluster.client(folder.path()).connect(b"http/1.1").await.expect("a connection");
    let head =
        format!("POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{{");
    request.write_all(head.as_bytes()).await.expect("sent");
    request.flush().await.expect("sent");
    // So that the request has come for sure.
    cluster.client(folder.path()).get("/livez").await;
    let tell = |signal: &str| {
        let told = Command::new("kill").arg(signal).arg(cluster.process.id().to_string()).status();
        assert!(told.expect("kill runs").success());
    };
    tell("-TERM");
    tokio::time::sleep(Duration::from_secs(1)).await;
    tell("-INT");
    let since = Instant::now();
    assert_eq!(cluster.ended(), Some(1), "it says that it could not finish");
    assert!(since.elapsed() < Duration::from_secs(5), "it waited all the same");
    // The next one goes on from there.
    drop(Cluster::up(folder.path(), &[]));
}

#[tokio::test]
async fn idle_connections_cost_little() {
    const CONNECTIONS: u64 = 200;
    let folder = tempfile::tempdir().expect("a folder");
    // Nothing but connections is to grow.
    let cluster = Cluster::up(folder.path(), &["--disable", "controllers"]);
    let client = cluster.client(folder.path());
    assert_eq!(client.get("/livez").await.text(), "ok");
    let before = cluster.told_by_linux("status", "VmRSS:")[0];
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(client.connect(b"http/1.1").await.expect("a connection"));
    }
    let grown = cluster.told_by_linux("status", "VmRSS:")[0].saturating_sub(before);
    assert!(grown < 64 * CONNECTIONS, "{grown} kB for {CONNECTIONS} connections");
    assert_eq!(client.get("/livez").await.text(), "ok");
    // There may be as many as the system allows.
    let limits = cluster.told_by_linux("limits", "Max open files");
    assert_eq!(limits[0], limits[1], "the soft limit of files is the hard one");
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
    let names = list["items"].as_array().into_iter().flatten().filter_map(|item| item["metadata"]["name"].as_str());
    assert_eq!(names.filter(|name| name.starts_with('c')).count(), 20);
}

// As above: the client answers while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn controllers_run_unless_they_are_left_out() {
    const ACCOUNT: &str = "/api/v1/namespaces/default/serviceaccounts/default";
    let folder = tempfile::tempdir().expect("a folder");
    let mut cluster = Cluster::up(folder.path(), &["--disable", "controllers,scheduler"]);
    // A deletion that nobody completes.
    let client = cluster.client(folder.path());
    client.post("/api/v1/namespaces", &json!({"metadata": {"name": "going"}})).await.expect(201);
    let going = client.delete("/api/v1/namespaces/going").await.expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    client.get(ACCOUNT).await.refused(404);
    assert_eq!(cluster.terminate(), Some(0));

    let mut cluster = Cluster::up(folder.path(), &[]);
    let client = cluster.client(folder.path());
    for _ in 0..6000 {
        let made = client.get(ACCOUNT).await.code == 200;
        if made && client.get("/api/v1/namespaces/going").await.code == 404 {
            assert_eq!(cluster.terminate(), Some(0));
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the controllers do nothing");
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const HIDDEN: &str = "correct-horse-battery-staple";

async fn make_secret(client: &Client, name: &str) {
    let secret = json!({"metadata": {"name": name}, "stringData": {"password": HIDDEN}});
    client.post(SECRETS, &secret).await.expect(201);
}

async fn has_secret(client: &Client, name: &str) {
    let secret = client.get(&format!("{SECRETS}/{name}")).await.expect(200);
    assert_eq!(secret["data"]["password"], STANDARD.encode(HIDDEN));
}

/// The files below a folder that contain a text, whole or as base64.
fn files_with(folder: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
            continue;
        }
        let bytes = fs::read(&path).expect("a file");
        let has = |wanted: &str| bytes.windows(wanted.len()).any(|window| window == wanted.as_bytes());
        if has(text) || has(STANDARD.encode(text).trim_end_matches('=')) {
            found.push(path);
        }
    }
    found
}

fn configuration(keys: &[(&str, u8)]) -> String {
    let keys = keys.iter().map(|(name, byte)| json!({"name": name, "secret": STANDARD.encode([*byte; 32])}));
    let providers = json!([{"aesgcm": {"keys": keys.collect::<Vec<_>>()}}]);
    let resources = json!([{"resources": ["secrets", "configmaps"], "providers": providers}]);
    json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": resources})
        .to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn secrets_are_not_in_the_files_in_the_clear() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path();
    let mut cluster = Cluster::up(data, &[]);
    let client = cluster.client(data);
    make_secret(&client, "s").await;
    client.post(MAPS, &json!({"metadata": {"name": "open"}, "data": {"a": "plain-as-day"}})).await.expect(201);
    has_secret(&client, "s").await;
    assert_eq!(files_with(data, HIDDEN), Vec::<PathBuf>::new());
    assert!(!files_with(data, "plain-as-day").is_empty(), "the test would find it");
    assert_eq!(cluster.terminate(), Some(0));
    assert_eq!(files_with(data, HIDDEN), Vec::<PathBuf>::new(), "nor after everything is settled");
    assert!(!files_with(data, "plain-as-day").is_empty());
    let key = data.join("encryption.yaml");
    assert_eq!(fs::metadata(&key).expect("a key").permissions().mode() & 0o777, 0o600);

    let cluster = Cluster::up(data, &[]);
    has_secret(&cluster.client(data), "s").await;
    drop(cluster);
    // Without the key nothing can be read, and the server says so.
    fs::remove_file(&key).expect("removed");
    let (code, words) = refused_up(data, &[]);
    assert_eq!((code, words.contains("which is not configured")), (Some(1), true), "{words}");
}

/// The whole rotation: the new key behind, then in front, then alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn keys_rotate() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, file) = (folder.path().join("data"), folder.path().join("keys.json"));
    let mut before = BTreeMap::new();
    let arguments = ["--encryption-provider-config", file.to_str().expect("a path")];
    for (round, keys) in [
        &[("one", 1)][..],
        &[("one", 1), ("two", 2)],
        &[("two", 2), ("one", 1)],
        // Everything has been rewritten meanwhile, so the old key can go.
        &[("two", 2)],
    ]
    .into_iter()
    .enumerate()
    {
        fs::write(&file, configuration(keys)).expect("a configuration");
        let mut cluster = Cluster::up(&data, &arguments);
        let client = cluster.client(&data);
        for earlier in 0..round {
            has_secret(&client, &format!("s{earlier}")).await;
        }
        make_secret(&client, &format!("s{round}")).await;
        let mut versions = versions(&client).await;
        // A rewrite is a write like any other: versions move.
        let since = Instant::now();
        while round == 2 && before.iter().any(|(name, version)| versions[name] == *version) {
            assert!(since.elapsed() < Duration::from_secs(30), "nothing is rewritten");
            tokio::time::sleep(Duration::from_millis(20)).await;
            versions = self::versions(&client).await;
        }
        before = versions;
        assert_eq!(cluster.terminate(), Some(0));
    }
    assert_eq!(files_with(&data, HIDDEN), Vec::<PathBuf>::new());
}

/// The versions of all Secrets, by name.
async fn versions(client: &Client) -> BTreeMap<String, String> {
    let list = client.get(SECRETS).await.expect(200);
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|object| (text(object, "name"), text(object, "resourceVersion"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn secrets_are_not_in_etcds_files_in_the_clear() {
    if !storage_etcd::testing::etcd_is_installed() {
        return;
    }
    let etcd = storage_etcd::testing::Server::start(&[]).await.expect("etcd starts");
    let folder = tempfile::tempdir().expect("a folder");
    let store = format!("etcd://{}", etcd.endpoint());
    let first = Cluster::up(&folder.path().join("a"), &["--store", &store]);
    let client = first.client(&folder.path().join("a"));
    make_secret(&client, "s").await;
    client.post(MAPS, &json!({"metadata": {"name": "open"}, "data": {"a": "plain-as-day"}})).await.expect(201);
    assert_eq!(files_with(etcd.folder(), HIDDEN), Vec::<PathBuf>::new());
    assert!(!files_with(etcd.folder(), "plain-as-day").is_empty(), "the test would find it");
    // A second server needs the key of the first.
    let (second, key) = (folder.path().join("b"), folder.path().join("a/encryption.yaml"));
    let key = key.to_str().expect("a path");
    let (code, words) = refused_up(&second, &["--store", &store]);
    assert_eq!((code, words.contains("which is not configured")), (Some(1), true), "{words}");
    let sharing = Cluster::up(&second, &["--store", &store, "--encryption-provider-config", key]);
    has_secret(&sharing.client(&second), "s").await;
}

/// Who decides is configured by flags or by a file, and a mistake in it is told at once.
#[tokio::test]
async fn judges_are_configured() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let file = folder.path().join("authorization.yaml");
    let write = |authorizers: &str| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n";
        fs::write(&file, format!("{head}{authorizers}")).expect("a file");
    };
    let path = file.to_str().expect("a path");
    let (code, said) = refused_up(&data, &["--authorization-mode", "ABAC,RBAC"]);
    assert_eq!(code, Some(1));
    assert!(said.contains(r#"there is no authorization mode "ABAC""#), "{said}");
    write("- {type: RBAC, name: a}\n- {type: RBAC, name: a}\n");
    let (code, said) = refused_up(&data, &["--authorization-config", path]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("authorizers[1].type: Duplicate") && said.contains("authorizers[1].name: Duplicate"),
        "{said}"
    );

    write("- {type: AlwaysAllow, name: open}\n");
    let cluster = Cluster::up(&data, &["--authorization-config", path]);
    let authority = Authority::open(&data.join("pki")).expect("the cluster's authority");
    let eve = Client::new(cluster.address, Trust::user(&authority, "eve", "x"));
    eve.get("/api/v1/secrets").await.expect(200);
}

#[test]
fn mistakes_get_a_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let at = data.to_str().expect("a path");
    for (arguments, code, wanted) in [
        (vec!["up", "--disable", "wheels", "--data-dir", at], 1, "hint: --disable knows"),
        (vec!["up", "--control-plane-only", "--store", "wheels", "--data-dir", at], 1, "--store"),
        (vec!["up", "--control-plane-only", "--store", "etcd://", "--data-dir", at], 1, "--store"),
        (vec!["up", "--api-port", "99999"], 2, "99999"),
        (vec!["up", "--control-plane-only", "--nodes", "2"], 2, "--control-plane-only"),
        (vec!["sail"], 2, "sail"),
        (vec![], 2, "Usage"),
    ] {
        let (got, words) = run(&arguments);
        assert_eq!((got, words.contains(wanted)), (Some(code), true), "{arguments:?}: {words}");
    }
    assert!(!data.exists(), "nothing is made for a mistake");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("its address").port().to_string();
    let (code, words) = run(&["up", "--control-plane-only", "--data-dir", at, "--api-port", &port]);
    let words = words.lines().collect::<Vec<_>>();
    assert!(words.last().is_some_and(|last| last.starts_with("hint: another program listens there")), "{words:?}");
    assert_eq!(code, Some(1));
    let (code, words) = refused_up(&data, &["--bind", "192.0.2.1"]);
    assert_eq!((code, words.contains("hint: this machine does not have that address")), (Some(1), true), "{words}");

    // What such a start has left can be removed, also where it could not even begin.
    let (code, words) = run(&["up", "--detach", "--control-plane-only", "--data-dir", at, "--api-port", &port]);
    assert_eq!(code, Some(1));
    assert!(words.contains("hint: another program listens there") && words.contains("more is in"), "{words}");
    let (code, words) = run(&["down", "--purge", "--data-dir", at]);
    assert_eq!((code, data.exists()), (Some(0), false), "{words}");
    let (code, words) = run(&["status", "--data-dir", at]);
    assert_eq!((code, words.contains("hint: ")), (Some(1), true), "{words}");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a file");
    let (code, words) = refused_up(&file.join("data"), &[]);
    assert_eq!((code, words.contains("hint: name a folder that may be written")), (Some(1), true), "{words}");

    // A folder that is not ours is left alone.
    fs::write(folder.path().join("precious"), "x").expect("a file");
    let (code, words) = run(&["down", "--purge", "--data-dir", folder.path().to_str().expect("a path")]);
    assert_eq!((code, words.contains("hint:")), (Some(1), true), "{words}");
    assert!(folder.path().join("precious").exists());
}

/// `cargo run`, as the README says it, means this binary.
#[test]
fn the_workspace_runs_ferry() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let arguments = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(folder).output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata");
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let default: Vec<&str> = packages.filter_map(|package| package["default_run"].as_str()).collect();
    assert_eq!(default, ["ferry"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn all_addresses_can_be_listened_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let cluster = Cluster::up(&data, &["--bind", "0.0.0.0"]);
    assert!(cluster.address.ip().is_loopback(), "what is told can be reached: {}", cluster.address);
    let kubeconfig = fs::read_to_string(data.join("kubeconfig.yaml")).expect("a kubeconfig");
    assert!(kubeconfig.contains(&format!("server: https://{}\n", cluster.address)));
    cluster.client(&data).get("/api/v1/namespaces/default").await.expect(200);
}
