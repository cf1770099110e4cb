//! The same on a socket: a client of CRI runs a real container.

use container_runtime::cri::{
    self,
    client::Client,
    wire::{self, FERRY, IMAGES, RUNTIME},
};
use streaming::remote_command::{self, Streams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{Fixture, IMAGE};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

pub async fn on_a_socket(fixture: Fixture) {
    let runtime = fixture.runtime().await;
    let socket = fixture.root.join(cri::SOCKET);
    let serving = tokio::spawn({
        let (runtime, socket) = (runtime.clone(), socket.clone());
        async move { cri::serve(runtime, &socket).await }
    });
    while !socket.exists() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let client = Client::connect(&socket).await.expect("it answers");
    let version: wire::VersionResponse = client.call(RUNTIME, "Version", wire::Empty {}).await.expect("a version");
    assert_eq!((version.runtime_name.as_str(), version.runtime_api_version.as_str()), ("ferry", "v1"));
    let status: wire::StatusResponse = client.call(RUNTIME, "Status", wire::Empty {}).await.expect("a status");
    assert!(status.status.expect("conditions").conditions.iter().all(|condition| condition.status));
    let images: wire::ListImagesResponse =
        client.call(IMAGES, "ListImages", wire::ListImagesRequest::default()).await.expect("a list");
    assert_eq!(images.images.len(), 1);
    let mut events: tonic::Streaming<wire::ContainerEventResponse> =
        client.watch(RUNTIME, "GetContainerEvents", wire::Empty {}).await.expect("events");

    let namespaces = Some(wire::NamespaceOption { pid: 1, ..Default::default() });
    let config = wire::PodSandboxConfig {
        metadata: Some(wire::PodSandboxMetadata { name: "p".into(), uid: "u".into(), ..Default::default() }),
        hostname: "by-socket".into(),
        log_directory: fixture.root.join("logs").to_string_lossy().into_owned(),
        linux: Some(wire::LinuxPodSandboxConfig {
            cgroup_parent: format!("{}/pod-u", fixture.cgroup),
            security_context: Some(wire::LinuxSandboxSecurityContext {
                namespace_options: namespaces.clone(),
                privileged: false,
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let run = wire::RunPodSandboxRequest { config: Some(config), ..Default::default() };
    let pod: wire::PodSandboxId = client.call(RUNTIME, "RunPodSandbox", run).await.expect("the sandbox runs");
    let config = wire::ContainerConfig {
        metadata: Some(wire::ContainerMetadata { name: "c".into(), attempt: 0 }),
        image: Some(wire::ImageSpec { image: IMAGE.into(), ..Default::default() }),
        args: words(&["sleep"]),
        log_path: "c.log".into(),
        linux: Some(wire::LinuxContainerConfig {
            security_context: Some(wire::LinuxContainerSecurityContext {
                namespace_options: namespaces,
                seccomp: Some(wire::SecurityProfile::default()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    let create = wire::CreateContainerRequest { pod_sandbox_id: pod.pod_sandbox_id.clone(), config: Some(config) };
    let id: wire::ContainerId = client.call(RUNTIME, "CreateContainer", create).await.expect("it is created");
    let _: wire::Empty = client.call(RUNTIME, "StartContainer", id.clone()).await.expect("it starts");
    let mut kinds = Vec::new();
    while kinds.last() != Some(&1) || kinds.len() < 4 {
        let event = events.message().await.expect("events go on").expect("and on");
        kinds.push(event.container_event_type);
    }
    assert_eq!(kinds, [0, 1, 0, 1], "the sandbox and the container are made and started");

    let cmd = words(&["/bin/tool", "host"]);
    let sync = wire::ExecSyncRequest { container_id: id.container_id.clone(), cmd: cmd.clone(), timeout: 60 };
    let answer: wire::ExecSyncResponse = client.call(RUNTIME, "ExecSync", sync).await.expect("it answers");
    assert_eq!((answer.exit_code, answer.stdout.as_slice()), (0, &b"by-socket\n/\n"[..]));
    let start = wire::ExecRequest { container_id: id.container_id.clone(), cmd, stdout: true, ..Default::default() };
    assert_eq!(on_one_connection(&client, start.clone()).await, (0, b"by-socket\n/\n".to_vec()));
    let url: wire::Url = client.call(RUNTIME, "Exec", start).await.expect("a place");
    assert_eq!(from_url(&url.url).await.as_deref(), Some(&b"by-socket\n/\n"[..]));
    assert_eq!(from_url(&url.url).await, None, "a URL is good once");

    // Tools show the beginning of an id, and pass it on.
    let short = |id: &str| id[..13].to_owned();
    let request = wire::ContainerStatusRequest { container_id: short(&id.container_id), verbose: false };
    let status: wire::ContainerStatusResponse = client.call(RUNTIME, "ContainerStatus", request).await.expect("found");
    assert_eq!(status.status.map(|status| status.id), Some(id.container_id.clone()));

    let stats: wire::ListContainerStatsResponse =
        client.call(RUNTIME, "ListContainerStats", wire::ListContainerStatsRequest::default()).await.expect("figures");
    let memory = stats.stats[0].memory.clone().expect("memory");
    assert!(memory.usage_bytes.expect("a figure").value > 0);
    let missing = client
        .call::<_, wire::Empty>(RUNTIME, "StartContainer", wire::ContainerId { container_id: "x".into() })
        .await
        .expect_err("there is none");
    assert_eq!(missing.to_string(), "container x is not found");
    let _: wire::Empty = client.call(RUNTIME, "RemovePodSandbox", pod).await.expect("it is removed");
    serving.abort();
}

async fn on_one_connection(client: &Client, start: wire::ExecRequest) -> (i64, Vec<u8>) {
    let first = wire::ExecInput { start: Some(start), end: true, ..Default::default() };
    let input = futures::StreamExt::chain(futures::stream::iter([first]), futures::stream::pending());
    let mut output: tonic::Streaming<wire::ExecOutput> = client.talk(FERRY, "Exec", input).await.expect("it begins");
    let mut bytes = Vec::new();
    loop {
        let message = output.message().await.expect("it goes on").expect("until its exit");
        bytes.extend(message.stdout);
        if let Some(exit) = message.exit {
            return (exit.value, bytes);
        }
    }
}

/// The output of what is to be had at a URL, if something is.
async fn from_url(url: &str) -> Option<Vec<u8>> {
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a URL");
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("connected");
    let request = format!(
        "POST /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("an answer"));
    }
    if !head.starts_with(b"HTTP/1.1 101") {
        return None;
    }
    let mut remote = remote_command::connect(stream, Streams { stdout: true, ..Default::default() }).await;
    Some(remote.stdout.as_mut().expect("its output").all(1 << 20).await.to_vec())
}
