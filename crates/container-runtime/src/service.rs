//! The services of the Container Runtime Interface, as our runtime gives them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use tokio::{net::TcpStream, sync::mpsc};

use crate::{
    Runtime,
    containers::Container as Known,
    images::ImageRecord,
    registry::Watcher,
    runtime::{Inner, blocking, completed},
    services::*,
    shim::protocol::Request,
    state::now,
};

#[async_trait]
impl RuntimeService for Runtime {
    async fn version(&self) -> Result<VersionResponse> {
        Ok(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "ferry".into(),
            runtime_version: env!("CARGO_PKG_VERSION").into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn status(&self) -> Result<Vec<RuntimeCondition>> {
        let condition = |r#type: &str, state: Result<(), String>| RuntimeCondition {
            r#type: r#type.into(),
            status: state.is_ok(),
            reason: if state.is_ok() { String::new() } else { "NetworkPluginNotReady".into() },
            message: state.err().unwrap_or_default(),
        };
        Ok(vec![condition("RuntimeReady", Ok(())), condition("NetworkReady", self.inner.network.ready())])
    }

    async fn run_pod_sandbox(&self, config: PodSandboxConfig) -> Result<String> {
        let inner = self.inner.clone();
        completed(async move { inner.run_sandbox(config).await }).await
    }

    async fn stop_pod_sandbox(&self, pod_sandbox_id: &str) -> Result<()> {
        let Ok(sandbox) = self.inner.sandbox(pod_sandbox_id) else { return Ok(()) };
        let _changing = sandbox.changing.lock().await;
        self.inner.stop_sandbox(&sandbox).await
    }

    async fn remove_pod_sandbox(&self, pod_sandbox_id: &str) -> Result<()> {
        let Ok(sandbox) = self.inner.sandbox(pod_sandbox_id) else { return Ok(()) };
        let _changing = sandbox.changing.lock().await;
        self.inner.delete_sandbox(&sandbox).await
    }

    async fn update_pod_sandbox_resources(&self, pod_sandbox_id: &str, linux: LinuxContainerResources) -> Result<()> {
        let sandbox = self.inner.sandbox(pod_sandbox_id)?;
        blocking(move || sandbox.limit(linux)).await
    }

    async fn pod_sandbox_status(&self, pod_sandbox_id: &str) -> Result<PodSandboxStatus> {
        Ok(self.inner.sandbox(pod_sandbox_id)?.status())
    }

    async fn list_pod_sandbox(&self, filter: &PodSandboxFilter) -> Result<Vec<PodSandbox>> {
        let all = self.inner.all_sandboxes();
        let matches = |sandbox: &PodSandbox| {
            filter.id.as_ref().is_none_or(|id| sandbox.id.starts_with(id))
                && filter.state.is_none_or(|state| sandbox.state == state)
                && has_labels(&sandbox.labels, &filter.label_selector)
        };
        Ok(all.iter().map(|sandbox| sandbox.listed()).filter(matches).collect())
    }

    async fn create_container(&self, pod_sandbox_id: &str, config: ContainerConfig) -> Result<String> {
        let (inner, sandbox) = (self.inner.clone(), self.inner.sandbox(pod_sandbox_id)?);
        completed(async move {
            // Whoever removes the sandbox removes its containers: all of them.
            let _changing = sandbox.changing.lock().await;
            inner.new_container(&sandbox, config).await
        })
        .await
    }

    async fn start_container(&self, container_id: &str) -> Result<()> {
        let container = self.inner.container(container_id)?;
        let inner = self.inner.clone();
        completed(async move { inner.launch_container(&container).await }).await
    }

    async fn stop_container(&self, container_id: &str, timeout: i64) -> Result<()> {
        let Ok(container) = self.inner.container(container_id) else { return Ok(()) };
        self.inner.stop_container(&container, timeout).await
    }

    async fn remove_container(&self, container_id: &str) -> Result<()> {
        let Ok(container) = self.inner.container(container_id) else { return Ok(()) };
        self.inner.delete_container(&container).await
    }

    async fn container_status(&self, container_id: &str) -> Result<ContainerStatus> {
        Ok(self.inner.container(container_id)?.status())
    }

    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        Ok(matching(&self.inner, filter).iter().map(|container| container.listed()).collect())
    }

    async fn update_container_resources(&self, container_id: &str, linux: LinuxContainerResources) -> Result<()> {
        let container = self.inner.container(container_id)?;
        self.inner.limit_container(&container, linux).await
    }

    async fn reopen_container_log(&self, container_id: &str) -> Result<()> {
        let container = self.inner.container(container_id)?;
        let request = Request::ReopenLog { container_id: container.id.clone() };
        Ok(self.inner.ask(&container.record().pod_sandbox_id, &request).await?)
    }

    async fn exec_sync(&self, container_id: &str, cmd: Vec<String>, timeout: i64) -> Result<ExecSyncResponse> {
        self.inner.exec_sync(container_id, cmd, timeout).await
    }

    async fn exec(&self, request: ExecRequest) -> Result<Streams> {
        self.inner.exec(request).await
    }

    async fn attach(&self, request: AttachRequest) -> Result<Streams> {
        self.inner.attach(request).await
    }

    async fn port_forward(&self, pod_sandbox_id: &str, port: u16) -> Result<TcpStream> {
        self.inner.port_forward(pod_sandbox_id, port).await
    }

    async fn container_stats(&self, container_id: &str) -> Result<ContainerStats> {
        let (inner, container) = (self.inner.clone(), self.inner.container(container_id)?);
        blocking(move || stats(&inner, &container)).await
    }

    async fn list_container_stats(&self, filter: &ContainerFilter) -> Result<Vec<ContainerStats>> {
        let running = ContainerFilter { state: Some(ContainerState::Running), ..filter.clone() };
        let (inner, containers) = (self.inner.clone(), matching(&self.inner, &running));
        // One that has just ended has no figures any more.
        blocking(move || Ok(containers.iter().filter_map(|container| stats(&inner, container).ok()).collect())).await
    }

    fn events(&self) -> mpsc::UnboundedReceiver<ContainerEvent> {
        self.inner.listen()
    }
}

#[async_trait]
impl ImageService for Runtime {
    async fn list_images(&self, filter: Option<&str>) -> Result<Vec<Image>> {
        Ok(match filter {
            Some(name) => self.inner.images.find(name).into_iter().map(|image| image.summary.clone()).collect(),
            None => self.inner.images.all().iter().map(|image| image.summary.clone()).collect(),
        })
    }

    async fn image_status(&self, image: &str) -> Result<Option<Image>> {
        Ok(self.inner.images.find(image).map(|image| image.summary.clone()))
    }

    async fn pull_image(&self, image: &str, auth: Option<&AuthConfig>) -> Result<String> {
        self.pull(image, auth, None).await
    }

    async fn remove_image(&self, image: &str) -> Result<()> {
        self.inner.images.remove(image).await
    }

    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        let root = self.inner.folders.root.clone();
        blocking(move || {
            let [content, snapshots] = ["content", "snapshots"].map(|folder| measure(root.join(folder)));
            let mountpoint = root.to_string_lossy().into_owned();
            let (used_bytes, inodes_used) = (content.0 + snapshots.0, content.1 + snapshots.1);
            Ok(vec![FilesystemUsage { timestamp: now(), mountpoint, used_bytes, inodes_used }])
        })
        .await
    }
}

impl Runtime {
    /// Fetches an image, tells of the progress, and unpacks it, so that no container has to wait for that; its id.
    pub async fn pull(&self, image: &str, auth: Option<&AuthConfig>, watcher: Option<Watcher>) -> Result<String> {
        let id = self.inner.images.pull(image, auth, watcher).await?;
        self.unpack(&id).await?;
        Ok(id)
    }

    /// Takes the images of an archive, and unpacks them; their ids.
    pub async fn import(&self, archive: impl Into<PathBuf>) -> Result<Vec<String>> {
        let ids = self.inner.images.import(archive).await?;
        for id in &ids {
            self.unpack(id).await?;
        }
        Ok(ids)
    }

    /// Unpacks an image, unless that is done or somebody has removed it.
    pub async fn unpack(&self, image: &str) -> Result<()> {
        match self.inner.images.find(image) {
            Some(image) => self.inner.images.unpack(&image).await,
            None => Ok(()),
        }
    }

    /// Makes an image of one executable and the libraries it is linked with, under the names of its commands in /bin; the first
    /// of them runs unless a container says otherwise. The image stays when room is made for others. It is made once: while
    /// the executable does not change, this costs nothing.
    pub async fn import_executable(&self, name: &str, executable: &Path, commands: &[&str]) -> Result<String> {
        let (inner, name, executable) = (self.inner.clone(), name.to_owned(), executable.to_owned());
        let commands: Vec<String> = commands.iter().map(|command| (*command).to_owned()).collect();
        let id = blocking(move || Ok(inner.images.store.make(&name, &executable, &commands)?)).await?;
        let outdated = |image: &&Arc<ImageRecord>| image.made_from.is_some() && image.summary.repo_tags.is_empty();
        for image in self.inner.images.all().iter().filter(outdated) {
            // One that a container still uses goes at the next start.
            let _ = self.remove_image(&image.summary.id).await;
        }
        Ok(id)
    }
}

fn matching(inner: &Inner, filter: &ContainerFilter) -> Vec<Arc<Known>> {
    let mut all = inner.all_containers();
    all.retain(|container| {
        let record = container.record();
        filter.id.as_ref().is_none_or(|id| record.id.starts_with(id))
            && filter.pod_sandbox_id.as_ref().is_none_or(|id| record.pod_sandbox_id.starts_with(id))
            && filter.state.is_none_or(|state| container.state() == state)
            && has_labels(&record.config.labels, &filter.label_selector)
    });
    all
}

fn has_labels(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn stats(inner: &Inner, container: &Known) -> Result<ContainerStats> {
    let record = container.record();
    let (used_bytes, inodes_used) = measure(inner.folders.container(&record.id).join("upper"));
    let mountpoint = inner.folders.root.to_string_lossy().into_owned();
    Ok(ContainerStats {
        usage: record.group.usage()?,
        id: record.id,
        pod_sandbox_id: record.pod_sandbox_id,
        metadata: record.config.metadata,
        labels: record.config.labels,
        timestamp: now(),
        writable_layer: FilesystemUsage { timestamp: now(), mountpoint, used_bytes, inodes_used },
    })
}

/// The bytes and inodes of what is in a folder. Files come and go meanwhile.
pub fn measure(folder: PathBuf) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let (mut bytes, mut inodes) = (0, 0);
    // Programs nest folders as deep as they like, so nothing here descends.
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * 512;
            inodes += 1;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    (bytes, inodes)
}
