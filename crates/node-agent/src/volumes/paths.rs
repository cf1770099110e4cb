//! Where everything of a pod is below the agent's folder, under Kubernetes' names.

use std::path::{Path, PathBuf};

pub(super) fn pods(root: &Path) -> PathBuf {
    root.join("pods")
}

pub(super) fn pod(root: &Path, uid: &str) -> PathBuf {
    pods(root).join(uid)
}

/// Of a volume; `kind` is that of [`super::kinds`], such as `empty-dir`.
pub(super) fn volume(root: &Path, uid: &str, kind: &str, name: &str) -> PathBuf {
    pod(root, uid).join("volumes").join(format!("kubernetes.io~{kind}")).join(name)
}
