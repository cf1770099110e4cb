//! What the tests share: a runtime in a folder and a cgroup of its own, and an image with one static program.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use container_runtime::{Runtime, Settings, cgroups::Layout, services::*};
use tokio::sync::mpsc::UnboundedReceiver;

pub const IMAGE: &str = "ferry.local/tool";

/// Why real containers cannot be run here.
pub fn why_not() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".into());
    }
    if let Err(error) = Layout::detect() {
        return Some(error.to_string());
    }
    let tried = Command::new("unshare").args(["-m", "true"]).status();
    if !tried.is_ok_and(|status| status.success()) {
        return Some("needs namespaces".into());
    }
    tool().err()
}

/// The static program, compiled once.
pub fn tool() -> Result<PathBuf, String> {
    static TOOL: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let compile = || {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tool");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/containers/tool.c");
        let temporary = path.with_extension(std::process::id().to_string());
        let compiled = Command::new("cc").args(["-static", "-O1", "-w", source, "-o"]).arg(&temporary).output();
        match compiled {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(format!("needs a static libc: {}", String::from_utf8_lossy(&output.stderr))),
            Err(error) => return Err(format!("needs a C compiler: {error}")),
        }
        std::fs::rename(&temporary, &path).map_err(|error| error.to_string())?;
        Ok(path)
    };
    TOOL.get_or_init(compile).clone()
}

pub struct Fixture {
    pub root: PathBuf,
    pub cgroup: String,
}

/// Takes down whatever a test has left, and complains about it.
pub struct Guard {
    root: tempfile::TempDir,
    cgroup: String,
}

impl Fixture {
    pub fn new() -> (Self, Guard) {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let root = tempfile::tempdir().expect("a folder");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let cgroup = format!("/ferry-test-{}-{number}", std::process::id());
        (Self { root: root.path().to_owned(), cgroup: cgroup.clone() }, Guard { root, cgroup })
    }

    pub fn settings(&self) -> Settings {
        Settings { cgroup: self.cgroup.clone(), ..Settings::new(&self.root) }
    }

    /// A runtime with the image.
    pub async fn runtime(&self) -> Runtime {
        let runtime = self.open().await;
        runtime.import_executable(IMAGE, &tool().expect("the tool"), &[]).await.expect("the image is made");
        runtime
    }

    pub async fn open(&self) -> Runtime {
        Runtime::open(self.settings(), Arc::new(NoNetwork)).await.expect("the runtime opens")
    }

    pub fn pod(&self, name: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: PodSandboxMetadata { name: name.into(), uid: name.into(), namespace: "test".into(), attempt: 0 },
            hostname: name.into(),
            log_directory: self.root.join("logs").to_string_lossy().into_owned(),
            linux: LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/pod-{name}", self.cgroup),
                security_context: LinuxSandboxSecurityContext {
                    namespace_options: NamespaceOption { pid: NamespaceMode::Container, ..Default::default() },
                    ..Default::default()
                },
                ..Default::default()
            },
            ..Default::default()
        }
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(name)
    }
}

/// A container that runs the tool with these words.
pub fn container(name: &str, words: &[&str]) -> ContainerConfig {
    let mut config = ContainerConfig {
        metadata: ContainerMetadata { name: name.into(), attempt: 0 },
        image: IMAGE.into(),
        args: words.iter().map(|word| (*word).to_owned()).collect(),
        log_path: format!("{name}.log"),
        ..Default::default()
    };
    config.linux.security_context.namespace_options.pid = NamespaceMode::Container;
    config.linux.security_context.seccomp = SecurityProfile::RuntimeDefault;
    config
}

/// Creates and starts a container.
pub async fn start(runtime: &Runtime, pod: &str, config: ContainerConfig) -> String {
    let id = runtime.create_container(pod, config).await.expect("it is created");
    runtime.start_container(&id).await.expect("it starts");
    id
}

/// Waits for a container's exit by events, and returns its status.
pub async fn exited(runtime: &Runtime, events: &mut UnboundedReceiver<ContainerEvent>, id: &str) -> ContainerStatus {
    loop {
        let status = runtime.container_status(id).await.expect("it is known");
        if status.state == ContainerState::Exited {
            return status;
        }
        events.recv().await.expect("events go on");
    }
}

/// Runs a container to its end: exit code and log, without times.
pub async fn output(fixture: &Fixture, runtime: &Runtime, pod: &str, config: ContainerConfig) -> (i32, Vec<String>) {
    let mut events = runtime.events();
    let log = fixture.log(&config.log_path);
    let id = start(runtime, pod, config).await;
    let status = exited(runtime, &mut events, &id).await;
    (status.exit_code, lines(&log))
}

/// The lines of a log, without their times.
pub fn lines(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).expect("the log");
    text.lines().map(|line| line.split_once(' ').map_or("?", |(_, rest)| rest).to_owned()).collect()
}

/// Waits for a line in a log of a container that runs.
pub async fn wait_for_line(log: &Path, line: &str) {
    while !std::fs::read_to_string(log).is_ok_and(|text| text.contains(line)) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Guard {
    /// What is left after a test that says it has removed everything.
    pub fn left(root: &Path, cgroup: &str) -> Vec<String> {
        let root = root.to_string_lossy().into_owned();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let mut left: Vec<String> = mounts.lines().filter(|line| line.contains(&root)).map(String::from).collect();
        let layout = Layout::detect().expect("cgroups");
        let group = layout.group(cgroup);
        left.extend(group.child("shims").processes().iter().map(|pid| format!("shim {pid}")));
        for folder in ["sandboxes", "containers"] {
            let entries = std::fs::read_dir(Path::new(&root).join(folder)).expect("a folder");
            left.extend(entries.flatten().map(|entry| entry.path().display().to_string()));
        }
        let folders = match &layout {
            Layout::V1(hierarchies) => hierarchies.iter().map(|h| h.mount.clone()).collect(),
            Layout::V2(mount) => vec![mount.clone()],
        };
        for folder in folders {
            let entries =
                std::fs::read_dir(folder.join(cgroup.trim_start_matches('/'))).into_iter().flatten().flatten();
            let groups = entries.filter(|entry| entry.path().is_dir() && entry.file_name() != "shims");
            left.extend(groups.map(|entry| entry.path().display().to_string()));
        }
        left
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let layout = Layout::detect().expect("cgroups");
        let killed = layout.group(&self.cgroup).destroy(Duration::from_secs(20));
        let root = self.root.path().to_string_lossy().into_owned();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|point| point.starts_with(&root));
        // The latest first, since it may be on an earlier one.
        for point in points.collect::<Vec<_>>().into_iter().rev() {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
        if let Err(error) = killed {
            eprintln!("{error}");
        }
    }
}

/// The process of a pod's shim.
pub async fn shim(runtime: &Runtime, pod: &str) -> i32 {
    let netns = runtime.pod_sandbox_status(pod).await.expect("a status").netns;
    netns.split('/').nth(2).and_then(|pid| pid.parse().ok()).expect("the shim's process")
}
