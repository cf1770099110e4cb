//! The runtime: all sandboxes and containers, what happens to them, and how they are found again.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, watch};

use crate::{
    cgroups::Layout,
    containers::{Container, Phase},
    images::Images,
    removal::remove_all,
    sandboxes::Sandbox,
    security::capabilities,
    services::{ContainerEvent, ContainerEventType, PodNetwork, Result, RuntimeService, ServiceError},
    shim::{
        client::{self, Connection, ShimError},
        protocol::{Reply, Report, Request},
        spec::Exit,
    },
    state::{self, Folders, now},
};

/// How long processes may take to end after they were killed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Until a shim that could not be reached is tried again.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// What a runtime is told at its start.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where images, snapshots and records are kept. One runtime at a time.
    pub root: PathBuf,
    /// The executable that is a shim when it is started as one; `/proc/self/exe` where `main` begins with
    /// [`crate::shim::dispatch`].
    pub shim: PathBuf,
    /// The group above those that callers do not name: of the shims, and of pods without `cgroup_parent`.
    pub cgroup: String,
    /// When a container's log is rotated.
    pub log_max_size: u64,
    /// How many files of a container's log are kept, the current one included.
    pub log_max_files: usize,
    /// How registries are reached: [`crate::registry::Hosts`]. The file need not exist, and is read again for each image.
    pub registries: PathBuf,
}

impl Settings {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let root = root.into();
        Self {
            registries: root.join("registries.yaml"),
            root,
            shim: "/proc/self/exe".into(),
            cgroup: "/ferry".into(),
            log_max_size: 10 << 20,
            log_max_files: 5,
        }
    }
}

/// Whether something failed because this process, or the machine, has no more to give at the moment.
fn is_want(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
}

/// Our container runtime. Clones are the same runtime; pods go on when the last one is dropped.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    pub(crate) folders: Folders,
    pub(crate) layout: Layout,
    /// The capabilities that this process has to give.
    pub(crate) held: u64,
    pub(crate) boot_id: String,
    pub(crate) images: Images,
    pub(crate) network: Arc<dyn PodNetwork>,
    sandboxes: Mutex<BTreeMap<String, Arc<Sandbox>>>,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    listeners: Mutex<Vec<mpsc::UnboundedSender<ContainerEvent>>>,
}

/// Nothing is left half done under these locks, so a panic elsewhere does not spoil what they hold.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs work that waits for files, away from the threads that must not wait.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(ServiceError::Internal(error.to_string())))
}

/// Does work to its end, also if whoever asked for it does not wait for the answer.
pub(crate) async fn completed<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    tokio::spawn(work).await.unwrap_or_else(|error| Err(ServiceError::Internal(error.to_string())))
}

impl From<io::Error> for ServiceError {
    fn from(error: io::Error) -> Self {
        Self::Internal(error.to_string())
    }
}

impl From<ShimError> for ServiceError {
    fn from(error: ShimError) -> Self {
        match error {
            ShimError::Gone => Self::FailedPrecondition(error.to_string()),
            _ => Self::Internal(error.to_string()),
        }
    }
}

impl From<crate::cgroups::CgroupError> for ServiceError {
    fn from(error: crate::cgroups::CgroupError) -> Self {
        Self::Internal(error.to_string())
    }
}

impl Runtime {
    /// Opens the folder, and finds the pods again that an earlier runtime has left: those whose shims answer go on, and what
    /// is left of the others is taken down. When this returns, every record has been looked at.
    pub async fn open(settings: Settings, network: Arc<dyn PodNetwork>) -> Result<Self> {
        let inner = blocking(move || {
            let folders = Folders::create(&settings.root)?;
            let layout = Layout::detect()?;
            let shims = layout.group(&settings.cgroup).child("shims");
            shims.create()?;
            Ok(Inner {
                held: capabilities::held()?,
                boot_id: state::boot_id()?,
                images: Images::open(&settings.root, settings.registries.clone())?,
                network,
                sandboxes: Mutex::default(),
                containers: Mutex::default(),
                listeners: Mutex::default(),
                settings,
                folders,
                layout,
            })
        })
        .await?;
        let runtime = Self { inner: Arc::new(inner) };
        runtime.recover().await?;
        Ok(runtime)
    }

    /// The images that it has.
    pub fn images(&self) -> &Images {
        &self.inner.images
    }

    /// Removes all pods, all images, and everything else that the runtime has made.
    pub async fn purge(self) -> Result<()> {
        for sandbox in self.inner.all_sandboxes() {
            self.remove_pod_sandbox(&sandbox.id).await?;
        }
        let inner = self.inner;
        blocking(move || {
            inner.layout.group(&inner.settings.cgroup).destroy(PATIENCE)?;
            Ok(remove_all(&inner.folders.root)?)
        })
        .await
    }

    async fn recover(&self) -> Result<()> {
        let folders = self.inner.folders.clone();
        let (sandboxes, containers) = blocking(move || {
            Ok((records(&folders.sandboxes(), state::SANDBOX)?, records(&folders.containers(), state::CONTAINER)?))
        })
        .await?;
        for record in sandboxes {
            let sandbox = Sandbox::new(record, self.inner.folders.clone());
            locked(&self.inner.sandboxes).insert(sandbox.id.clone(), Arc::new(sandbox));
        }
        for record in containers {
            let container = Container::new(record, Phase::Created);
            let file = self.inner.folders.container(&container.id).join(state::EXIT);
            if let Ok(exit) = state::read::<Exit>(&file) {
                container.phase.send_replace(Phase::Exited(exit));
            }
            locked(&self.inner.containers).insert(container.id.clone(), Arc::new(container));
        }
        // All at once: one whose shim is slow to answer does not hold up the others.
        let sandboxes = self.inner.all_sandboxes();
        futures::future::try_join_all(sandboxes.iter().map(|sandbox| self.inner.find_again(sandbox))).await?;
        let orphans = self
            .inner
            .all_containers()
            .into_iter()
            .filter(|container| self.inner.sandbox(&container.record().pod_sandbox_id).is_err());
        for container in orphans.collect::<Vec<_>>() {
            self.inner.delete_container(&container).await?;
        }
        Ok(())
    }
}

/// The records below a folder. A folder without a record is what a crash left of one that was being made or removed, before
/// anything else existed or after everything else was gone. A record that cannot be read is what a loss of power left, which ended
/// whatever the record told of.
fn records<T: serde::de::DeserializeOwned>(folder: &Path, name: &str) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for id in state::names(folder)? {
        let folder = folder.join(id);
        match state::read(&folder.join(name)) {
            Ok(record) => found.push(record),
            Err(error) if error.kind() == io::ErrorKind::NotFound => remove_all(&folder)?,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::warn!(%error, "a record is removed");
                remove_all(&folder)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

impl Inner {
    pub(crate) fn sandbox(&self, id: &str) -> Result<Arc<Sandbox>> {
        let found = by_id(&locked(&self.sandboxes), id);
        found.ok_or_else(|| ServiceError::NotFound(format!("pod sandbox {id} is not found")))
    }

    pub(crate) fn container(&self, id: &str) -> Result<Arc<Container>> {
        let found = by_id(&locked(&self.containers), id);
        found.ok_or_else(|| ServiceError::NotFound(format!("container {id} is not found")))
    }

    pub(crate) fn all_sandboxes(&self) -> Vec<Arc<Sandbox>> {
        locked(&self.sandboxes).values().cloned().collect()
    }

    pub(crate) fn all_containers(&self) -> Vec<Arc<Container>> {
        locked(&self.containers).values().cloned().collect()
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<Arc<Container>> {
        let containers = locked(&self.containers);
        containers.values().filter(|container| container.record().pod_sandbox_id == sandbox).cloned().collect()
    }

    pub(crate) fn add_sandbox(&self, sandbox: Arc<Sandbox>) {
        locked(&self.sandboxes).insert(sandbox.id.clone(), sandbox);
    }

    pub(crate) fn add_container(&self, container: Arc<Container>) {
        locked(&self.containers).insert(container.id.clone(), container);
    }

    pub(crate) fn forget_sandbox(&self, id: &str) {
        locked(&self.sandboxes).remove(id);
    }

    pub(crate) fn forget_container(&self, id: &str) {
        locked(&self.containers).remove(id);
    }

    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<ContainerEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        locked(&self.listeners).push(sender);
        receiver
    }

    pub(crate) fn tell(&self, container_id: &str, pod_sandbox_id: &str, container_event_type: ContainerEventType) {
        let event = ContainerEvent {
            container_id: container_id.to_owned(),
            pod_sandbox_id: pod_sandbox_id.to_owned(),
            container_event_type,
            created_at: now(),
        };
        locked(&self.listeners).retain(|listener| listener.send(event.clone()).is_ok());
    }

    /// Takes a sandbox over from an earlier runtime, or takes down what is left of it.
    async fn find_again(self: &Arc<Self>, sandbox: &Arc<Sandbox>) -> Result<()> {
        let record = sandbox.record();
        let answers = record.boot_id == self.boot_id && client::settled(&sandbox.folder).await;
        match if answers { self.subscribe_patiently(sandbox).await } else { Err(ShimError::Gone) } {
            Ok(connection) => self.follow(sandbox, connection),
            Err(_) => self.shim_gone(sandbox).await,
        }
        if !record.complete {
            // Nobody was ever told of it.
            self.delete_sandbox(sandbox).await?;
        }
        Ok(())
    }

    /// Goes on listening to the shim of a sandbox.
    pub(crate) fn follow(self: &Arc<Self>, sandbox: &Arc<Sandbox>, connection: Connection) {
        let (inner, sandbox) = (Arc::downgrade(self), sandbox.clone());
        tokio::spawn(async move {
            let mut connection = connection;
            loop {
                let received = connection.receive().await;
                let Some(inner) = inner.upgrade() else { return };
                match received {
                    Ok((Reply::Exited { container_id: Some(id), exit }, _)) => inner.exited(&id, exit),
                    Ok((Reply::Started { container_id: Some(id), pid, at }, _)) => inner.started(&id, pid, at),
                    Ok(_) => {}
                    // It has ended, or has cut us off because we were slow: then it answers again.
                    Err(_) => match inner.subscribe_patiently(&sandbox).await {
                        Ok(again) => connection = again,
                        Err(_) => return inner.shim_gone(&sandbox).await,
                    },
                }
            }
        });
    }

    /// As [`Inner::subscribe`]. If there is no descriptor left or no memory, its pod is not given up for that.
    async fn subscribe_patiently(&self, sandbox: &Sandbox) -> Result<Connection, ShimError> {
        let mut told = false;
        loop {
            match self.subscribe(sandbox).await {
                Err(ShimError::Io(error)) if is_want(&error) => {
                    if !told {
                        tracing::warn!(sandbox = sandbox.id, %error, "cannot reach a shim, trying again until it works");
                    }
                    told = true;
                    tokio::time::sleep(BETWEEN_TRIES).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Connects to the shim of a sandbox, and takes over what it knows.
    pub(crate) async fn subscribe(&self, sandbox: &Sandbox) -> Result<Connection, ShimError> {
        let connection = Connection::open(&sandbox.folder).await?;
        let (Reply::State { containers, .. }, _) = connection.insist(&Request::Subscribe).await? else {
            return Err(ShimError::Protocol);
        };
        sandbox.set_ready(Some(connection.peer()?));
        for Report { container_id, pid, started_at, exit } in containers {
            self.started(&container_id, pid, started_at);
            if let Some(exit) = exit {
                self.exited(&container_id, exit);
            }
        }
        Ok(connection)
    }

    /// A container runs. Said twice, it counts once; said after the exit, it does not count.
    pub(crate) fn started(&self, id: &str, pid: i32, started_at: i64) {
        let Ok(container) = self.container(id) else { return };
        let changed = container.phase.send_if_modified(|phase| {
            let is_new = *phase == Phase::Created;
            if is_new {
                *phase = Phase::Running { pid, started_at };
            }
            is_new
        });
        if changed {
            self.tell(id, &container.record().pod_sandbox_id, ContainerEventType::Started);
        }
    }

    /// A container has exited. The news of its start may still be on its way.
    pub(crate) fn exited(&self, id: &str, exit: Exit) {
        let Ok(container) = self.container(id) else { return };
        if exit.start_error.is_none() {
            self.started(id, 0, exit.started_at);
        }
        let changed = container.phase.send_if_modified(|phase| {
            let is_new = !matches!(phase, Phase::Exited(_));
            if is_new {
                *phase = Phase::Exited(exit);
            }
            is_new
        });
        if changed {
            self.tell(id, &container.record().pod_sandbox_id, ContainerEventType::Stopped);
        }
    }

    /// The shim of a sandbox is no more, so nobody looks after its containers: they end, too.
    pub(crate) async fn shim_gone(self: &Arc<Self>, sandbox: &Sandbox) {
        let was_ready = sandbox.set_ready(None);
        for container in self.containers_of(&sandbox.id) {
            let record = container.record();
            if !record.started || matches!(*container.phase.borrow(), Phase::Exited(_)) {
                continue;
            }
            let file = self.folders.container(&container.id).join(state::EXIT);
            let exit = tokio::task::spawn_blocking(move || {
                if let Err(error) = record.group.destroy(PATIENCE) {
                    tracing::warn!(container = record.id, %error, "what is left of a container cannot be removed");
                }
                // The shim may have recorded the exit as the last thing it did.
                state::read::<Exit>(&file).unwrap_or_else(|_| {
                    let exit = Exit {
                        exit_code: 255,
                        started_at: record.created_at,
                        finished_at: now(),
                        oom_killed: false,
                        start_error: None,
                    };
                    if let Err(error) = state::write(&file, &exit) {
                        tracing::warn!(container = record.id, %error, "an exit cannot be recorded");
                    }
                    exit
                })
            });
            if let Ok(exit) = exit.await {
                self.exited(&container.id, exit);
            }
        }
        if was_ready {
            self.tell(&sandbox.id, &sandbox.id, ContainerEventType::Stopped);
        }
    }

    pub(crate) async fn ask(&self, sandbox: &str, request: &Request) -> Result<(), ShimError> {
        let connection = Connection::open(&self.folders.sandbox(sandbox)).await?;
        connection.insist(request).await.map(|_| ())
    }
}

/// What has this id, or alone begins with it: tools show the beginning only.
fn by_id<T>(all: &BTreeMap<String, Arc<T>>, id: &str) -> Option<Arc<T>> {
    let mut found = all.range(id.to_owned()..).take_while(|(known, _)| !id.is_empty() && known.starts_with(id));
    match (found.next(), found.next()) {
        (Some((_, one)), None) => Some(one.clone()),
        _ => None,
    }
}

/// Waits until a container has exited.
pub(crate) async fn exit_of(container: &Container) -> Result<Exit> {
    let mut phase: watch::Receiver<Phase> = container.phase.subscribe();
    let gone = |_| ServiceError::NotFound(format!("container {} was removed", container.id));
    let phase = phase.wait_for(|phase| matches!(phase, Phase::Exited(_))).await.map_err(gone)?;
    match &*phase {
        Phase::Exited(exit) => Ok(exit.clone()),
        _ => Err(ServiceError::Internal("a container that has exited has not".into())),
    }
}
