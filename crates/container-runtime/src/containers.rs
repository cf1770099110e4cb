//! Containers: from CRI's configuration and the image's to what the shim is told, and through their phases.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::{Arc, Mutex},
};

use tokio::sync::watch;

use crate::{
    cgroups::{DeviceKind, DeviceRule},
    images::{ImageConfig, ImageRecord},
    removal::remove_all,
    runtime::{Inner, PATIENCE, blocking, exit_of, locked},
    sandboxes::{Sandbox, remove_folder},
    security::{MASKED_PATHS, READONLY_PATHS, capabilities, profile, seccomp},
    services::{
        self, ContainerConfig, ContainerEventType, Mount, NamespaceMode, Result, SecurityProfile, ServiceError,
    },
    shim::{
        client::{self, ShimError},
        protocol::{Reply, Request},
        spec::{ContainerSpec, DeviceNode, Exit, LogSpec, Overlay, PidNamespace, ProcessSpec, UserSpec},
    },
    state::{self, ContainerRecord, Folders, now},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Created,
    Running { pid: i32, started_at: i64 },
    Exited(Exit),
}

pub(crate) struct Container {
    pub(crate) id: String,
    record: Mutex<ContainerRecord>,
    /// Goes forward only.
    pub(crate) phase: watch::Sender<Phase>,
}

impl Container {
    pub(crate) fn new(record: ContainerRecord, phase: Phase) -> Self {
        Self { id: record.id.clone(), record: Mutex::new(record), phase: watch::Sender::new(phase) }
    }

    pub(crate) fn record(&self) -> ContainerRecord {
        locked(&self.record).clone()
    }

    pub(crate) fn state(&self) -> services::ContainerState {
        match *self.phase.borrow() {
            Phase::Created => services::ContainerState::Created,
            Phase::Running { .. } => services::ContainerState::Running,
            Phase::Exited(_) => services::ContainerState::Exited,
        }
    }

    pub(crate) fn listed(&self) -> services::Container {
        let record = self.record();
        services::Container {
            id: record.id,
            pod_sandbox_id: record.pod_sandbox_id,
            metadata: record.config.metadata,
            image: record.config.image,
            image_ref: record.image_ref,
            state: self.state(),
            created_at: record.created_at,
            labels: record.config.labels,
            annotations: record.config.annotations,
        }
    }

    pub(crate) fn status(&self) -> services::ContainerStatus {
        let record = self.record();
        let mut status = services::ContainerStatus {
            id: record.id,
            pod_sandbox_id: record.pod_sandbox_id,
            metadata: record.config.metadata,
            state: self.state(),
            created_at: record.created_at,
            started_at: None,
            finished_at: None,
            exit_code: 0,
            image: record.config.image,
            image_ref: record.image_ref,
            reason: String::new(),
            message: String::new(),
            labels: record.config.labels,
            annotations: record.config.annotations,
            mounts: record.config.mounts,
            log_path: record.log_path,
            resources: record.config.linux.resources,
            pid: None,
        };
        match &*self.phase.borrow() {
            Phase::Created => {}
            Phase::Running { pid, started_at } => {
                (status.pid, status.started_at) = (Some(*pid), Some(*started_at));
            }
            Phase::Exited(exit) => {
                (status.started_at, status.finished_at) = (Some(exit.started_at), Some(exit.finished_at));
                status.exit_code = exit.exit_code;
                let reason = match exit {
                    Exit { start_error: Some(_), .. } => "StartError",
                    Exit { oom_killed: true, .. } => "OOMKilled",
                    Exit { exit_code: 0, .. } => "Completed",
                    _ => "Error",
                };
                status.reason = reason.into();
                status.message = exit.start_error.clone().unwrap_or_default();
            }
        }
        status
    }

    /// Changes the record, on disk first.
    fn update(&self, folders: &Folders, change: impl FnOnce(&mut ContainerRecord)) -> Result<()> {
        let mut record = locked(&self.record);
        let mut changed = record.clone();
        change(&mut changed);
        state::write(&folders.container(&self.id).join(state::CONTAINER), &changed)?;
        *record = changed;
        Ok(())
    }
}

impl Inner {
    pub(crate) async fn new_container(
        self: &Arc<Self>,
        sandbox: &Arc<Sandbox>,
        config: ContainerConfig,
    ) -> Result<String> {
        if sandbox.shim().is_none() {
            return Err(ServiceError::FailedPrecondition(format!("pod sandbox {} is not ready", sandbox.id)));
        }
        loop {
            let (inner, sandbox, mut config) = (self.clone(), sandbox.clone(), config.clone());
            let recorded = blocking(move || {
                // Until the record says that it is used, nobody may remove the image.
                let _using = inner.images.using();
                let (image, mounted) = inner.images_of(&mut config)?;
                for image in mounted.iter().chain([&image]) {
                    if !inner.images.snapshots.has_all(image)? {
                        return Ok(Err(image.clone()));
                    }
                }
                let container = inner.record_container(&sandbox, config, &image, &mounted)?;
                let id = container.id.clone();
                inner.add_container(Arc::new(container));
                inner.tell(&id, &sandbox.id, ContainerEventType::Created);
                Ok(Ok(id))
            });
            match recorded.await? {
                Ok(id) => return Ok(id),
                // Nobody else need wait for that.
                Err(image) => self.images.unpack(&image).await?,
            }
        }
    }

    /// The image of a container, and those among its mounts, which are named by their ids from now on.
    fn images_of(&self, config: &mut ContainerConfig) -> Result<(Arc<ImageRecord>, Vec<Arc<ImageRecord>>)> {
        let image = self.images.find(&config.image).ok_or_else(|| {
            ServiceError::NotFound(format!("image {:?} is not here: pull or import it first", config.image))
        })?;
        let mut mounted = Vec::new();
        for mount in config.mounts.iter_mut().filter(|mount| !mount.image.is_empty()) {
            if !mount.host_path.is_empty() {
                let text = format!("the mount on {} is of an image and of a path", mount.container_path);
                return Err(ServiceError::InvalidArgument(text));
            }
            let unknown = || ServiceError::NotFound(format!("image {:?} is not here: pull it first", mount.image));
            let found = self.images.find(&mount.image).ok_or_else(unknown)?;
            mount.image.clone_from(&found.summary.id);
            mounted.push(found);
        }
        Ok((image, mounted))
    }

    fn record_container(
        &self,
        sandbox: &Sandbox,
        config: ContainerConfig,
        image: &ImageRecord,
        mounted: &[Arc<ImageRecord>],
    ) -> Result<Container> {
        let layers = self.images.snapshots.layers(image)?;
        let id = state::new_id()?;
        let pod = sandbox.record();
        let log_path = match config.log_path.as_str() {
            "" => String::new(),
            path => Path::new(&pod.config.log_directory).join(path).to_string_lossy().into_owned(),
        };
        let stop_signal = if config.stop_signal.is_empty() { &image.config.stop_signal } else { &config.stop_signal };
        let record = ContainerRecord {
            id: id.clone(),
            pod_sandbox_id: pod.id.clone(),
            image_ref: image.summary.id.clone(),
            created_at: now(),
            boot_id: self.boot_id.clone(),
            group: pod.group.child(&id),
            log_path,
            stop_signal: signal_number(stop_signal)?,
            started: false,
            config,
        };
        let folder = self.folders.container(&id);
        let mut spec = self.spec(sandbox, &record, &image.config, layers.clone())?;
        for image in mounted {
            spec.image_layers.insert(image.summary.id.clone(), self.images.snapshots.layers_readonly(image)?);
        }
        let written = (|| {
            fs::create_dir(&folder)?;
            for name in ["upper", "work", "rootfs"] {
                fs::create_dir(folder.join(name))?;
            }
            // The root of the container belongs to whom the topmost layer says, and all may enter it, whatever this process's mask is.
            let top = self.folders.snapshots().join(layers.first().map(String::as_str).unwrap_or_default());
            let (top, upper) = (fs::metadata(top)?, folder.join("upper"));
            std::os::unix::fs::chown(&upper, Some(top.uid()), Some(top.gid()))?;
            fs::set_permissions(&upper, fs::Permissions::from_mode(0o755))?;
            state::write(&folder.join(state::SPEC), &spec)?;
            state::write(&folder.join(state::CONTAINER), &record)
        })();
        if let Err(error) = written {
            let _ = remove_all(&folder);
            return Err(error.into());
        }
        Ok(Container::new(record, Phase::Created))
    }

    fn spec(
        &self,
        sandbox: &Sandbox,
        record: &ContainerRecord,
        image: &ImageConfig,
        lower: Vec<String>,
    ) -> Result<ContainerSpec> {
        let config = &record.config;
        let security = &config.linux.security_context;
        let relative = Folders::relative_container(&record.id);
        // From privileged containers nothing is kept, whatever was asked for.
        let paths = |given: &[String], defaults: &[&str]| match given {
            _ if security.privileged => Vec::new(),
            [] => defaults.iter().map(|path| (*path).to_owned()).collect(),
            given => given.to_vec(),
        };
        Ok(ContainerSpec {
            id: record.id.clone(),
            rootfs: Overlay {
                base: self.folders.snapshots(),
                lower,
                upper: format!("{relative}/upper"),
                work: format!("{relative}/work"),
                target: format!("{relative}/rootfs"),
            },
            readonly_rootfs: security.readonly_rootfs,
            mounts: mounts(sandbox, config),
            image_layers: BTreeMap::new(),
            devices: config
                .devices
                .iter()
                .map(|device| DeviceNode {
                    host_path: (&device.host_path).into(),
                    container_path: (&device.container_path).into(),
                })
                .collect(),
            masked_paths: paths(&security.masked_paths, MASKED_PATHS),
            readonly_paths: paths(&security.readonly_paths, READONLY_PATHS),
            privileged: security.privileged,
            pid: match security.namespace_options.pid {
                NamespaceMode::Pod => PidNamespace::Pod,
                NamespaceMode::Container => PidNamespace::Own,
                NamespaceMode::Node => PidNamespace::Host,
                NamespaceMode::Target => PidNamespace::Of(security.namespace_options.target_id.clone()),
            },
            group: record.group.clone(),
            log: (!record.log_path.is_empty()).then(|| LogSpec {
                path: (&record.log_path).into(),
                max_size: self.settings.log_max_size,
                max_files: self.settings.log_max_files,
            }),
            stdin: config.stdin,
            stdin_once: config.stdin_once,
            process: self.process(config, image)?,
            exit_file: self.folders.container(&record.id).join(state::EXIT),
        })
    }

    /// The container's process; a process beside it differs in its command and terminal only.
    fn process(&self, config: &ContainerConfig, image: &ImageConfig) -> Result<ProcessSpec> {
        let security = &config.linux.security_context;
        let args = match (config.command.as_slice(), config.args.as_slice()) {
            ([], []) => [image.entrypoint.as_slice(), &image.cmd].concat(),
            ([], args) => [image.entrypoint.as_slice(), args].concat(),
            (command, args) => [command, args].concat(),
        };
        if args.is_empty() {
            return Err(ServiceError::InvalidArgument("no command specified".into()));
        }
        let capabilities = capabilities::resolve(&security.capabilities, security.privileged, self.held)
            .map_err(ServiceError::InvalidArgument)?;
        let seccomp = match security.seccomp {
            _ if security.privileged => None,
            SecurityProfile::Unconfined => None,
            SecurityProfile::RuntimeDefault => {
                Some(seccomp::runtime_default(capabilities.bounding).map_err(ServiceError::Internal)?)
            }
            SecurityProfile::Localhost => {
                let file = Path::new(&security.seccomp_localhost_ref);
                Some(profile::read(file, capabilities.bounding).map_err(ServiceError::InvalidArgument)?)
            }
        };
        let user = match (security.run_as_user, security.run_as_username.as_str()) {
            (Some(uid), _) => uid.to_string(),
            (None, "") => image.user.clone(),
            (None, name) => name.to_owned(),
        };
        let number = |id: i64| {
            u32::try_from(id).map_err(|_| ServiceError::InvalidArgument(format!("{id} is not the number of a group")))
        };
        Ok(ProcessSpec {
            args,
            env: environment(config, image),
            cwd: if config.working_dir.is_empty() { image.working_dir.clone() } else { config.working_dir.clone() },
            user: UserSpec {
                user,
                group: security.run_as_group.map(number).transpose()?,
                additional_groups: security.supplemental_groups.iter().map(|id| number(*id)).collect::<Result<_>>()?,
                strict_groups: security.supplemental_groups_strict,
            },
            capabilities,
            no_new_privs: security.no_new_privs,
            seccomp,
            oom_score_adj: config.linux.resources.oom_score_adj.clamp(-1000, 1000) as i32,
            tty: config.tty,
        })
    }

    pub(crate) async fn launch_container(self: &Arc<Self>, container: &Arc<Container>) -> Result<()> {
        if container.state() != services::ContainerState::Created {
            let text = format!("container {} is in state {:?}", container.id, container.state());
            return Err(ServiceError::FailedPrecondition(text));
        }
        if container.record().started {
            let text = format!("the start of container {} was interrupted: remove it and create another", container.id);
            return Err(ServiceError::FailedPrecondition(text));
        }
        let (inner, starting) = (self.clone(), container.clone());
        let folder = self.folders.container(&container.id);
        let started = async {
            blocking(move || {
                starting.update(&inner.folders, |record| record.started = true)?;
                let record = starting.record();
                record.group.create()?;
                record.group.set_limits(&record.config.linux.resources)?;
                record.group.set_devices(&device_rules(&record.config)?)?;
                Ok(())
            })
            .await?;
            let sandbox = self.folders.sandbox(&container.record().pod_sandbox_id);
            match client::call(&sandbox, &Request::Start { folder: folder.clone() }).await? {
                (Reply::Started { pid, at, .. }, _) => Ok::<_, ServiceError>((pid, at)),
                _ => Err(ShimError::Protocol.into()),
            }
        };
        match started.await {
            Ok((pid, at)) => {
                self.started(&container.id, pid, at);
                Ok(())
            }
            Err(error) => {
                let exit = Exit {
                    exit_code: 128,
                    started_at: now(),
                    finished_at: now(),
                    oom_killed: false,
                    start_error: Some(error.to_string()),
                };
                // Also if it cannot be recorded: the reason is what has to be told.
                if let Err(error) = state::write(&folder.join(state::EXIT), &exit) {
                    tracing::warn!(container = container.id, %error, "an exit cannot be recorded");
                }
                self.exited(&container.id, exit);
                Err(error)
            }
        }
    }

    pub(crate) async fn stop_container(self: &Arc<Self>, container: &Container, timeout: i64) -> Result<()> {
        if !matches!(*container.phase.borrow(), Phase::Running { .. }) {
            return Ok(());
        }
        let record = container.record();
        let signal = |signal| Request::Signal { container_id: container.id.clone(), signal };
        if let Ok(timeout) = u64::try_from(timeout)
            && timeout > 0
        {
            self.signal(&record.pod_sandbox_id, &signal(record.stop_signal)).await?;
            let patience = std::time::Duration::from_secs(timeout);
            if let Ok(exit) = tokio::time::timeout(patience, exit_of(container)).await {
                return exit.map(|_| ());
            }
        }
        self.signal(&record.pod_sandbox_id, &signal(libc::SIGKILL)).await?;
        match tokio::time::timeout(PATIENCE, exit_of(container)).await {
            Ok(exit) => exit.map(|_| ()),
            Err(_) => Err(ServiceError::DeadlineExceeded(format!("container {} cannot be killed", container.id))),
        }
    }

    /// A shim that is gone has taken the container with it, or is about to be noticed.
    async fn signal(&self, sandbox: &str, request: &Request) -> Result<()> {
        match self.ask(sandbox, request).await {
            Ok(()) | Err(ShimError::Gone) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn delete_container(self: &Arc<Self>, container: &Arc<Container>) -> Result<()> {
        self.stop_container(container, 0).await?;
        let record = container.record();
        let forget = Request::Forget { container_id: container.id.clone() };
        self.signal(&record.pod_sandbox_id, &forget).await?;
        let folder = self.folders.container(&container.id);
        blocking(move || {
            record.group.destroy(PATIENCE)?;
            remove_folder(&folder, state::CONTAINER)
        })
        .await?;
        self.forget_container(&container.id);
        self.tell(&container.id, &container.record().pod_sandbox_id, ContainerEventType::Deleted);
        Ok(())
    }

    pub(crate) async fn limit_container(
        self: &Arc<Self>,
        container: &Arc<Container>,
        resources: services::LinuxContainerResources,
    ) -> Result<()> {
        let (inner, container) = (self.clone(), container.clone());
        blocking(move || {
            if container.state() == services::ContainerState::Running {
                container.record().group.set_limits(&resources)?;
            }
            container.update(&inner.folders, |record| record.config.linux.resources = resources)
        })
        .await
    }
}

/// What was asked for, and before it the files of the sandbox that were not.
fn mounts(sandbox: &Sandbox, config: &ContainerConfig) -> Vec<Mount> {
    let security = &config.linux.security_context;
    // It is the sandbox that has the namespace.
    let shm = match sandbox.record().config.linux.security_context.namespace_options.ipc {
        NamespaceMode::Node => "/dev/shm".into(),
        _ => sandbox.folder.join("shm"),
    };
    let own = [
        ("/dev/shm", shm, false),
        ("/etc/hostname", sandbox.folder.join("hostname"), security.readonly_rootfs),
        ("/etc/resolv.conf", sandbox.folder.join("resolv.conf"), security.readonly_rootfs),
    ];
    let is_given = |path: &str| config.mounts.iter().any(|mount| mount.container_path == path);
    let own = own.into_iter().filter(|(path, ..)| !is_given(path)).map(|(path, source, readonly)| Mount {
        container_path: path.into(),
        host_path: source.to_string_lossy().into_owned(),
        readonly,
        ..Default::default()
    });
    let mut given = config.mounts.clone();
    // A mount on /a must not hide one on /a/b.
    given.sort_by_key(|mount| Path::new(&mount.container_path).components().count());
    own.chain(given).collect()
}

/// The image's variables, under those of the container.
fn environment(config: &ContainerConfig, image: &ImageConfig) -> Vec<String> {
    const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let mut all: Vec<String> = Vec::new();
    let given = config.envs.iter().map(|env| format!("{}={}", env.key, env.value));
    let terminal = config.tty.then(|| "TERM=xterm".to_owned());
    for entry in [PATH.to_owned()].into_iter().chain(terminal).chain(image.env.iter().cloned()).chain(given) {
        let name = entry.split('=').next().unwrap_or_default().to_owned() + "=";
        match all.iter_mut().find(|known| known.starts_with(&name)) {
            Some(known) => *known = entry,
            None => all.push(entry),
        }
    }
    all
}

fn device_rules(config: &ContainerConfig) -> Result<Vec<DeviceRule>> {
    use std::os::unix::fs::FileTypeExt;
    if config.linux.security_context.privileged {
        return Ok(DeviceRule::everything());
    }
    let mut rules = DeviceRule::defaults();
    for device in &config.devices {
        let metadata = fs::metadata(&device.host_path)
            .map_err(|error| ServiceError::InvalidArgument(format!("device {}: {error}", device.host_path)))?;
        let kind = if metadata.file_type().is_block_device() { DeviceKind::Block } else { DeviceKind::Char };
        let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        rules.push(DeviceRule::new(kind, Some(major), Some(minor), &device.permissions));
    }
    Ok(rules)
}

/// `SIGTERM`, `TERM`, `15`, `SIGRTMIN+3`; empty is SIGTERM.
fn signal_number(name: &str) -> Result<i32> {
    const NAMES: &[(&str, i32)] = &[
        ("ABRT", libc::SIGABRT),
        ("ALRM", libc::SIGALRM),
        ("BUS", libc::SIGBUS),
        ("CHLD", libc::SIGCHLD),
        ("CONT", libc::SIGCONT),
        ("FPE", libc::SIGFPE),
        ("HUP", libc::SIGHUP),
        ("ILL", libc::SIGILL),
        ("INT", libc::SIGINT),
        ("IO", libc::SIGIO),
        ("KILL", libc::SIGKILL),
        ("PIPE", libc::SIGPIPE),
        ("PROF", libc::SIGPROF),
        ("PWR", libc::SIGPWR),
        ("QUIT", libc::SIGQUIT),
        ("RTMAX", 64),
        ("RTMIN", 34),
        ("SEGV", libc::SIGSEGV),
        ("STOP", libc::SIGSTOP),
        ("SYS", libc::SIGSYS),
        ("TERM", libc::SIGTERM),
        ("TRAP", libc::SIGTRAP),
        ("TSTP", libc::SIGTSTP),
        ("TTIN", libc::SIGTTIN),
        ("TTOU", libc::SIGTTOU),
        ("URG", libc::SIGURG),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
        ("VTALRM", libc::SIGVTALRM),
        ("WINCH", libc::SIGWINCH),
        ("XCPU", libc::SIGXCPU),
        ("XFSZ", libc::SIGXFSZ),
    ];
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = |name: &str| NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = match plain.split_once(['+', '-']) {
        _ if plain.is_empty() => Some(libc::SIGTERM),
        Some(("RTMIN", offset)) => offset.parse::<i32>().ok().map(|offset| 34 + offset),
        Some(("RTMAX", offset)) => offset.parse::<i32>().ok().map(|offset| 64 - offset),
        _ => named(plain).or_else(|| plain.parse().ok()),
    };
    number
        .filter(|number| (1..=64).contains(number))
        .ok_or_else(|| ServiceError::InvalidArgument(format!("{name:?} is not a signal")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::KeyValue;

    #[test]
    fn signals_by_name_and_number() {
        let numbers = ["", "SIGUSR1", "term", "9", "SIGRTMIN+3", "SIGRTMAX-1"].map(|name| signal_number(name).ok());
        assert_eq!(numbers, [Some(15), Some(10), Some(15), Some(9), Some(37), Some(63)]);
        assert!(signal_number("SIGNAL").is_err() && signal_number("65").is_err());
    }

    #[test]
    fn variables_of_the_container_win() {
        let image = ImageConfig { env: vec!["A=image".into(), "B=image".into()], ..Default::default() };
        let envs = vec![KeyValue { key: "B".into(), value: "mine".into() }];
        let config = ContainerConfig { envs, ..Default::default() };
        assert_eq!(environment(&config, &image)[1..], ["A=image".to_owned(), "B=mine".to_owned()]);
    }
}
