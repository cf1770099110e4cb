//! The runtime ends, or a shim does: what goes on, and what is found again.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use container_runtime::services::*;

use crate::fixture::{Fixture, Guard, container, exited, shim, start};

const PARENT: &str = "FERRY_TEST_PARENT";

/// With it, the process makes and removes pods all the time instead.
const BUSY: &str = "FERRY_TEST_BUSY";

/// Is the process that runs a pod and waits to be killed, if it was started as that.
pub fn dispatch() -> bool {
    let Ok(text) = std::env::var(PARENT) else { return false };
    let (root, cgroup) = text.split_once(' ').expect("a folder and a cgroup");
    let fixture = Fixture { root: root.into(), cgroup: cgroup.into() };
    let threads = tokio::runtime::Runtime::new().expect("threads");
    threads.block_on(async {
        if std::env::var_os(BUSY).is_some() {
            return busy(&fixture).await;
        }
        let runtime = fixture.runtime().await;
        let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
        let stays = start(&runtime, &pod, ContainerConfig { stdin: true, ..container("stays", &["cat"]) }).await;
        let ends = start(&runtime, &pod, container("ends", &["trap"])).await;
        let made = runtime.create_container(&pod, container("made", &["print", "late"])).await.expect("it is created");
        crate::fixture::wait_for_line(&fixture.log("ends.log"), "ready").await;
        let pid = runtime.container_status(&ends).await.expect("a status").pid.expect("a process");
        writeln!(std::io::stdout(), "{pod} {stays} {ends} {made} {pid}").expect("somebody listens");
        std::future::pending::<()>().await;
    });
    true
}

pub async fn killed_runtime(fixture: Fixture) {
    let mut parent = Command::new("/proc/self/exe")
        .env(PARENT, format!("{} {}", fixture.root.display(), fixture.cgroup))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    BufReader::new(parent.stdout.take().expect("stdout")).read_line(&mut line).expect("it speaks");
    let names: Vec<String> = line.split_whitespace().map(String::from).collect();
    let [pod, stays, ends, made, pid] = names.as_slice() else { panic!("{line:?}") };
    parent.kill().expect("it is killed");
    parent.wait().expect("it is dead");

    // While nobody is there, a container ends and the shim takes note.
    let pid = rustix::process::Pid::from_raw(pid.parse().expect("a number")).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is there");
    let exit = fixture.root.join("containers").join(ends).join("exit.json");
    while !exit.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }

    let runtime = fixture.open().await;
    let mut events = runtime.events();
    assert_eq!(runtime.pod_sandbox_status(pod).await.expect("found").state, PodSandboxState::Ready);
    let mut states = Vec::new();
    for id in [stays, ends, made] {
        let status = runtime.container_status(id).await.expect("found");
        states.push((status.state, status.exit_code));
    }
    use ContainerState::{Created, Exited, Running};
    assert_eq!(states, [(Running, 0), (Exited, 7), (Created, 0)]);

    // All of it is as it was: what runs can be talked to, what was made starts, and ends are heard of.
    let answer = runtime.exec_sync(stays, vec!["/bin/tool".into(), "host".into()], 60).await.expect("it answers");
    assert_eq!(answer.stdout, b"p\n/\n");
    runtime.start_container(made).await.expect("it starts");
    assert_eq!(exited(&runtime, &mut events, made).await.exit_code, 0);
    runtime.stop_container(stays, 0).await.expect("it stops");
    assert_eq!(exited(&runtime, &mut events, stays).await.exit_code, 137);
    runtime.remove_pod_sandbox(pod).await.expect("it is removed");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

pub async fn killed_shim(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut events = runtime.events();
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let id = start(&runtime, &pod, container("c", &["sleep"])).await;
    let shim = shim(&runtime, &pod).await;
    let process = runtime.container_status(&id).await.expect("a status").pid.expect("a process");
    let pid = rustix::process::Pid::from_raw(shim).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is there");

    let status = exited(&runtime, &mut events, &id).await;
    assert_eq!((status.exit_code, status.reason.as_str()), (255, "Error"));
    assert!(!std::path::Path::new(&format!("/proc/{process}/root/")).exists(), "nobody looks after it, so it ends");
    while runtime.pod_sandbox_status(&pod).await.expect("a status").state == PodSandboxState::Ready {
        events.recv().await.expect("events go on");
    }
    assert!(runtime.create_container(&pod, container("d", &["sleep"])).await.is_err());
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

/// What a loss of power leaves of files that were being written ends nothing but what they told of.
pub async fn damaged_records(fixture: Fixture) {
    drop(fixture.runtime().await);
    for file in ["sandboxes/a/sandbox.json", "containers/b/container.json", "images/c.json"] {
        let file = fixture.root.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(file, "").expect("a file");
    }
    let runtime = fixture.open().await;
    assert_eq!(runtime.list_images(None).await.expect("a list").len(), 1);
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

async fn busy(fixture: &Fixture) {
    let runtime = fixture.open().await;
    writeln!(std::io::stdout(), "busy").expect("somebody listens");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..3 {
        let (runtime, mut pods) = (runtime.clone(), Vec::new());
        for number in 0..1000 {
            pods.push(fixture.pod(&format!("{}-{task}-{number}", std::process::id())));
        }
        tasks.spawn(async move {
            for pod in pods {
                let name = pod.hostname.clone();
                let pod = runtime.run_pod_sandbox(pod).await.expect("the sandbox runs");
                start(&runtime, &pod, container(&name, &["sleep"])).await;
                runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
            }
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// Whatever a runtime was doing when it was killed, the next one knows of all of it.
pub async fn killed_at_any_moment(fixture: Fixture) {
    drop(fixture.runtime().await);
    for round in 0..12u64 {
        let mut parent = Command::new("/proc/self/exe")
            .env(PARENT, format!("{} {}", fixture.root.display(), fixture.cgroup))
            .env(BUSY, "1")
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(parent.stdout.take().expect("stdout")).read_line(&mut line).expect("it speaks");
        tokio::time::sleep(std::time::Duration::from_millis(round * 17 % 120)).await;
        parent.kill().expect("it is killed");
        parent.wait().expect("it is dead");

        let runtime = fixture.open().await;
        for sandbox in runtime.list_pod_sandbox(&PodSandboxFilter::default()).await.expect("a list") {
            runtime.remove_pod_sandbox(&sandbox.id).await.expect("it is removed");
        }
        assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new(), "round {round}");
    }
}
