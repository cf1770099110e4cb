//! A runtime in memory: containers run until they are stopped or a test ends them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use container_runtime::services::*;
use tokio::sync::{mpsc, watch};

/// Images of this registry can be fetched, others cannot.
pub const REGISTRY: &str = "registry.example.com/";

#[derive(Default)]
pub struct FakeRuntime {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: i64,
    sandboxes: BTreeMap<String, PodSandboxStatus>,
    /// Of pods as a whole, by the sandbox.
    limits: BTreeMap<String, LinuxContainerResources>,
    containers: BTreeMap<String, ContainerStatus>,
    images: BTreeSet<String>,
    listeners: Vec<mpsc::UnboundedSender<ContainerEvent>>,
    /// Names of containers and what was done with them, in this order.
    done: Vec<String>,
    /// Where the containers of each sandbox have their logs.
    log_folders: BTreeMap<String, PathBuf>,
    /// Commands that fail, by their first word.
    failing: BTreeSet<String>,
    /// Commands that cannot be run.
    broken: BTreeSet<String>,
    /// How many sandboxes cannot be made.
    broken_sandboxes: u32,
    /// Containers that end when their time is over, and not before.
    stubborn: BTreeSet<String>,
    /// The times that containers were given to end, in this order.
    graces: Vec<i64>,
    /// Images take until this is given up.
    slow: Option<watch::Receiver<()>>,
    /// Sandboxes stay until this is given up.
    staying: Option<watch::Receiver<()>>,
    /// It does not say how it is until this is given up.
    silent: Option<watch::Receiver<()>>,
}

impl State {
    fn tell(&mut self, sandbox: &str, container: &str, what: ContainerEventType) {
        let event = ContainerEvent {
            container_id: container.to_owned(),
            pod_sandbox_id: sandbox.to_owned(),
            container_event_type: what,
            created_at: 0,
        };
        self.listeners.retain(|listener| listener.send(event.clone()).is_ok());
    }

    fn end(&mut self, id: &str, exit_code: i32) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.state != ContainerState::Running {
            return;
        }
        container.state = ContainerState::Exited;
        container.exit_code = exit_code;
        container.finished_at = Some(now());
        container.reason = if exit_code == 0 { "Completed" } else { "Error" }.into();
        let (sandbox, name) = (container.pod_sandbox_id.clone(), container.metadata.name.clone());
        self.done.push(format!("ended {name}"));
        self.tell(&sandbox, id, ContainerEventType::Stopped);
    }
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time after 1970");
    i64::try_from(now.as_nanos()).expect("a time before 2262")
}

impl FakeRuntime {
    pub fn new() -> Arc<Self> {
        let runtime = Self::default();
        runtime.state().images.insert("docker.io/library/present:1".into());
        Arc::new(runtime)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a lock")
    }

    /// Ends the running container of a name.
    pub fn exit(&self, name: &str, exit_code: i32) {
        let mut state = self.state();
        let running = state.containers.values().filter(|container| container.state == ContainerState::Running);
        let id =
            running.filter(|container| container.metadata.name == name).map(|container| container.id.clone()).next();
        state.end(&id.expect("a running container"), exit_code);
    }

    /// Ends a sandbox and all in it, as when its shim dies.
    pub fn kill_sandboxes(&self) {
        let mut state = self.state();
        let running: Vec<String> = state.containers.keys().cloned().collect();
        running.iter().for_each(|id| state.end(id, 137));
        let sandboxes: Vec<String> = state.sandboxes.keys().cloned().collect();
        for id in sandboxes {
            if let Some(sandbox) = state.sandboxes.get_mut(&id) {
                sandbox.state = PodSandboxState::NotReady;
            }
            state.tell(&id, &id, ContainerEventType::Stopped);
        }
    }

    pub fn fail_commands(&self, first_word: &str, fails: bool) {
        let mut state = self.state();
        match fails {
            true => state.failing.insert(first_word.to_owned()),
            false => state.failing.remove(first_word),
        };
    }

    pub fn break_commands(&self, first_word: &str) {
        self.state().broken.insert(first_word.to_owned());
    }

    pub fn break_sandboxes(&self, count: u32) {
        self.state().broken_sandboxes = count;
    }

    pub fn make_stubborn(&self, name: &str) {
        self.state().stubborn.insert(name.to_owned());
    }

    pub fn graces(&self) -> Vec<i64> {
        self.state().graces.clone()
    }

    /// No image comes before the answer is dropped.
    pub fn hold_images(&self) -> watch::Sender<()> {
        let (hold, slow) = watch::channel(());
        self.state().slow = Some(slow);
        hold
    }

    /// No sandbox stops before the answer is dropped.
    pub fn hold_sandboxes(&self) -> watch::Sender<()> {
        let (hold, staying) = watch::channel(());
        self.state().staying = Some(staying);
        hold
    }

    /// It does not say how it is before the answer is dropped.
    pub fn hold_status(&self) -> watch::Sender<()> {
        let (hold, silent) = watch::channel(());
        self.state().silent = Some(silent);
        hold
    }

    pub fn done(&self) -> Vec<String> {
        self.state().done.clone()
    }

    pub fn sandboxes(&self) -> usize {
        self.state().sandboxes.len()
    }

    /// The limits of all pods as a whole.
    pub fn limits(&self) -> Vec<LinuxContainerResources> {
        self.state().limits.values().cloned().collect()
    }

    pub fn forget_limits(&self) {
        self.state().limits.clear();
    }

    pub fn containers(&self) -> Vec<ContainerStatus> {
        self.state().containers.values().cloned().collect()
    }
}

/// Waits until nobody holds it back any more.
async fn given_up(held: Option<watch::Receiver<()>>) {
    if let Some(mut held) = held {
        while held.changed().await.is_ok() {}
    }
}

fn has_labels(labels: &Labels, wanted: &Labels) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn missing<T>(what: &str) -> Result<T> {
    Err(ServiceError::NotFound(format!("{what} is not there")))
}

fn cannot<T>() -> Result<T> {
    Err(ServiceError::Unimplemented("the runtime of the tests does not do that".into()))
}

#[async_trait]
impl RuntimeService for FakeRuntime {
    async fn version(&self) -> Result<VersionResponse> {
        Ok(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "fake".into(),
            runtime_version: "1".into(),
            runtime_api_version: "v1".into(),
        })
    }

    async fn status(&self) -> Result<Vec<RuntimeCondition>> {
        let silent = self.state().silent.clone();
        given_up(silent).await;
        Ok(Vec::new())
    }

    async fn run_pod_sandbox(&self, config: PodSandboxConfig) -> Result<String> {
        let mut state = self.state();
        if state.broken_sandboxes > 0 {
            state.broken_sandboxes -= 1;
            return Err(ServiceError::Internal("no sandbox today".into()));
        }
        state.next += 1;
        let (id, number) = (format!("sandbox{}", state.next), state.next);
        let sandbox = PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata,
            state: PodSandboxState::Ready,
            created_at: number,
            ips: vec![IpAddr::from([10, 1, 0, u8::try_from(number % 250).expect("a small number")])],
            netns: String::new(),
            linux: config.linux.security_context.namespace_options,
            labels: config.labels,
            annotations: config.annotations,
        };
        state.sandboxes.insert(id.clone(), sandbox);
        state.limits.insert(id.clone(), config.linux.resources);
        state.log_folders.insert(id.clone(), config.log_directory.into());
        state.tell(&id, &id, ContainerEventType::Started);
        Ok(id)
    }

    async fn stop_pod_sandbox(&self, id: &str) -> Result<()> {
        let staying = self.state().staying.clone();
        given_up(staying).await;
        let mut state = self.state();
        let inside: Vec<String> =
            state.containers.values().filter(|c| c.pod_sandbox_id == id).map(|c| c.id.clone()).collect();
        inside.iter().for_each(|container| state.end(container, 137));
        if let Some(sandbox) = state.sandboxes.get_mut(id) {
            sandbox.state = PodSandboxState::NotReady;
            state.tell(id, id, ContainerEventType::Stopped);
        }
        Ok(())
    }

    async fn remove_pod_sandbox(&self, id: &str) -> Result<()> {
        self.stop_pod_sandbox(id).await?;
        let mut state = self.state();
        state.containers.retain(|_, container| container.pod_sandbox_id != id);
        if state.sandboxes.remove(id).is_some() {
            state.tell(id, id, ContainerEventType::Deleted);
        }
        Ok(())
    }

    async fn update_pod_sandbox_resources(&self, id: &str, resources: LinuxContainerResources) -> Result<()> {
        let mut state = self.state();
        if !state.sandboxes.contains_key(id) {
            return missing(id);
        }
        state.limits.insert(id.to_owned(), resources);
        Ok(())
    }

    async fn pod_sandbox_status(&self, id: &str) -> Result<PodSandboxStatus> {
        self.state().sandboxes.get(id).cloned().map_or_else(|| missing(id), Ok)
    }

    async fn list_pod_sandbox(&self, filter: &PodSandboxFilter) -> Result<Vec<PodSandbox>> {
        let state = self.state();
        let found = state.sandboxes.values().filter(|sandbox| has_labels(&sandbox.labels, &filter.label_selector));
        let listed = found.map(|sandbox| PodSandbox {
            id: sandbox.id.clone(),
            metadata: sandbox.metadata.clone(),
            state: sandbox.state,
            created_at: sandbox.created_at,
            labels: sandbox.labels.clone(),
            annotations: sandbox.annotations.clone(),
        });
        Ok(listed.collect())
    }

    async fn create_container(&self, pod_sandbox_id: &str, config: ContainerConfig) -> Result<String> {
        let mut state = self.state();
        if !state.sandboxes.contains_key(pod_sandbox_id) {
            return missing(pod_sandbox_id);
        }
        state.next += 1;
        let id = format!("container{}", state.next);
        let log_path = state.log_folders.get(pod_sandbox_id).expect("a folder").join(&config.log_path);
        let container = ContainerStatus {
            id: id.clone(),
            pod_sandbox_id: pod_sandbox_id.to_owned(),
            metadata: config.metadata,
            state: ContainerState::Created,
            created_at: state.next,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            image: config.image.clone(),
            image_ref: config.image,
            reason: String::new(),
            message: String::new(),
            labels: config.labels,
            annotations: config.annotations,
            mounts: config.mounts,
            log_path: log_path.to_string_lossy().into_owned(),
            resources: config.linux.resources,
            pid: None,
        };
        state.containers.insert(id.clone(), container);
        state.tell(pod_sandbox_id, &id, ContainerEventType::Created);
        Ok(id)
    }

    async fn start_container(&self, id: &str) -> Result<()> {
        let mut state = self.state();
        let Some(container) = state.containers.get_mut(id) else { return missing(id) };
        container.state = ContainerState::Running;
        container.started_at = Some(now());
        let log = PathBuf::from(&container.log_path);
        fs::create_dir_all(log.parent().expect("a folder")).expect("it is made");
        fs::write(log, "").expect("a log");
        let (sandbox, name) = (container.pod_sandbox_id.clone(), container.metadata.name.clone());
        state.done.push(format!("started {name}"));
        state.tell(&sandbox, id, ContainerEventType::Started);
        Ok(())
    }

    async fn stop_container(&self, id: &str, grace: i64) -> Result<()> {
        let is_stubborn = {
            let mut state = self.state();
            state.graces.push(grace);
            let name = state.containers.get(id).map(|container| container.metadata.name.clone());
            name.is_some_and(|name| state.stubborn.contains(&name))
        };
        if is_stubborn {
            tokio::time::sleep(Duration::from_secs(grace.cast_unsigned())).await;
        }
        self.state().end(id, 143);
        Ok(())
    }

    async fn remove_container(&self, id: &str) -> Result<()> {
        let mut state = self.state();
        state.end(id, 137);
        if let Some(container) = state.containers.remove(id) {
            state.tell(&container.pod_sandbox_id, id, ContainerEventType::Deleted);
        }
        Ok(())
    }

    async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        self.state().containers.get(id).cloned().map_or_else(|| missing(id), Ok)
    }

    async fn list_containers(&self, filter: &ContainerFilter) -> Result<Vec<Container>> {
        let state = self.state();
        let found = state.containers.values().filter(|container| has_labels(&container.labels, &filter.label_selector));
        let listed = found.map(|container| Container {
            id: container.id.clone(),
            pod_sandbox_id: container.pod_sandbox_id.clone(),
            metadata: container.metadata.clone(),
            image: container.image.clone(),
            image_ref: container.image_ref.clone(),
            state: container.state,
            created_at: container.created_at,
            labels: container.labels.clone(),
            annotations: container.annotations.clone(),
        });
        Ok(listed.collect())
    }

    async fn update_container_resources(&self, id: &str, resources: LinuxContainerResources) -> Result<()> {
        let mut state = self.state();
        let Some(container) = state.containers.get_mut(id) else { return missing(id) };
        container.resources = resources;
        Ok(())
    }

    async fn reopen_container_log(&self, _: &str) -> Result<()> {
        cannot()
    }

    async fn exec_sync(&self, _: &str, cmd: Vec<String>, _: i64) -> Result<ExecSyncResponse> {
        let mut state = self.state();
        state.done.push(format!("ran {}", cmd.join(" ")));
        if cmd.first().is_some_and(|first| state.broken.contains(first)) {
            return Err(ServiceError::Internal("nobody can run it".into()));
        }
        let fails = cmd.first().is_some_and(|first| state.failing.contains(first));
        let stdout = if fails { b"it does not work".to_vec() } else { Vec::new() };
        Ok(ExecSyncResponse { stdout, stderr: Vec::new(), exit_code: i32::from(fails) })
    }

    async fn exec(&self, _: ExecRequest) -> Result<Streams> {
        cannot()
    }

    async fn attach(&self, _: AttachRequest) -> Result<Streams> {
        cannot()
    }

    async fn port_forward(&self, _: &str, _: u16) -> Result<tokio::net::TcpStream> {
        cannot()
    }

    async fn container_stats(&self, _: &str) -> Result<ContainerStats> {
        cannot()
    }

    async fn list_container_stats(&self, _: &ContainerFilter) -> Result<Vec<ContainerStats>> {
        Ok(Vec::new())
    }

    fn events(&self) -> mpsc::UnboundedReceiver<ContainerEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.state().listeners.push(sender);
        receiver
    }
}

fn image(name: &str) -> Image {
    Image { id: name.to_owned(), repo_tags: vec![name.to_owned()], size: 1000, ..Image::default() }
}

#[async_trait]
impl ImageService for FakeRuntime {
    async fn list_images(&self, _: Option<&str>) -> Result<Vec<Image>> {
        Ok(self.state().images.iter().map(|name| image(name)).collect())
    }

    async fn image_status(&self, name: &str) -> Result<Option<Image>> {
        Ok(self.state().images.get(name).map(|name| image(name)))
    }

    async fn pull_image(&self, name: &str, _: Option<&AuthConfig>) -> Result<String> {
        if !name.starts_with(REGISTRY) {
            return Err(ServiceError::Internal("nobody answers".into()));
        }
        let slow = self.state().slow.clone();
        given_up(slow).await;
        self.state().images.insert(name.to_owned());
        Ok(name.to_owned())
    }

    async fn remove_image(&self, _: &str) -> Result<()> {
        cannot()
    }

    async fn image_fs_info(&self) -> Result<Vec<FilesystemUsage>> {
        Ok(Vec::new())
    }
}
