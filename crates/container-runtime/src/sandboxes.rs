//! Sandboxes: what containers of a pod share, and the shim that holds it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use crate::{
    removal::remove_all,
    runtime::{Inner, PATIENCE, blocking, locked},
    services::{
        ContainerEventType, DnsConfig, LinuxContainerResources, NamespaceMode, PodSandbox, PodSandboxConfig,
        PodSandboxState, PodSandboxStatus, Result, SandboxNetwork, ServiceError,
    },
    shim::{
        self,
        client::{self, Connection, ShimError},
        protocol::Request,
        spec::SandboxSpec,
    },
    state::{self, Folders, SandboxRecord, now},
};

/// Ready while its shim answers.
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) folder: PathBuf,
    record: Mutex<SandboxRecord>,
    /// The shim's process, while it is known to be there.
    shim: Mutex<Option<i32>>,
    /// One at a time makes, stops or removes it, or adds a container.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl Sandbox {
    pub(crate) fn new(record: SandboxRecord, folders: Folders) -> Self {
        let id = record.id.clone();
        let folder = folders.sandbox(&id);
        Self { id, folder, record: Mutex::new(record), shim: Mutex::new(None), changing: tokio::sync::Mutex::new(()) }
    }

    pub(crate) fn record(&self) -> SandboxRecord {
        locked(&self.record).clone()
    }

    /// Changes the record, on disk first.
    fn update(&self, change: impl FnOnce(&mut SandboxRecord)) -> Result<()> {
        let mut record = locked(&self.record);
        let mut changed = record.clone();
        change(&mut changed);
        state::write(&self.folder.join(state::SANDBOX), &changed)?;
        *record = changed;
        Ok(())
    }

    /// Limits the pod as a whole. A group that is gone has no limits.
    pub(crate) fn limit(&self, resources: LinuxContainerResources) -> Result<()> {
        let group = self.record().group;
        if group.exists() {
            group.set_limits(&resources)?;
        }
        self.update(|record| record.config.linux.resources = resources)
    }

    /// Notes whether there is a shim, and tells whether there was one.
    pub(crate) fn set_ready(&self, shim: Option<i32>) -> bool {
        std::mem::replace(&mut *locked(&self.shim), shim).is_some()
    }

    pub(crate) fn shim(&self) -> Option<i32> {
        *locked(&self.shim)
    }

    pub(crate) fn state(&self) -> PodSandboxState {
        if self.shim().is_some() { PodSandboxState::Ready } else { PodSandboxState::NotReady }
    }

    fn netns(&self) -> String {
        self.shim().map(|pid| format!("/proc/{pid}/ns/net")).unwrap_or_default()
    }

    pub(crate) fn listed(&self) -> PodSandbox {
        let SandboxRecord { id, config, created_at, .. } = self.record();
        let PodSandboxConfig { metadata, labels, annotations, .. } = config;
        PodSandbox { id, metadata, state: self.state(), created_at, labels, annotations }
    }

    pub(crate) fn status(&self) -> PodSandboxStatus {
        let SandboxRecord { id, config, created_at, ips, .. } = self.record();
        PodSandboxStatus {
            id,
            metadata: config.metadata,
            state: self.state(),
            created_at,
            ips,
            netns: self.netns(),
            linux: config.linux.security_context.namespace_options,
            labels: config.labels,
            annotations: config.annotations,
        }
    }
}

impl Inner {
    pub(crate) async fn run_sandbox(self: &Arc<Self>, config: PodSandboxConfig) -> Result<String> {
        if config.linux.security_context.namespace_options.userns {
            return Err(ServiceError::Unimplemented(
                "this runtime has no user namespaces yet: set hostUsers to true".into(),
            ));
        }
        let id = state::new_id()?;
        let group = match config.linux.cgroup_parent.as_str() {
            "" => self.layout.group(&self.settings.cgroup).child(&id),
            parent => self.layout.group(parent),
        };
        let record = SandboxRecord {
            id: id.clone(),
            created_at: now(),
            boot_id: self.boot_id.clone(),
            owns_group: !group.exists(),
            group,
            complete: false,
            has_network: false,
            ips: Vec::new(),
            config,
        };
        let sandbox = Arc::new(Sandbox::new(record, self.folders.clone()));
        let _changing = sandbox.changing.lock().await;
        self.add_sandbox(sandbox.clone());
        if let Err(error) = self.make_sandbox(&sandbox).await {
            if let Err(error) = self.delete_sandbox(&sandbox).await {
                tracing::warn!(sandbox = id, %error, "what is left of a sandbox that did not start cannot be removed yet");
            }
            return Err(error);
        }
        self.tell(&id, &id, ContainerEventType::Created);
        self.tell(&id, &id, ContainerEventType::Started);
        Ok(id)
    }

    async fn make_sandbox(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        let config = sandbox.record().config;
        let namespaces = &config.linux.security_context.namespace_options;
        let own_network = namespaces.network != NamespaceMode::Node;
        let spec = SandboxSpec {
            id: sandbox.id.clone(),
            hostname: config.hostname.clone(),
            own_network,
            own_ipc: namespaces.ipc != NamespaceMode::Node,
            shared_pid: namespaces.pid == NamespaceMode::Pod,
            sysctls: config.linux.sysctls.clone(),
            shim_group: self.layout.group(&self.settings.cgroup).child("shims"),
        };
        let (made, dns, hostname) = (sandbox.clone(), config.dns_config.clone(), config.hostname.clone());
        blocking(move || {
            fs::create_dir(&made.folder)?;
            // Whatever there will be of a network is taken down by this.
            made.update(|record| record.has_network = own_network)?;
            made.record().group.create()?;
            made.record().group.set_limits(&made.record().config.linux.resources)?;
            let hostname = if hostname.is_empty() { node_name() } else { hostname };
            for (name, text) in [("resolv.conf", resolv_conf(dns.as_ref())), ("hostname", format!("{hostname}\n"))] {
                let file = made.folder.join(name);
                fs::write(&file, text)?;
                // For every user of the pod, whatever this process's mask is.
                fs::set_permissions(file, fs::Permissions::from_mode(0o644))?;
            }
            state::write(&made.folder.join(shim::SPEC), &spec)?;
            Ok(())
        })
        .await?;
        client::launch(&self.settings.shim, &sandbox.folder).await?;
        let connection = self.subscribe(sandbox).await?;
        self.follow(sandbox, connection);
        let mut ips = Vec::new();
        if own_network {
            let netns = sandbox.netns();
            let network = SandboxNetwork { pod_sandbox_id: &sandbox.id, netns: &netns, config: &config };
            let failed = |error| ServiceError::Internal(format!("failed to setup network for sandbox: {error}"));
            ips = self.network.set_up(network).await.map_err(failed)?;
        }
        let sandbox = sandbox.clone();
        blocking(move || sandbox.update(|record| (record.ips, record.complete) = (ips, true))).await
    }

    /// Ends everything that runs in a sandbox. Its records stay.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        for container in self.containers_of(&sandbox.id) {
            self.stop_container(&container, 0).await?;
        }
        let record = sandbox.record();
        if record.has_network {
            let netns = sandbox.netns();
            let network = SandboxNetwork { pod_sandbox_id: &sandbox.id, netns: &netns, config: &record.config };
            let failed =
                |error| ServiceError::Internal(format!("failed to tear down the network of a sandbox: {error}"));
            self.network.tear_down(network).await.map_err(failed)?;
        }
        // Also one that came to be when nobody followed it.
        match Connection::open(&sandbox.folder).await {
            Ok(connection) => {
                let pid = connection.peer()?;
                match connection.insist(&Request::Shutdown).await {
                    Ok(_) | Err(ShimError::Gone) => {}
                    Err(error) => return Err(error.into()),
                }
                ended(pid).await?;
            }
            Err(ShimError::Gone) => {}
            Err(error) => return Err(error.into()),
        }
        if sandbox.set_ready(None) {
            self.tell(&sandbox.id, &sandbox.id, ContainerEventType::Stopped);
        }
        let stopped = sandbox.clone();
        blocking(move || {
            if record.has_network {
                stopped.update(|record| record.has_network = false)?;
            }
            match rustix::mount::unmount(stopped.folder.join("shm"), rustix::mount::UnmountFlags::DETACH) {
                // It is no mount, or was never made.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(ServiceError::Internal(format!("cannot unmount shared memory: {error}"))),
            }
            if record.owns_group {
                record.group.destroy(PATIENCE)?;
            }
            Ok(())
        })
        .await
    }

    pub(crate) async fn delete_sandbox(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        self.stop_sandbox(sandbox).await?;
        for container in self.containers_of(&sandbox.id) {
            self.delete_container(&container).await?;
        }
        let folder = sandbox.folder.clone();
        blocking(move || remove_folder(&folder, state::SANDBOX)).await?;
        self.forget_sandbox(&sandbox.id);
        self.tell(&sandbox.id, &sandbox.id, ContainerEventType::Deleted);
        Ok(())
    }
}

/// Waits for the end of a process that is not ours to wait for.
async fn ended(pid: i32) -> Result<()> {
    let Some(pid) = rustix::process::Pid::from_raw(pid) else { return Ok(()) };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::NONBLOCK) else { return Ok(()) };
    // SAFETY: the value owns its descriptor, and gives the same one for as long as it lives.
    let pidfd = unsafe { tokio::io::unix::AsyncFd::register(pidfd) }.map_err(std::io::Error::from)?;
    match tokio::time::timeout(PATIENCE, pidfd.readable()).await {
        Ok(_) => Ok(()),
        Err(_) => Err(ServiceError::DeadlineExceeded("the pod's shim does not end".into())),
    }
}

/// Removes a folder, its record last: what is left after a crash is found again by the record.
pub(crate) fn remove_folder(folder: &std::path::Path, record: &str) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == record {
            continue;
        }
        remove_all(&entry.path())?;
    }
    Ok(remove_all(folder)?)
}

/// The node's own, where the pod says nothing.
fn resolv_conf(dns: Option<&DnsConfig>) -> String {
    let Some(dns) = dns else { return fs::read_to_string("/etc/resolv.conf").unwrap_or_default() };
    let mut text = String::new();
    for server in &dns.servers {
        text += &format!("nameserver {server}\n");
    }
    if !dns.searches.is_empty() {
        text += &format!("search {}\n", dns.searches.join(" "));
    }
    if !dns.options.is_empty() {
        text += &format!("options {}\n", dns.options.join(" "));
    }
    text
}

fn node_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
