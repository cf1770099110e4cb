//! The volumes of pods: each a folder below `pods/<uid>/volumes`, made ready before the pod's containers start.
//!
//! | file | what |
//! |---|---|
//! | `kinds` | the list of volume types |
//! | `empty_dir`, `host_path`, `downward_api`, `projected` | one type each; `keys` is that of ConfigMaps and Secrets |
//! | `tokens` | service account tokens in projected volumes |
//! | `folder` | a volume's folder on disk or in memory, and what is mounted |
//! | `content` | files that change all at once |
//! | `images` | which images a container's volumes are; the runtime mounts them |
//! | `ownership` | `fsGroup` |
//! | `mounts` | what is mounted in a container; `sub_path` and `hosts` are parts of it |
//! | `reading` | files that one container writes and another one's variables come from |
//!
//! Invariants: a pod's folder exists before anything of the pod does, and is removed after everything else, so that what a
//! pod left is found by its folder; nothing is removed while something is mounted below; files of the node are touched
//! outside of the threads that serve others.

mod content;
mod downward_api;
mod empty_dir;
mod folder;
mod host_path;
mod hosts;
mod images;
mod keys;
mod kinds;
mod mounts;
mod ownership;
mod paths;
mod projected;
mod reading;
mod sub_path;
#[cfg(test)]
mod tests;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::IpAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use container_runtime::services::{KeyValue, Mount};
use k8s_openapi::api::core::v1::{Container, Pod, Volume};

use crate::{
    Settings,
    configuration::{hostname::Hostname, machine::Machine},
    objects::Objects,
};
use content::Content;
use folder::Medium;
pub(crate) use images::mounted as mounted_images;
use keys::Taken;
use kinds::Kind;
use projected::DEFAULT_MODE;
pub(crate) use reading::{ReadError, read_file};
use tokens::Tokens;

/// Why a volume is not ready; the text is that of Kubernetes' FailedMount events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct VolumeError(pub String);

impl VolumeError {
    /// All of several problems in one, as Kubernetes puts them.
    fn unless_none(mut problems: Vec<String>) -> Result<(), Self> {
        match (problems.len(), problems.pop()) {
            (_, None) => Ok(()),
            (1, Some(only)) => Err(Self(only)),
            (_, Some(last)) => {
                problems.push(last);
                Err(Self(format!("[{}]", problems.join(", "))))
            }
        }
    }
}

/// How long a volume stays as it is that could not be brought up to date, unless what it is made of changes before.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// All volumes of the node's pods.
pub struct Volumes {
    root: PathBuf,
    cluster_domain: String,
    objects: Arc<Objects>,
    machine: Machine,
    tokens: Tokens,
    /// What is on disk already: for each pod's uid, its volumes with what was written to them.
    ready: Mutex<HashMap<String, HashMap<String, u64>>>,
}

/// What is to be done on disk for one volume.
struct Work {
    name: String,
    /// Stands for what will be there afterwards.
    state: u64,
    path: PathBuf,
    group: Option<u32>,
    step: Step,
}

#[derive(Hash)]
enum Step {
    EmptyDir(Medium),
    HostPath(String),
    Content { medium: Medium, content: Content, mount_points: BTreeSet<PathBuf> },
}

/// What there is to do for the volumes of a pod.
#[derive(Default)]
pub struct Due {
    work: Vec<Work>,
    renewal: Option<Duration>,
    /// By the volume.
    problems: Vec<(String, VolumeError)>,
}

/// How the volumes of a pod are.
#[derive(Debug, Default)]
pub struct Ready {
    /// When they want to be looked at again: a token expires, or something could not be brought up to date.
    pub renewal: Option<Duration>,
    /// Why some are as they were, and not as they should be now.
    pub outdated: Option<VolumeError>,
}

impl Volumes {
    pub fn new(settings: &Settings, objects: Arc<Objects>) -> Self {
        Self {
            root: settings.root.clone(),
            cluster_domain: settings.cluster_domain.clone(),
            objects,
            machine: Machine::look(&settings.root),
            tokens: Tokens::new(settings.client.clone(), settings.clock.clone()),
            ready: Mutex::default(),
        }
    }

    /// What there is to do for the pod's volumes, to make them ready or to bring them up to date. Asked at each look at the pod;
    /// costs little when nothing has changed. It waits for the API, and may be given up at any time.
    pub async fn due(&self, pod: &Pod) -> Due {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut due = Due::default();
        let used = mounts::used(pod);
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes.filter(|volume| used.contains(volume.name.as_str())) {
            match self.work_for(pod, uid, volume).await {
                Ok((step, renew)) => {
                    due.renewal = due.renewal.into_iter().chain(renew).min();
                    due.work.extend(step);
                }
                Err(error) => due.problems.push((volume.name.clone(), error)),
            }
        }
        let ready = self.ready();
        let ready = ready.get(uid);
        due.work.retain(|work| ready.and_then(|ready| ready.get(&work.name)) != Some(&work.state));
        due
    }

    /// Does it, to the end: what is mounted must be there to be seen when the pod is torn down. A volume that was ready once
    /// stays so, also when what it is made of is gone.
    pub async fn set_up(&self, pod: &Pod, due: Due) -> Result<Ready, VolumeError> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let Due { work, renewal, mut problems } = due;
        if !work.is_empty() {
            let folder = paths::pod(&self.root, uid);
            let done = blocking(move || {
                make_pod_folder(&folder)?;
                Ok(work.into_iter().map(|work| (work.do_it(), work.name, work.state)).collect::<Vec<_>>())
            });
            let done = done.await.map_err(|error| VolumeError(error.to_string()))?;
            let mut ready = self.ready();
            let ready = ready.entry(uid.to_owned()).or_default();
            for (result, name, state) in done {
                match result {
                    Ok(()) => drop(ready.insert(name, state)),
                    Err(error) => problems.push((name, error)),
                }
            }
        }
        let ready = self.ready();
        let was_ready = |name: &str| ready.get(uid).is_some_and(|ready| ready.contains_key(name));
        let (outdated, missing): (Vec<_>, Vec<_>) = problems.into_iter().partition(|(name, _)| was_ready(name));
        let all = |problems: Vec<(String, VolumeError)>| {
            VolumeError::unless_none(problems.iter().map(|(name, why)| set_up_failed(name, why)).collect())
        };
        all(missing)?;
        let outdated = all(outdated).err();
        let again = outdated.as_ref().map(|_| TRY_AGAIN);
        Ok(Ready { renewal: renewal.into_iter().chain(again).min(), outdated })
    }

    /// What there is to do for a volume, and until when that is enough.
    async fn work_for(
        &self,
        pod: &Pod,
        uid: &str,
        volume: &Volume,
    ) -> Result<(Option<Work>, Option<Duration>), VolumeError> {
        let kind = Kind::of(volume)?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mode = |mode: Option<i32>| mode.unwrap_or(DEFAULT_MODE) as u32;
        let memory = Medium::Memory { size: None };
        let mut renewal = None;
        let of_objects = |medium, content| Step::Content {
            medium,
            content,
            mount_points: mounts::mount_points_in(pod, &volume.name),
        };
        let step = match kind {
            Kind::EmptyDir(source) => Step::EmptyDir(empty_dir::medium(pod, source, &self.machine)?),
            Kind::HostPath(source) => Step::HostPath(source.type_.clone().unwrap_or_default()),
            Kind::ConfigMap(from) => {
                let taken = Taken {
                    name: &from.name,
                    items: &from.items,
                    optional: from.optional,
                    mode: mode(from.default_mode),
                };
                of_objects(Medium::Disk, keys::of_config_map(&self.objects, namespace, taken).await?)
            }
            Kind::Secret(from) => {
                let name = from.secret_name.as_deref().unwrap_or_default();
                let taken = Taken { name, items: &from.items, optional: from.optional, mode: mode(from.default_mode) };
                of_objects(memory, keys::of_secret(&self.objects, namespace, taken).await?)
            }
            Kind::DownwardApi(from) => {
                of_objects(memory, downward_api::files(pod, &from.items, mode(from.default_mode), &self.machine)?)
            }
            Kind::Projected(from) => {
                let (content, renew) = projected::files(self, pod, from).await?;
                renewal = renew;
                of_objects(memory, content)
            }
            Kind::Image => return Ok((None, None)),
        };
        let mut hasher = DefaultHasher::new();
        step.hash(&mut hasher);
        let (path, group) = (kind.path(&self.root, uid, &volume.name), group_of(pod));
        Ok((Some(Work { name: volume.name.clone(), state: hasher.finish(), path, group, step }), renewal))
    }

    /// What is mounted in one container of the pod, subPath and subPathExpr resolved and made; `environment` is the
    /// container's, `images` are the ids of those that are volumes of it, by the volume. The pod's /etc/hosts and the container's termination log are among them, the latter a new one each time.
    pub async fn mounts(
        &self,
        pod: &Pod,
        container: &Container,
        pod_ips: &[IpAddr],
        environment: &[KeyValue],
        images: &BTreeMap<String, String>,
    ) -> Result<Vec<Mount>, VolumeError> {
        let planned = mounts::plan(&self.root, pod, container, environment, images)?;
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let spec = pod.spec.clone().unwrap_or_default();
        let name = Hostname::of(pod, &self.cluster_domain).map_err(|error| VolumeError(error.to_string()))?;
        let own_hosts = planned.iter().any(|planned| planned.mount.container_path == mounts::ETC_HOSTS);
        let with_hosts = !own_hosts && (spec.host_network.unwrap_or(false) || !pod_ips.is_empty());
        let hosts = with_hosts.then(|| paths::hosts(&self.root, &uid));
        let log = container.termination_message_path.clone().filter(|path| !path.is_empty());
        let logs = paths::container(&self.root, &uid, &container.name);
        let (pod_ips, folder) = (pod_ips.to_vec(), paths::pod(&self.root, &uid));
        let made = tokio::task::spawn_blocking(move || {
            let mut all = planned.into_iter().map(mounts::Planned::carry_out).collect::<Result<Vec<_>, _>>()?;
            let failed = |what: &str, error: io::Error| VolumeError(format!("cannot make the {what}: {error}"));
            make_pod_folder(&folder).map_err(|error| failed("pod's folder", error))?;
            let whole = |host: PathBuf, container: &str| Mount {
                container_path: container.to_owned(),
                host_path: host.to_string_lossy().into_owned(),
                ..Mount::default()
            };
            if let Some(path) = hosts {
                hosts::write(&path, &spec, &name, &pod_ips).map_err(|error| failed("pod's /etc/hosts", error))?;
                all.push(whole(path, mounts::ETC_HOSTS));
            }
            if let Some(path) = log {
                let file = mounts::make_termination_log(&logs).map_err(|error| failed("termination log", error))?;
                all.push(whole(file, &path));
            }
            Ok(all)
        });
        made.await.unwrap_or_else(|error| Err(VolumeError(error.to_string())))
    }

    /// Unmounts and removes everything of the pod. No error if there is nothing.
    pub async fn tear_down(&self, uid: &str) -> Result<(), VolumeError> {
        self.ready().remove(uid);
        self.tokens.forget(uid);
        let folder = paths::pod(&self.root, uid);
        let removed = blocking(move || {
            folder::unmount_below(&folder)?;
            if let Some(mount) = folder::mounts_below(&folder)?.first() {
                return Err(io::Error::other(format!("{} is still mounted", mount.display())));
            }
            container_runtime::removal::remove_all(&folder)
        });
        removed.await.map_err(|error| VolumeError(format!("UnmountVolume.TearDown failed: {error}")))
    }

    /// The pod's folders on disk that its containers write to, by the names of the volumes.
    pub fn empty_dirs(&self, pod: &Pod) -> Vec<(String, PathBuf)> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let on_disk = volumes.filter(|volume| {
            let medium = volume.empty_dir.as_ref().map(|dir| dir.medium.as_deref().unwrap_or_default());
            medium == Some("")
        });
        on_disk.map(|volume| (volume.name.clone(), paths::volume(&self.root, uid, "empty-dir", &volume.name))).collect()
    }

    /// The uids of all pods that have a folder.
    pub fn pods_on_disk(&self) -> Vec<String> {
        let entries = fs::read_dir(paths::pods(&self.root)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn ready(&self) -> MutexGuard<'_, HashMap<String, HashMap<String, u64>>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    fn do_it(&self) -> Result<(), VolumeError> {
        let failed = |error: io::Error| VolumeError(error.to_string());
        match &self.step {
            Step::EmptyDir(medium) => folder::make(&self.path, *medium, self.group).map_err(failed),
            Step::HostPath(kind) => host_path::set_up(&self.path, kind),
            Step::Content { medium, content, mount_points } => {
                folder::make(&self.path, *medium, self.group).map_err(failed)?;
                for path in mount_points {
                    fs::create_dir_all(self.path.join(path)).map_err(failed)?;
                }
                content::write(&self.path, content, self.group).map_err(failed)
            }
        }
    }
}

fn set_up_failed(volume: &str, why: &VolumeError) -> String {
    format!("MountVolume.SetUp failed for volume {volume:?} : {why}")
}

/// Others on the node have no business in it: modes of files in volumes are meant for containers.
fn make_pod_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o750).create(path)
}

/// The group that the pod's volumes belong to.
fn group_of(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}
