//! From creation to removal.

use container_runtime::{cgroups::Layout, services::*};

use crate::fixture::{Fixture, Guard, container, exited, lines, output, shim, start};

pub async fn runs_and_exits(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut events = runtime.events();
    let pod = runtime.run_pod_sandbox(fixture.pod("life")).await.expect("the sandbox runs");
    assert_eq!(runtime.pod_sandbox_status(&pod).await.expect("a status").state, PodSandboxState::Ready);

    let id = runtime.create_container(&pod, container("c", &["print", "out", "err"])).await.expect("it is created");
    let status = runtime.container_status(&id).await.expect("a status");
    assert_eq!((status.state, status.started_at), (ContainerState::Created, None));
    runtime.start_container(&id).await.expect("it starts");
    let mut own_events = runtime.events();
    let status = exited(&runtime, &mut own_events, &id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (0, "Completed"));
    assert!(status.created_at < status.started_at.expect("a time") && status.started_at < status.finished_at);
    let mut found = lines(&fixture.log("c.log"));
    found.sort();
    assert_eq!(found, ["stderr F err", "stdout F out"]);

    let (code, _) = output(&fixture, &runtime, &pod, container("d", &["exit", "42"])).await;
    assert_eq!(code, 42);
    assert!(runtime.start_container(&id).await.is_err(), "a container starts once");

    runtime.remove_container(&id).await.expect("it is removed");
    assert!(matches!(runtime.container_status(&id).await, Err(ServiceError::NotFound(_))));
    runtime.stop_pod_sandbox(&pod).await.expect("it stops");
    runtime.stop_pod_sandbox(&pod).await.expect("it may stop again");
    assert_eq!(runtime.pod_sandbox_status(&pod).await.expect("a status").state, PodSandboxState::NotReady);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    runtime.remove_pod_sandbox(&pod).await.expect("it may be removed again");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());

    use ContainerEventType::*;
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        assert_eq!(event.pod_sandbox_id, pod);
        if event.container_id == pod || event.container_id == id {
            seen.push((event.container_id == pod, event.container_event_type));
        }
    }
    let expected = [
        (true, Created),
        (true, Started),
        (false, Created),
        (false, Started),
        (false, Stopped),
        (false, Deleted),
        (true, Stopped),
        (true, Deleted),
    ];
    assert_eq!(seen, expected);
}

pub async fn start_error(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let mut config = container("c", &[]);
    config.command = vec!["nosuchcommand".into()];
    let id = runtime.create_container(&pod, config).await.expect("it is created");
    let error = runtime.start_container(&id).await.expect_err("there is no such command");
    assert!(error.to_string().contains("executable file not found in $PATH"), "{error}");
    let status = runtime.container_status(&id).await.expect("a status");
    assert_eq!((status.state, status.exit_code), (ContainerState::Exited, 128));
    assert_eq!(status.reason, "StartError");

    let mut config = container("d", &["print", "x"]);
    config.image = "nosuchimage".into();
    assert!(matches!(runtime.create_container(&pod, config).await, Err(ServiceError::NotFound(_))));
    let mut config = container("e", &["print", "x"]);
    config.mounts = vec![Mount { host_path: "/nosuchpath".into(), container_path: "/x".into(), ..Default::default() }];
    let id = runtime.create_container(&pod, config).await.expect("it is created");
    let error = runtime.start_container(&id).await.expect_err("there is nothing to mount");
    assert!(error.to_string().contains("/nosuchpath"), "{error}");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

pub async fn stopping(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut events = runtime.events();
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let polite = start(&runtime, &pod, container("polite", &["trap"])).await;
    crate::fixture::wait_for_line(&fixture.log("polite.log"), "ready").await;
    runtime.stop_container(&polite, 60).await.expect("it stops");
    assert_eq!(exited(&runtime, &mut events, &polite).await.exit_code, 7);

    // As process 1 it has no handler for SIGTERM, so only SIGKILL ends it.
    let deaf = start(&runtime, &pod, container("deaf", &["sleep"])).await;
    runtime.stop_container(&deaf, 1).await.expect("it stops");
    let status = exited(&runtime, &mut events, &deaf).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "Error"));
    runtime.stop_container(&deaf, 1).await.expect("it may stop again");

    let running = start(&runtime, &pod, container("running", &["sleep"])).await;
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed with what runs in it");
    assert!(runtime.container_status(&running).await.is_err());
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

pub async fn out_of_memory(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut events = runtime.events();
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let mut config = container("eater", &["eat"]);
    config.linux.resources.memory_limit_in_bytes = 16 << 20;
    config.linux.resources.pids_limit = 50;
    config.linux.resources.cpu_shares = 100;
    let id = start(&runtime, &pod, config).await;
    let status = exited(&runtime, &mut events, &id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));

    let mut config = container("sleeper", &["sleep"]);
    config.linux.resources.memory_limit_in_bytes = 16 << 20;
    let id = start(&runtime, &pod, config).await;
    let stats = runtime.container_stats(&id).await.expect("figures");
    assert_eq!(stats.usage.memory_limit_bytes, Some(16 << 20));
    assert_eq!(stats.usage.process_count, 1);
    assert!(stats.usage.cpu_usage_core_nano_seconds > 0);
    let more = LinuxContainerResources { memory_limit_in_bytes: 32 << 20, ..Default::default() };
    runtime.update_container_resources(&id, more).await.expect("it is limited anew");
    let stats = runtime.list_container_stats(&ContainerFilter::default()).await.expect("figures");
    assert_eq!(stats.iter().map(|stats| stats.usage.memory_limit_bytes).collect::<Vec<_>>(), [Some(32 << 20)]);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

/// What a pod may have as a whole, whatever its containers may.
pub async fn limits_of_a_pod(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut events = runtime.events();
    let mut config = fixture.pod("p");
    config.linux.resources =
        LinuxContainerResources { memory_limit_in_bytes: 16 << 20, cpu_shares: 512, ..Default::default() };
    let group = Layout::detect().expect("cgroups").group(&config.linux.cgroup_parent);
    let pod = runtime.run_pod_sandbox(config).await.expect("the sandbox runs");
    let limit = || group.usage().expect("figures").memory_limit_bytes;
    assert_eq!(limit(), Some(16 << 20));
    let id = start(&runtime, &pod, container("eater", &["eat"])).await;
    let status = exited(&runtime, &mut events, &id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (137, "OOMKilled"));

    let more = LinuxContainerResources { memory_limit_in_bytes: 32 << 20, ..Default::default() };
    runtime.update_pod_sandbox_resources(&pod, more).await.expect("it is limited anew");
    assert_eq!(limit(), Some(32 << 20));
    let free = LinuxContainerResources { memory_limit_in_bytes: -1, cpu_quota: -1, ..Default::default() };
    runtime.update_pod_sandbox_resources(&pod, free).await.expect("it is not limited any more");
    assert_eq!(limit(), None);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

/// An image of two layers, the upper of which deletes and replaces.
pub async fn archive(fixture: Fixture) {
    use ring::digest::{SHA256, digest};
    let layer = |files: &[(&str, &[u8])]| {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o755);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            builder.append_data(&mut header, path, *bytes).expect("an entry");
        }
        builder.into_inner().expect("an archive")
    };
    let tool = std::fs::read(crate::fixture::tool().expect("the tool")).expect("the tool");
    let lower = layer(&[("bin/tool", tool.as_slice()), ("data/gone", b"gone"), ("data/kept", b"old")]);
    let upper = layer(&[("data/.wh.gone", b""), ("data/kept", b"new")]);
    let id = |bytes: &[u8]| {
        let hash: String = digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256:{hash}")
    };
    let config = serde_json::json!({
        "config": { "Entrypoint": ["/bin/tool"], "Cmd": ["cat", "kept"], "WorkingDir": "/data", "Env": ["A=from image"] },
        "rootfs": { "type": "layers", "diff_ids": [id(&lower), id(&upper)] },
    });
    let manifest = serde_json::json!([{ "Config": "c", "RepoTags": ["two:layers"], "Layers": ["1", "2"] }]);
    let whole = layer(&[
        ("1", &lower),
        ("2", &upper),
        ("c", config.to_string().as_bytes()),
        ("manifest.json", manifest.to_string().as_bytes()),
    ]);
    let file = fixture.root.join("images.tar");
    std::fs::write(&file, whole).expect("the archive is written");

    let runtime = fixture.open().await;
    runtime.import(&file).await.expect("the archive is taken");
    let unpacked = std::fs::read_dir(fixture.settings().root.join("snapshots")).expect("the folder").count();
    assert_eq!(unpacked, 2, "no container has to wait for that");
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let of_image =
        |name: &str, words: &[&str]| ContainerConfig { image: "two:layers".into(), ..container(name, words) };
    let (code, lines) = output(&fixture, &runtime, &pod, of_image("a", &[])).await;
    assert_eq!((code, lines), (0, vec!["stdout P new".to_owned()]));
    let (code, lines) = output(&fixture, &runtime, &pod, of_image("b", &["cat", "gone"])).await;
    assert_eq!((code, lines), (1, vec!["stdout F errno 2".to_owned()]));
    let (_, lines) = output(&fixture, &runtime, &pod, of_image("d", &["env", "A"])).await;
    assert_eq!(lines, ["stdout F from image"]);

    // As a volume it has the same files, to be read and nothing else.
    let volume = |path: &str, part: &str| Mount {
        container_path: path.into(),
        image: "two:layers".into(),
        image_sub_path: part.into(),
        ..Default::default()
    };
    let with = |name: &str, words: &[&str]| ContainerConfig {
        mounts: vec![volume("/image", ""), volume("/one", "data/kept")],
        ..of_image(name, words)
    };
    for (name, words, said) in [
        ("e", ["cat", "/image/data/kept", ""], "stdout P new"),
        ("f", ["cat", "/image/data/gone", ""], "stdout F errno 2"),
        ("g", ["cat", "/one", ""], "stdout P new"),
        ("h", ["write", "/image/data/kept", "x"], "stdout F errno 30"),
    ] {
        assert_eq!(output(&fixture, &runtime, &pod, with(name, &words)).await.1, [said], "{words:?}");
    }
    let executed = ContainerConfig { command: vec!["/image/bin/tool".into()], ..with("i", &["exit", "0"]) };
    let missing = ContainerConfig { mounts: vec![volume("/x", "nowhere")], ..of_image("j", &["exit", "0"]) };
    for config in [executed, missing] {
        let id = runtime.create_container(&pod, config).await.expect("it is created");
        runtime.start_container(&id).await.expect_err("it cannot be started");
    }

    assert!(runtime.remove_image("two:layers").await.is_err(), "containers use it");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    runtime.remove_image("two:layers").await.expect("it is removed");
    assert_eq!(std::fs::read_dir(fixture.root.join("snapshots")).expect("a folder").count(), 0);
    let local = runtime.pull_image("ferry.local/two", None).await;
    assert!(matches!(local, Err(ServiceError::NotFound(_))), "{local:?}");
}

pub async fn logs(fixture: Fixture) {
    let settings = container_runtime::Settings { log_max_size: 2000, log_max_files: 3, ..fixture.settings() };
    drop(fixture.runtime().await);
    let network = std::sync::Arc::new(NoNetwork);
    let runtime = container_runtime::Runtime::open(settings, network).await.expect("the runtime opens");
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let (_, lines) = output(&fixture, &runtime, &pod, container("c", &["spam", "1000"])).await;
    assert_eq!(lines.last().map(String::as_str), Some("stdout F line 999"));
    let files = std::fs::read_dir(fixture.root.join("logs")).expect("a folder").count();
    assert_eq!(files, 3);

    let id = start(&runtime, &pod, ContainerConfig { stdin: true, ..container("d", &["cat"]) }).await;
    let request = AttachRequest { container_id: id.clone(), stdin: true, stdout: true, ..Default::default() };
    let mut streams = runtime.attach(request).await.expect("attached");
    let (mut stdin, mut stdout) = (streams.stdin.take().expect("stdin"), streams.stdout.take().expect("stdout"));
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut echo = [0; 4];
    stdin.write_all(b"one\n").await.expect("it is written");
    stdout.read_exact(&mut echo).await.expect("it is read");
    let (log, old) = (fixture.log("d.log"), fixture.log("d.log.old"));
    std::fs::rename(&log, &old).expect("it is renamed");
    runtime.reopen_container_log(&id).await.expect("it is opened again");
    stdin.write_all(b"two\n").await.expect("it is written");
    stdout.read_exact(&mut echo).await.expect("it is read");
    assert_eq!(
        (crate::fixture::lines(&old), crate::fixture::lines(&log)),
        (vec!["stdout F one".into()], vec!["stdout F two".into()])
    );
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

pub async fn many(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let (runtime, pod) = (runtime.clone(), fixture.pod(&format!("p{number}")));
        tasks.spawn(async move {
            let pod = runtime.run_pod_sandbox(pod).await.expect("the sandbox runs");
            let id = start(&runtime, &pod, container(&format!("c{number}"), &["sleep"])).await;
            let answer = runtime.exec_sync(&id, vec!["/bin/tool".into(), "host".into()], 60).await.expect("it answers");
            assert_eq!(answer.stdout, format!("p{number}\n/\n").as_bytes());
            runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("each pod runs");
    }
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

pub async fn purge(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    for name in ["a", "b"] {
        let pod = runtime.run_pod_sandbox(fixture.pod(name)).await.expect("the sandbox runs");
        start(&runtime, &pod, ContainerConfig { log_path: String::new(), ..container(name, &["sleep"]) }).await;
    }
    runtime.purge().await.expect("everything is removed");
    assert!(!fixture.root.exists());
    let group = Layout::detect().expect("cgroups").group(&fixture.cgroup);
    assert!(!group.exists());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(&*fixture.root.to_string_lossy()), "{mounts}");
}

/// Whoever asks for a sandbox and leaves gets one all the same, or none; nothing is there that nobody knows of.
pub async fn interrupted(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let limit = std::time::Duration::from_millis;
    for round in 0..12 {
        let _ = tokio::time::timeout(limit(round), runtime.run_pod_sandbox(fixture.pod(&format!("p{round}")))).await;
    }
    let ready = PodSandboxFilter { state: Some(PodSandboxState::Ready), ..Default::default() };
    while runtime.list_pod_sandbox(&ready).await.expect("a list").len() < 12 {
        tokio::time::sleep(limit(5)).await;
    }
    for pod in runtime.list_pod_sandbox(&PodSandboxFilter::default()).await.expect("a list") {
        runtime.remove_pod_sandbox(&pod.id).await.expect("it is removed");
    }
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

struct Unready;

#[async_trait::async_trait]
impl PodNetwork for Unready {
    fn ready(&self) -> Result<(), String> {
        Err("the cable is out".into())
    }

    async fn set_up(&self, _: SandboxNetwork<'_>) -> Result<Vec<std::net::IpAddr>, String> {
        self.ready().map(|()| Vec::new())
    }

    async fn tear_down(&self, _: SandboxNetwork<'_>) -> Result<(), String> {
        Ok(())
    }
}

pub async fn no_network(fixture: Fixture) {
    let network = std::sync::Arc::new(Unready);
    let runtime = container_runtime::Runtime::open(fixture.settings(), network).await.expect("the runtime opens");
    let conditions = runtime.status().await.expect("a status");
    let told: Vec<_> = conditions.iter().map(|c| (c.r#type.as_str(), c.status, c.message.as_str())).collect();
    assert_eq!(told, [("RuntimeReady", true, ""), ("NetworkReady", false, "the cable is out")]);
    let error = runtime.run_pod_sandbox(fixture.pod("p")).await.expect_err("it has no network");
    assert!(error.to_string().contains("the cable is out"), "{error}");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

/// There is a shim for each pod: what it has of its executable in memory must not stay there.
pub async fn little_memory(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    start(&runtime, &pod, container("c", &["sleep"])).await;
    let shim = shim(&runtime, &pod).await;
    let kilobytes = || -> u64 {
        let sizes = std::fs::read_to_string(format!("/proc/{shim}/smaps_rollup")).expect("it lives");
        let line = sizes.lines().find_map(|line| line.strip_prefix("Rss:")).expect("its size");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    // It puts things away a second after it did something.
    let soon = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let mut has = kilobytes();
    while has > 1024 && std::time::Instant::now() < soon {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        has = kilobytes();
    }
    assert!(has <= 1024, "an idle shim has {has} kB");
    // What was put away is found again.
    let (code, text) = output(&fixture, &runtime, &pod, container("d", &["print", "out", "err"])).await;
    assert_eq!((code, text.len()), (0, 2));
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}
