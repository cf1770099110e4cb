//! Volumes that are images: the runtime has them, and mounts them for the containers that want them.

use k8s_openapi::api::core::v1::{Container, ImageVolumeSource, Pod};

/// The images that a container has mounted, by the names of its volumes.
pub(crate) fn mounted<'a>(pod: &'a Pod, container: &Container) -> Vec<(&'a str, &'a ImageVolumeSource)> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let images = volumes.filter_map(|volume| Some((volume.name.as_str(), volume.image.as_ref()?)));
    images.filter(|(name, _)| mounts.iter().any(|mount| mount.name == *name)).collect()
}
