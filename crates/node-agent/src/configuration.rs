//! From a pod's words to those of CRI: its sandbox, its containers, their environment, limits and security.

use std::{net::IpAddr, sync::Arc};

use container_runtime::services::{ContainerConfig, Image, KeyValue, Mount, PodSandboxConfig};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{Settings, objects::Objects};

/// Why a container cannot be configured: `CreateContainerConfigError`, with this text as the message.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Labels by which the agent knows its sandboxes and containers again, under Kubernetes' names.
pub mod labels {
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
}

/// What all configurations of a node are made with.
pub struct Configuration {
    settings: Settings,
    objects: Arc<Objects>,
}

impl Configuration {
    pub fn new(settings: Settings, objects: Arc<Objects>) -> Self {
        Self { settings, objects }
    }

    /// The sandbox of a pod: labels, name resolution, host ports, group, namespaces, sysctls.
    pub fn sandbox(&self, pod: &Pod, attempt: u32) -> Result<PodSandboxConfig, ConfigError> {
        let _ = (pod, attempt, &self.settings);
        Err(ConfigError("there is no sandbox yet".into()))
    }

    /// The environment of a container, with everything it refers to resolved and expanded.
    pub async fn environment(
        &self,
        pod: &Pod,
        container: &Container,
        pod_ips: &[IpAddr],
    ) -> Result<Vec<KeyValue>, ConfigError> {
        let _ = (pod, container, pod_ips, &self.objects);
        Ok(Vec::new())
    }

    /// A container of the pod: command with variables expanded, limits, security, labels, log. `restarts` counts from 0.
    pub fn container(
        &self,
        pod: &Pod,
        container: &Container,
        image: &Image,
        environment: Vec<KeyValue>,
        mounts: Vec<Mount>,
        restarts: u32,
    ) -> Result<ContainerConfig, ConfigError> {
        let _ = (pod, container, image, environment, mounts, restarts);
        Err(ConfigError("there is no container yet".into()))
    }
}
