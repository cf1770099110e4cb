//! Where everything of a pod is below the agent's folder, under Kubernetes' names.

use std::path::{Path, PathBuf};

pub(super) fn pods(root: &Path) -> PathBuf {
    root.join("pods")
}

pub(super) fn pod(root: &Path, uid: &str) -> PathBuf {
    pods(root).join(uid)
}

/// Of a volume; `kind` is one of [`super::kinds`], such as `empty-dir`.
pub(super) fn volume(root: &Path, uid: &str, kind: &str, name: &str) -> PathBuf {
    pod(root, uid).join("volumes").join(format!("kubernetes.io~{kind}")).join(name)
}

/// The target of a subPath: the `number`th mount of a container.
pub(super) fn sub_path(root: &Path, uid: &str, volume: &str, container: &str, number: usize) -> PathBuf {
    pod(root, uid).join("volume-subpaths").join(volume).join(container).join(number.to_string())
}

pub(super) fn hosts(root: &Path, uid: &str) -> PathBuf {
    pod(root, uid).join("etc-hosts")
}

/// Where the termination logs of a container's runs are.
pub(super) fn container(root: &Path, uid: &str, container: &str) -> PathBuf {
    pod(root, uid).join("containers").join(container)
}
