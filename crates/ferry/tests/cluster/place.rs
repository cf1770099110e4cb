//! A place for a whole cluster with real containers, and a shell in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// How long anything may take that is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The project's own folder.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A machine has room for one whole cluster at a time: for its addresses, and the ports of its node.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A place for a cluster of the test's own, which goes away with it.
pub struct Place {
    pub folder: TempDir,
    port: u16,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    /// None where pods cannot run, which is told.
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            testing::skipped("pods run as root only");
            return None;
        }
        if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
            testing::skipped("kubectl is not on the PATH");
            return None;
        }
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        Some(Self { folder: tempfile::tempdir().expect("a folder"), port, _alone: alone })
    }

    /// Runs a line as a shell does, in the project's folder. `cargo run` stands for the binary that is under test.
    pub fn shell(&self, line: &str) -> Output {
        let up = format!("ferry up --api-port {}", self.port);
        let line = line.replace("cargo run --release --", "ferry").replace("ferry up", &up);
        let binary = Path::new(env!("CARGO_BIN_EXE_ferry")).parent().expect("a folder").display().to_string();
        let path = format!("{binary}:{}", std::env::var("PATH").unwrap_or_default());
        Command::new("sh")
            .args(["-c", &line])
            .current_dir(project())
            .env("PATH", path)
            .env("FERRY_DATA_DIR", self.folder.path().join("data"))
            .env("KUBECONFIG", self.folder.path().join("data/kubeconfig.yaml"))
            .output()
            .expect("a shell")
    }

    /// The same, and it must succeed; what it printed.
    pub fn run(&self, line: &str) -> String {
        let output = self.shell(line);
        let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "$ {line}\n{told}{errors}\n{}", self.what_the_cluster_says());
        told.into_owned()
    }

    fn what_the_cluster_says(&self) -> String {
        let log = fs::read_to_string(self.folder.path().join("data/ferry.log")).unwrap_or_default();
        let pods =
            self.shell("kubectl get pods --all-namespaces -o wide; kubectl get events --all-namespaces | tail -20");
        format!("{log}\n{}", String::from_utf8_lossy(&pods.stdout))
    }

    /// Runs a line again until it prints what is wanted.
    pub fn until(&self, line: &str, wanted: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let output = self.shell(line);
            let told = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && wanted(&told) {
                return told;
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(began.elapsed() < PATIENCE, "$ {line}\n{told}{errors}\n{}", self.what_the_cluster_says());
            thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shell("ferry down --purge");
    }
}
