//! What is mounted in one container, and where.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use container_runtime::services::{KeyValue, Mount, MountPropagation};
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

use super::{VolumeError, kinds::Kind, paths, sub_path};
use crate::configuration::expansion::expand;

pub(super) const ETC_HOSTS: &str = "/etc/hosts";
/// How many runs of a container leave their termination logs.
const TERMINATION_LOGS: usize = 4;

/// One mount of a container, before its subPath is looked for.
pub(super) struct Planned {
    pub(super) mount: Mount,
    /// The path in the volume, and the place where the agent mounts it.
    sub_path: Option<(String, PathBuf)>,
    what: String,
}

pub(super) fn plan(
    root: &Path,
    pod: &Pod,
    container: &Container,
    environment: &[KeyValue],
    images: &BTreeMap<String, String>,
) -> Result<Vec<Planned>, VolumeError> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut planned = Vec::new();
    for (number, wanted) in container.volume_mounts.iter().flatten().enumerate() {
        let missing = || {
            VolumeError(format!("cannot find volume {:?} to mount into container {:?}", wanted.name, container.name))
        };
        let volume = volumes.iter().find(|volume| volume.name == wanted.name).ok_or_else(missing)?;
        let kind = Kind::of(volume)?;
        let mut path = sub_path_of(wanted, environment)?;
        let image = images.get(&wanted.name).cloned().unwrap_or_default();
        // It is the runtime that has the image's files.
        let image_sub_path = if image.is_empty() { String::new() } else { path.take().unwrap_or_default() };
        planned.push(Planned {
            mount: Mount {
                container_path: absolute(&wanted.mount_path),
                image,
                image_sub_path,
                host_path: kind.path(root, uid, &volume.name).to_string_lossy().into_owned(),
                readonly: wanted.read_only.unwrap_or(false) || kind.is_read_only(),
                recursive_read_only: recursive_read_only(wanted)?,
                propagation: propagation(wanted)?,
            },
            sub_path: path.map(|path| (path, paths::sub_path(root, uid, &wanted.name, &container.name, number))),
            what: format!("volumeMount {:?} of container {:?}", wanted.name, container.name),
        });
    }
    // What is mounted below another mount comes after it.
    planned.sort_by_key(|planned| Path::new(&planned.mount.container_path).components().count());
    Ok(planned)
}

impl Planned {
    /// Finds the subPath. What is wrong on the node is for the node's log, not for the pod's owner.
    pub(super) fn carry_out(mut self) -> Result<Mount, VolumeError> {
        let Some((path, target)) = self.sub_path else { return Ok(self.mount) };
        let failed = |step: &str, error: io::Error| {
            tracing::warn!(what = self.what, path, %error, "cannot {step} a subPath");
            VolumeError(format!(
                "failed to {step} subPath {}for {}",
                if step == "create" { "directory " } else { "" },
                self.what
            ))
        };
        let found = sub_path::find_or_make(Path::new(&self.mount.host_path), &path);
        let found = found.map_err(|error| failed("create", error))?;
        sub_path::mount(&found, &target).map_err(|error| failed("prepare", error))?;
        self.mount.host_path = target.to_string_lossy().into_owned();
        Ok(self.mount)
    }
}

fn sub_path_of(wanted: &VolumeMount, environment: &[KeyValue]) -> Result<Option<String>, VolumeError> {
    let path = match wanted.sub_path_expr.as_deref().unwrap_or_default() {
        "" => wanted.sub_path.clone().unwrap_or_default(),
        expression => {
            let known: HashMap<&str, &str> =
                environment.iter().map(|variable| (variable.key.as_str(), variable.value.as_str())).collect();
            let mut missing = BTreeSet::new();
            let path = expand(expression, |name| {
                let value = known.get(name).filter(|value| !value.is_empty());
                if value.is_none() {
                    missing.insert(name.to_owned());
                }
                Some(value.map(|value| (*value).to_owned()).unwrap_or_default())
            });
            if !missing.is_empty() {
                let names: Vec<String> = missing.into_iter().collect();
                return Err(VolumeError(format!("missing value for {}", names.join(", "))));
            }
            path
        }
    };
    sub_path::check(&path).map_err(VolumeError)?;
    Ok(Some(path).filter(|path| !path.is_empty()))
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn recursive_read_only(wanted: &VolumeMount) -> Result<bool, VolumeError> {
    let name = &wanted.name;
    match wanted.recursive_read_only.as_deref() {
        None | Some("Disabled") => Ok(false),
        _ if !wanted.read_only.unwrap_or(false) => Err(VolumeError(format!(
            "failed to resolve recursive read-only mode: volume {name:?} requested recursive read-only mode, but it is not \
             read-only"
        ))),
        _ if !matches!(wanted.mount_propagation.as_deref(), None | Some("None")) => Err(VolumeError(format!(
            "failed to resolve recursive read-only mode: volume {name:?} requested recursive read-only mode, but it is not \
             compatible with propagation {:?}",
            wanted.mount_propagation.as_deref().unwrap_or_default()
        ))),
        Some("IfPossible" | "Enabled") => Ok(true),
        Some(mode) => Err(VolumeError(format!(
            "failed to resolve recursive read-only mode: unknown recursive read-only mode {mode:?}"
        ))),
    }
}

fn propagation(wanted: &VolumeMount) -> Result<MountPropagation, VolumeError> {
    match wanted.mount_propagation.as_deref() {
        None | Some("None") => Ok(MountPropagation::Private),
        Some("HostToContainer") => Ok(MountPropagation::HostToContainer),
        Some("Bidirectional") => Ok(MountPropagation::Bidirectional),
        Some(mode) => Err(VolumeError(format!("invalid MountPropagation mode: {mode:?}"))),
    }
}

/// An empty file that the container writes why it ended to.
pub(super) fn make_termination_log(folder: &Path) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let mut old: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    old.sort();
    for file in old.iter().take(old.len().saturating_sub(TERMINATION_LOGS - 1)) {
        fs::remove_file(file)?;
    }
    // In the order of time, and never the same twice.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = folder.join(format!("{:016x}", now.as_nanos()));
    fs::File::create_new(&path)?;
    // Whoever the container runs as.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
    Ok(path)
}

/// The volumes that any container of the pod mounts. Nobody waits for the others.
pub(super) fn used(pod: &Pod) -> BTreeSet<&str> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|container| &container.volume_mounts);
    let others = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mounts = others.map(|container| &container.volume_mounts).chain(ephemeral).flatten().flatten();
    mounts.map(|mount| mount.name.as_str()).collect()
}

/// A path in a container without `..`, which would lead out of the volume on the node.
fn resolved(path: &str) -> PathBuf {
    let mut resolved = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => resolved.push(name),
            Component::ParentDir => drop(resolved.pop()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
    }
    resolved
}

/// Folders in a volume on which other volumes are mounted: they must be there, where containers cannot make them.
pub(super) fn mount_points_in(pod: &Pod, volume: &str) -> BTreeSet<PathBuf> {
    let Some(spec) = &pod.spec else { return BTreeSet::new() };
    let mut found = BTreeSet::new();
    for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
        let mounts = container.volume_mounts.as_deref().unwrap_or_default();
        let whole = |mount: &&VolumeMount| {
            mount.name == volume
                && mount.sub_path.as_deref().unwrap_or_default().is_empty()
                && mount.sub_path_expr.as_deref().unwrap_or_default().is_empty()
        };
        for outer in mounts.iter().filter(whole) {
            let outer = resolved(&outer.mount_path);
            let inner = mounts.iter().map(|inner| resolved(&inner.mount_path));
            let below = inner.filter_map(|inner| inner.strip_prefix(&outer).ok().map(Path::to_owned));
            let below: Vec<PathBuf> = below.filter(|path| !path.as_os_str().is_empty()).collect();
            // Not those that are in a volume which is in this one.
            let direct = |path: &&PathBuf| !below.iter().any(|other| other != *path && path.starts_with(other));
            found.extend(below.iter().filter(direct).cloned());
        }
    }
    found
}
