//! The volumes of pods: each a folder below `pods/<uid>/volumes`, made ready before the pod's containers start.

mod paths;
mod reading;

use std::{path::PathBuf, sync::Arc};

use container_runtime::services::{KeyValue, Mount};
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;

use crate::objects::Objects;
pub(crate) use reading::{ReadError, read_file};

/// Why a volume is not ready; the text is that of Kubernetes' FailedMount events.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct VolumeError(pub String);

/// All volumes of the node's pods.
pub struct Volumes {
    root: PathBuf,
}

impl Volumes {
    /// `root` is the agent's; `client` asks for service account tokens.
    pub fn new(root: PathBuf, objects: Arc<Objects>, client: Client) -> Self {
        let _ = (objects, client);
        Self { root }
    }

    /// Makes every volume of the pod ready, or brings its content up to date. Called at each look at the pod; costs little
    /// when nothing has changed. The time until content must be renewed (a token expires), if there is one.
    pub async fn set_up(&self, pod: &Pod) -> Result<Option<std::time::Duration>, VolumeError> {
        let _ = pod;
        Ok(None)
    }

    /// What is mounted in one container of the pod, subPath and subPathExpr resolved and made; `environment` is the
    /// container's. The pod's /etc/hosts and the container's termination log are among them.
    pub async fn mounts(
        &self,
        pod: &Pod,
        container: &Container,
        pod_ips: &[std::net::IpAddr],
        environment: &[KeyValue],
    ) -> Result<Vec<Mount>, VolumeError> {
        let _ = (pod, container, pod_ips, environment);
        Ok(Vec::new())
    }

    /// Where the container's termination message is written, on the node.
    pub fn termination_log(&self, uid: &str, container: &str, restarts: u32) -> PathBuf {
        self.root.join("pods").join(uid).join("containers").join(container).join(restarts.to_string())
    }

    /// Unmounts and removes everything of the pod. No error if there is nothing.
    pub async fn tear_down(&self, uid: &str) -> Result<(), VolumeError> {
        let _ = uid;
        Ok(())
    }

    /// The uids of all pods that have a folder.
    pub fn pods_on_disk(&self) -> Vec<String> {
        Vec::new()
    }
}
