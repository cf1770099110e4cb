//! The commands of the toolbox: as processes of this machine, and, as root, in containers of the image that is made from the
//! executable.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use container_runtime::{Runtime, Settings, cgroups::Layout, services::*};
use rustix::process::{Pid, Signal, geteuid, kill_process};

const FERRY: &str = env!("CARGO_BIN_EXE_ferry");

fn command(name: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(FERRY);
    command.arg0(format!("/bin/{name}")).args(arguments);
    command
}

/// Exit code, output and complaints.
fn run(name: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = command(name, arguments).stdin(Stdio::null()).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn out(name: &str, arguments: &[&str]) -> String {
    let (code, output, complaints) = run(name, arguments);
    assert_eq!((code, complaints.as_str()), (Some(0), ""), "{name} {arguments:?}");
    output
}

#[test]
fn small_commands() {
    assert_eq!((run("true", &[]).0, run("false", &[]).0), (Some(0), Some(1)));
    assert_eq!((out("echo", &["a", "b"]), out("echo", &["-n", "a"])), ("a b\n".into(), "a".into()));
    assert_eq!(out("toolbox", &["echo", "a"]), "a\n");
    let unknown = run("toolbox", &["fly"]);
    assert!(unknown.0 == Some(127) && unknown.2.contains("\"fly\"") && unknown.2.contains("nslookup"), "{unknown:?}");
    assert!(out("env", &["A=b"]).lines().any(|line| line == "A=b"));
    assert_eq!(out("env", &["A=b", "/bin/sh", "-c", "echo $A"]), "b\n");
    assert_eq!(out("sleep", &["0.01"]), "");
    assert!(out("date", &["+%s"]).trim().parse::<u64>().is_ok_and(|seconds| seconds > 1_700_000_000));
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert_eq!(out("hostname", &[]), name);

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "one two\nthree\n").expect("it is written");
    let (file, folder) = (file.to_string_lossy().into_owned(), folder.path().to_string_lossy().into_owned());
    assert_eq!(out("cat", &[&file]), "one two\nthree\n");
    assert_eq!(out("wc", &[&file]), format!("2 3 14 {file}\n"));
    assert_eq!(out("ls", &[&folder]), "file\n");
    assert!(out("ls", &["-l", &folder]).starts_with("-rw"));
    let missing = run("cat", &["/no/such/file"]);
    assert_eq!((missing.0, missing.2.contains("cat: /no/such/file")), (Some(1), true));
}

#[test]
fn pause_ends_when_it_is_told_to() {
    let mut child = command("pause", &[]).spawn().expect("it runs");
    // It ignores the ends of children when it is ready for signals, which it then waits for. (Those that a process waits for are not
    // shown as blocked.)
    let ignores_children = |status: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0").trim().to_owned();
        u64::from_str_radix(&mask, 16).is_ok_and(|mask| mask & 1 << 16 != 0)
    };
    let file = format!("/proc/{}/status", child.id());
    while !ignores_children(&std::fs::read_to_string(&file).unwrap_or_default()) {
        assert_eq!(child.try_wait().expect("its state"), None, "it waits");
        std::thread::yield_now();
    }
    terminate(&child);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

fn terminate(child: &Child) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::TERM).expect("it is told");
}

/// A server on a free port, ended with the test.
struct Server {
    child: Child,
    port: u16,
    // The server complains to nobody if this is closed.
    _log: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let arguments = [&["-p", "0"], arguments].concat();
        let mut child = command("httpd", &arguments).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut log = BufReader::new(child.stdout.take().expect("its output"));
        let mut line = String::new();
        log.read_line(&mut line).expect("it says where it listens");
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Self { child, port, _log: log }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_folder_is_served() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("index.html"), "hello").expect("it is written");
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).expect("a link");
    let server = Server::start(&[&folder.path().to_string_lossy()]);
    assert_eq!(out("wget", &["-qO-", &server.url("/")]), "hello");
    for outside in ["/link", "/../../../etc/passwd", "/nothing"] {
        let answer = run("wget", &["-qO-", &server.url(outside)]);
        assert_eq!((answer.0, answer.2.contains("404 Not Found")), (Some(1), true), "{outside}: {answer:?}");
    }
    let file = folder.path().join("copy").to_string_lossy().into_owned();
    out("wget", &["-q", "-O", &file, &server.url("/index.html?x=y")]);
    assert_eq!(std::fs::read_to_string(file).expect("it is fetched"), "hello");
    out("nc", &["-z", "127.0.0.1", &server.port.to_string()]);
}

#[test]
fn a_server_that_ends_answers_what_was_asked() {
    let mut server = Server::start(&["-m", "version 1", "-l", "0"]);
    let text = out("wget", &["-qO-", &server.url("/a?b")]);
    assert!(text.starts_with("version 1\nhostname: ") && text.contains("\nGET /a?b HTTP/1.1\n"), "{text}");

    let mut open = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
    // It has been accepted when it is answered; the next request is begun and not yet complete.
    open.write_all(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is sent");
    let mut reader = BufReader::new(open.try_clone().expect("the same"));
    let mut line = String::new();
    while !line.contains("Host: a") {
        line.clear();
        assert_ne!(reader.read_line(&mut line).expect("an answer"), 0);
    }
    open.write_all(b"GET /2 HTTP/1.1\r\n").expect("it is sent");
    terminate(&server.child);
    while TcpStream::connect(("127.0.0.1", server.port)).is_ok() {
        std::thread::yield_now();
    }
    open.write_all(b"Host: b\r\n\r\n").expect("it is sent");
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("the rest, and the end");
    assert!(rest.contains("200 OK") && rest.contains("Connection: close") && rest.contains("Host: b"), "{rest}");
    assert_eq!(server.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn wget_tries_again_and_gives_up() {
    let refused = run("wget", &["-qO-", "-t", "2", "http://127.0.0.1:1/"]);
    assert_eq!((refused.0, refused.2.contains("cannot connect")), (Some(1), true), "{refused:?}");
}

#[test]
fn in_containers() {
    if !geteuid().is_root() || Layout::detect().is_err() {
        eprintln!("skipped: the toolbox in containers: needs root and cgroups");
        return;
    }
    let root = tempfile::tempdir().expect("a folder");
    let threads = tokio::runtime::Runtime::new().expect("threads");
    threads.block_on(run_containers(root.path()));
}

async fn run_containers(root: &Path) {
    let cgroup = format!("/ferry-toolbox-{}", std::process::id());
    let settings = Settings { cgroup, shim: FERRY.into(), ..Settings::new(root) };
    let runtime = Runtime::open(settings, Arc::new(NoNetwork)).await.expect("it opens");
    let commands = ["pause", "httpd", "wget", "hostname", "id"];
    let id = runtime.import_executable("ferry.local/toolbox", Path::new(FERRY), &commands).await.expect("it is made");
    let again =
        runtime.import_executable("ferry.local/toolbox", Path::new(FERRY), &commands).await.expect("it is there");
    assert_eq!(id, again);
    let mut pod = PodSandboxConfig { hostname: "pod-1".into(), ..Default::default() };
    pod.linux.security_context.namespace_options.pid = NamespaceMode::Container;
    let pod = runtime.run_pod_sandbox(pod).await.expect("it runs");
    let container = |args: &[&str]| {
        let args = args.iter().map(|word| (*word).to_owned()).collect();
        let mut config = ContainerConfig { image: "ferry.local/toolbox".into(), args, ..Default::default() };
        config.linux.security_context.namespace_options.pid = NamespaceMode::Container;
        config.linux.security_context.seccomp = SecurityProfile::RuntimeDefault;
        config
    };
    // What it does when it is told nothing.
    let idle = runtime.create_container(&pod, container(&[])).await.expect("it is created");
    runtime.start_container(&idle).await.expect("it starts");
    let web = runtime.create_container(&pod, container(&["httpd", "-l", "0"])).await.expect("it is created");
    runtime.start_container(&web).await.expect("it starts");
    let words = |line: &str| line.split(' ').map(String::from).collect::<Vec<_>>();
    let fetch = words("wget -qO- -t 20 http://localhost:8080/");
    let answer = runtime.exec_sync(&idle, fetch, 60).await.expect("it answers");
    let text = String::from_utf8_lossy(&answer.stdout);
    assert!(text.starts_with("hostname: pod-1\n"), "{text} {}", String::from_utf8_lossy(&answer.stderr));

    let idle_pid = runtime.container_status(&idle).await.expect("its status").pid.expect("its process");
    let shim = runtime.pod_sandbox_status(&pod).await.expect("its status").netns.replace("ns/net", "smaps_rollup");
    let (shim, idle_memory) = (private(&shim), private(&format!("/proc/{idle_pid}/smaps_rollup")));
    eprintln!("private memory: shim {shim} KiB, pause {idle_memory} KiB");
    assert!(shim < 1024 && idle_memory < 1024, "a pod costs less than a megabyte beside its processes");
    for container in [&idle, &web] {
        runtime.stop_container(container, 30).await.expect("it stops");
        assert_eq!(runtime.container_status(container).await.expect("its status").exit_code, 0);
    }
    runtime.purge().await.expect("everything is removed");
    std::fs::create_dir(root).expect("the folder, for its owner");
}

/// The memory that a process alone has, in KiB. Pages of files are there once, however many processes have them.
fn private(rollup: &str) -> u64 {
    let text = std::fs::read_to_string(rollup).expect("figures");
    let lines = text.lines().filter(|line| line.starts_with("Private_Dirty"));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
}
