//! Processes beside a container's own, and its streams.

use container_runtime::services::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Fixture, Guard, container, start, wait_for_line};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub async fn exec(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let mut config = container("c", &["sleep"]);
    config.linux.security_context.run_as_user = Some(1234);
    config.envs = vec![KeyValue { key: "A".into(), value: "b".into() }];
    let id = start(&runtime, &pod, config).await;

    let both = runtime.exec_sync(&id, words(&["tool", "print", "out", "err"]), 0).await.expect("it runs");
    assert_eq!((both.stdout.as_slice(), both.stderr.as_slice(), both.exit_code), (&b"out\n"[..], &b"err\n"[..], 0));
    assert_eq!(runtime.exec_sync(&id, words(&["tool", "exit", "9"]), 0).await.expect("it runs").exit_code, 9);
    assert_eq!(runtime.exec_sync(&id, words(&["tool", "env", "A"]), 0).await.expect("it runs").stdout, b"b\n");
    let status = runtime.exec_sync(&id, words(&["tool", "cat", "/proc/self/status"]), 0).await.expect("it runs").stdout;
    let status = String::from_utf8(status).expect("text");
    assert!(status.contains("Uid:\t1234") && status.contains("Seccomp:\t2"), "as the container's own: {status}");
    let own = runtime.exec_sync(&id, words(&["tool", "cat", "/proc/1/cmdline"]), 0).await.expect("it runs").stdout;
    assert!(own.starts_with(b"/bin/tool\0sleep"), "in its pid namespace: {own:?}");

    let error = runtime.exec_sync(&id, words(&["nosuchcommand"]), 0).await.expect_err("there is none");
    assert!(error.to_string().contains("executable file not found"), "{error}");
    let error = runtime.exec_sync(&id, words(&["tool", "sleep"]), 1).await.expect_err("it takes too long");
    assert!(matches!(error, ServiceError::DeadlineExceeded(_)), "{error}");

    let request = ExecRequest {
        container_id: id.clone(),
        cmd: words(&["tool", "cat"]),
        stdin: true,
        stdout: true,
        ..Default::default()
    };
    let mut streams = runtime.exec(request).await.expect("it runs");
    let mut stdin = streams.stdin.take().expect("stdin");
    let long = vec![b'x'; 300_000];
    let text = long.clone();
    let writing = tokio::spawn(async move { stdin.write_all(&text).await });
    let mut echo = Vec::new();
    streams.stdout.take().expect("stdout").read_to_end(&mut echo).await.expect("it is read");
    writing.await.expect("no panic").expect("it is written");
    assert!(echo == long);
    assert_eq!(streams.exit.await.expect("an exit").expect("a code"), 0);

    // The one that took too long is dead: only the container's own process is left.
    while runtime.container_stats(&id).await.expect("figures").usage.process_count != 1 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    runtime.stop_container(&id, 0).await.expect("it stops");
    let error = runtime.exec_sync(&id, words(&["tool"]), 0).await.expect_err("it does not run");
    assert!(matches!(error, ServiceError::FailedPrecondition(_)), "{error}");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
    assert_eq!(Guard::left(&fixture.root, &fixture.cgroup), Vec::<String>::new());
}

async fn talk(mut streams: Streams) -> (String, i32) {
    let mut stdin = streams.stdin.take().expect("stdin");
    streams.resize.send(TerminalSize { width: 123, height: 45 }).expect("it is sent");
    // A terminal's size may be set before the program asks for it, and not after.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    stdin.write_all(b"go\n").await.expect("it is written");
    let mut text = String::new();
    streams.stdout.take().expect("stdout").read_to_string(&mut text).await.expect("it is read");
    (text, streams.exit.await.expect("an exit").expect("a code"))
}

pub async fn terminal(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let id = start(&runtime, &pod, container("c", &["sleep"])).await;
    let cmd = words(&["tool", "tty"]);
    let request = ExecRequest { container_id: id, cmd, tty: true, stdin: true, stdout: true, stderr: false };
    let (text, code) = talk(runtime.exec(request).await.expect("it runs")).await;
    assert!(text.contains("tty 1 /dev/pts/") && text.contains("size 123x45"), "{text}");
    assert_eq!(code, 3);

    let config = ContainerConfig { tty: true, stdin: true, ..container("t", &["tty"]) };
    let id = start(&runtime, &pod, config).await;
    wait_for_line(&fixture.log("t.log"), "tty 1").await;
    let request = AttachRequest { container_id: id, stdin: true, stdout: true, stderr: false };
    let (text, code) = talk(runtime.attach(request).await.expect("attached")).await;
    assert!(text.contains("size 123x45"), "{text}");
    assert_eq!(code, 3);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

pub async fn attach(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let config = ContainerConfig { stdin: true, stdin_once: true, ..container("c", &["cat"]) };
    let id = start(&runtime, &pod, config).await;
    let listen = AttachRequest { container_id: id.clone(), stdout: true, ..Default::default() };
    let mut listener = runtime.attach(listen).await.expect("attached").stdout.take().expect("stdout");
    let speak = AttachRequest { container_id: id.clone(), stdin: true, ..Default::default() };
    let mut speaker = runtime.attach(speak).await.expect("attached");
    let mut stdin = speaker.stdin.take().expect("stdin");
    stdin.write_all(b"to everybody\n").await.expect("it is written");
    drop(stdin);
    let mut heard = String::new();
    listener.read_to_string(&mut heard).await.expect("it is read");
    assert_eq!(heard, "to everybody\n");
    assert_eq!(speaker.exit.await.expect("an exit").expect("a code"), 0, "its input ended with the one who gave it");
    assert_eq!(crate::fixture::lines(&fixture.log("c.log")), ["stdout F to everybody"]);
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

/// One who is attached and does not read holds up the container while it runs; its end, and its log, wait for nobody.
pub async fn slow_reader(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let mut events = runtime.events();
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    let config = ContainerConfig { stdin: true, stdin_once: true, ..container("c", &["cat"]) };
    let id = start(&runtime, &pod, config).await;
    let request = AttachRequest { container_id: id.clone(), stdin: true, stdout: true, stderr: false };
    let mut streams = runtime.attach(request).await.expect("attached");
    let mut stdin = streams.stdin.take().expect("stdin");
    // More than a pipe holds, and less than the container's pipe and the client's hold together.
    let text = "0123456789\n".repeat(10_000);
    stdin.write_all(text.as_bytes()).await.expect("it is written");
    drop(stdin);
    assert_eq!(crate::fixture::exited(&runtime, &mut events, &id).await.exit_code, 0);
    assert_eq!(crate::fixture::lines(&fixture.log("c.log")).len(), 10_000, "the log is complete");
    let mut heard = String::new();
    streams.stdout.take().expect("stdout").read_to_string(&mut heard).await.expect("it is read");
    assert_eq!(heard.len(), text.len(), "and so is what a slow client gets");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}

pub async fn port_forward(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let pod = runtime.run_pod_sandbox(fixture.pod("p")).await.expect("the sandbox runs");
    start(&runtime, &pod, container("c", &["serve", "8080"])).await;
    wait_for_line(&fixture.log("c.log"), "ready").await;
    let mut text = String::new();
    let mut connection = runtime.port_forward(&pod, 8080).await.expect("it connects");
    connection.read_to_string(&mut text).await.expect("it is read");
    assert_eq!(text, "hello");
    let error = runtime.port_forward(&pod, 8081).await.expect_err("nobody listens");
    assert!(error.to_string().contains("refused"), "{error}");
    runtime.remove_pod_sandbox(&pod).await.expect("it is removed");
}
