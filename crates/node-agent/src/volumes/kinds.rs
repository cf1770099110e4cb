//! The list of volume types: what each is called on disk, and which file makes it.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeSource, EmptyDirVolumeSource, HostPathVolumeSource, ProjectedVolumeSource,
    SecretVolumeSource, Volume,
};

use super::{VolumeError, paths};

/// A volume of a type that this node has.
#[derive(Clone, Copy)]
pub(super) enum Kind<'a> {
    EmptyDir(&'a EmptyDirVolumeSource),
    HostPath(&'a HostPathVolumeSource),
    ConfigMap(&'a ConfigMapVolumeSource),
    Secret(&'a SecretVolumeSource),
    DownwardApi(&'a DownwardAPIVolumeSource),
    Projected(&'a ProjectedVolumeSource),
    /// The runtime mounts it: there is nothing of it in the pod's folder.
    Image,
}

impl<'a> Kind<'a> {
    pub(super) fn of(volume: &'a Volume) -> Result<Self, VolumeError> {
        let kind = None
            .or(volume.empty_dir.as_ref().map(Kind::EmptyDir))
            .or(volume.host_path.as_ref().map(Kind::HostPath))
            .or(volume.config_map.as_ref().map(Kind::ConfigMap))
            .or(volume.secret.as_ref().map(Kind::Secret))
            .or(volume.downward_api.as_ref().map(Kind::DownwardApi))
            .or(volume.projected.as_ref().map(Kind::Projected))
            .or(volume.image.as_ref().map(|_| Kind::Image));
        kind.ok_or_else(|| {
            let source = serde_json::to_value(volume).unwrap_or_default();
            let mut names = source.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
            let name = names.find(|name| *name != "name").unwrap_or("nothing");
            VolumeError(format!("no volume plugin matched: this node has no volumes of the type {name}"))
        })
    }

    /// What containers mount.
    pub(super) fn path(&self, root: &Path, uid: &str, name: &str) -> PathBuf {
        let kind = match self {
            Kind::HostPath(source) => return PathBuf::from(&source.path),
            Kind::Image => return PathBuf::new(),
            Kind::EmptyDir(_) => "empty-dir",
            Kind::ConfigMap(_) => "configmap",
            Kind::Secret(_) => "secret",
            Kind::DownwardApi(_) => "downward-api",
            Kind::Projected(_) => "projected",
        };
        paths::volume(root, uid, kind, name)
    }

    /// Containers cannot write what is made from objects: the next change would undo it.
    pub(super) fn is_read_only(&self) -> bool {
        !matches!(self, Kind::EmptyDir(_) | Kind::HostPath(_))
    }
}
