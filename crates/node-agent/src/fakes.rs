//! What tests of this crate put in the place of a runtime, a network and a server.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use container_runtime::services::*;
use controller_runtime::{SystemClock, transport};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, oneshot, watch},
};

use crate::Settings;

/// Settings of a node that reaches nobody.
pub(crate) fn settings(root: &Path) -> Settings {
    let nobody = |_| async { http::Response::builder().status(503).body(String::new()).expect("an answer") };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let resolver = Arc::new(rustls::server::ResolvesServerCertUsingSni::new());
    let runtime = Arc::new(FakeRuntime::default());
    Settings {
        node_name: "n1".into(),
        addresses: vec![IpAddr::from([10, 0, 0, 1])],
        root: root.to_owned(),
        port: 0,
        tls: Arc::new(tls.expect("versions").with_no_client_auth().with_cert_resolver(resolver)),
        client: transport::in_process(nobody, "kubelet").expect("a client"),
        images: runtime.clone(),
        runtime,
        network: watch::channel(Ok(())).1,
        cluster_dns: vec![IpAddr::from([10, 96, 0, 10])],
        cluster_domain: "cluster.local".into(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        max_pods: 110,
        control_groups: None,
        thresholds: Default::default(),
        clock: Arc::new(SystemClock),
    }
}

/// A runtime with the containers that a test gives it.
#[derive(Default)]
pub(crate) struct FakeRuntime {
    pub(crate) containers: Mutex<HashMap<String, ContainerStatus>>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<ContainerEvent>>>,
}

impl FakeRuntime {
    /// Tells everybody who listens.
    pub(crate) fn tell(&self, event: &ContainerEvent) {
        self.listeners.lock().expect("a lock").retain(|listener| listener.send(event.clone()).is_ok());
    }
}

fn cannot<T>() -> Result<T> {
    Err(ServiceError::Unimplemented("the fake runtime does not do that".into()))
}

#[async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(&self) -> Result<VersionResponse> {
        cannot()
    }
    async fn status(&self) -> Result<Vec<RuntimeCondition>> {
        Ok(Vec::new())
    }
    async fn run_pod_sandbox(&self, _: PodSandboxConfig) -> Result<String> {
        cannot()
    }
    async fn stop_pod_sandbox(&self, _: &str) -> Result<()> {
        cannot()
    }
    async fn remove_pod_sandbox(&self, _: &str) -> Result<()> {
        cannot()
    }
    async fn update_pod_sandbox_resources(&self, _: &str, _: LinuxContainerResources) -> Result<()> {
        cannot()
    }
    async fn pod_sandbox_status(&self, _: &str) -> Result<PodSandboxStatus> {
        cannot()
    }
    async fn list_pod_sandbox(&self, _: &PodSandboxFilter) -> Result<Vec<PodSandbox>> {
        Ok(Vec::new())
    }
    async fn create_container(&self, _: &str, _: ContainerConfig) -> Result<String> {
        cannot()
    }
    async fn start_container(&self, _: &str) -> Result<()> {
        cannot()
    }
    async fn stop_container(&self, _: &str, _: i64) -> Result<()> {
        cannot()
    }
    async fn remove_container(&self, _: &str) -> Result<()> {
        cannot()
    }
    async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        let containers = self.containers.lock().expect("a lock");
        containers.get(id).cloned().ok_or_else(|| ServiceError::NotFound(format!("no container {id}")))
    }
    async fn list_containers(&self, _: &ContainerFilter) -> Result<Vec<Container>> {
        Ok(Vec::new())
    }
    async fn update_container_resources(&self, _: &str, _: LinuxContainerResources) -> Result<()> {
        cannot()
    }
    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        cannot()
    }
    async fn exec_sync(&self, _: &str, cmd: Vec<String>, _: i64) -> Result<ExecSyncResponse> {
        Ok(ExecSyncResponse { stdout: cmd.join(" ").into_bytes(), stderr: Vec::new(), exit_code: 0 })
    }
    /// Runs a process of the test's machine.
    async fn exec(&self, request: ExecRequest) -> Result<Streams> {
        let (program, arguments) = request.cmd.split_first().expect("a command");
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .stdin(if request.stdin { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| ServiceError::Internal(error.to_string()))?;
        let (told, exit) = oneshot::channel();
        let streams = Streams {
            stdin: child.stdin.take().map(|stdin| Box::new(stdin) as _),
            stdout: child.stdout.take().map(|stdout| Box::new(stdout) as _),
            stderr: child.stderr.take().map(|stderr| Box::new(stderr) as _),
            resize: mpsc::unbounded_channel().0,
            exit,
        };
        tokio::spawn(async move {
            let status = child.wait().await.expect("it ends");
            let _ = told.send(Ok(status.code().unwrap_or(137)));
        });
        Ok(streams)
    }
    /// Says what it is told, once.
    async fn attach(&self, _: AttachRequest) -> Result<Streams> {
        let (stdin, mut typed) = tokio::io::duplex(1024);
        let (mut printed, stdout) = tokio::io::duplex(1024);
        let (told, exit) = oneshot::channel();
        tokio::spawn(async move {
            let mut text = String::new();
            typed.read_to_string(&mut text).await.expect("text");
            printed.write_all(format!("attached: {text}\n").as_bytes()).await.expect("somebody reads");
            drop(printed);
            let _ = told.send(Ok(0));
        });
        let (stdin, stdout) = (Some(Box::new(stdin) as _), Some(Box::new(stdout) as _));
        Ok(Streams { stdin, stdout, stderr: None, resize: mpsc::unbounded_channel().0, exit })
    }
    async fn port_forward(&self, _: &str, port: u16) -> Result<tokio::net::TcpStream> {
        let connected = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
        connected.map_err(|error| ServiceError::Internal(error.to_string()))
    }
    async fn container_stats(&self, _: &str) -> Result<ContainerStats> {
        cannot()
    }
    async fn list_container_stats(&self, _: &ContainerFilter) -> Result<Vec<ContainerStats>> {
        Ok(Vec::new())
    }
    fn events(&self) -> mpsc::UnboundedReceiver<ContainerEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners.lock().expect("a lock").push(sender);
        receiver
    }
}

#[async_trait]
impl ImageService for FakeRuntime {
    async fn list_images(&self, _: Option<&str>) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }
    async fn image_status(&self, _: &str) -> Result<Option<Image>> {
        Ok(None)
    }
    async fn pull_image(&self, _: &str, _: Option<&AuthConfig>) -> Result<String> {
        cannot()
    }
    async fn remove_image(&self, _: &str) -> Result<()> {
        cannot()
    }
    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        Ok(Vec::new())
    }
}
