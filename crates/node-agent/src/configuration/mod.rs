//! From a pod's words to those of CRI: its sandbox, its containers, their environment, limits and security.
//!
//! | file | what |
//! |---|---|
//! | `sandbox` | what the containers of a pod share: namespaces, group, host ports, log folder |
//! | [`hostname`] | the name that a pod has for itself |
//! | `name_resolution` | where a pod asks for names |
//! | [`sysctls`] | which kernel settings a pod may have |
//! | `environment` | a container's variables; `service_links` and `env_file` are two of their sources |
//! | [`fields`] | what the downward API tells a container of its pod |
//! | [`expansion`] | `$(VARIABLE)` |
//! | `container` | a container's command, labels, log |
//! | [`resources`] | requests and limits as numbers of control groups |
//! | [`totals`] | what a pod asks for as a whole |
//! | `security` | whom a container runs as, and what it may do |
//!
//! Nothing here keeps state, but for the Services that `service_links` follows.

mod container;
mod env_file;
mod environment;
pub mod expansion;
pub mod fields;
pub mod hostname;
pub mod machine;
mod name_resolution;
pub mod resources;
mod sandbox;
mod security;
mod service_links;
pub mod sysctls;
#[cfg(test)]
mod tests;
pub mod totals;

use std::{net::IpAddr, sync::Arc};

use container_runtime::services::{ContainerConfig, Image, KeyValue, LinuxContainerResources, Mount, PodSandboxConfig};
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::{Settings, objects::Objects};
pub use container::annotations;
use machine::Machine;
use service_links::ServiceLinks;

/// Why a container cannot be configured: `CreateContainerConfigError`, with this text as the message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl From<crate::objects::Missing> for ConfigError {
    fn from(missing: crate::objects::Missing) -> Self {
        Self(missing.to_string())
    }
}

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
    machine: Machine,
    services: ServiceLinks,
}

impl Configuration {
    /// Follows the cluster's Services for as long as it lives.
    pub fn new(settings: Settings, objects: Arc<Objects>) -> Self {
        let services = ServiceLinks::follow(settings.client.clone());
        let machine = Machine::look(&settings.root);
        Self { settings, objects, machine, services }
    }

    /// The sandbox of a pod: labels, name resolution, host ports, group, namespaces, sysctls.
    pub fn sandbox(&self, pod: &Pod, attempt: u32) -> Result<PodSandboxConfig, ConfigError> {
        sandbox::sandbox(&self.settings, pod, attempt, &self.machine)
    }

    /// The environment of a container, with everything it refers to resolved and expanded.
    pub async fn environment(
        &self,
        pod: &Pod,
        container: &Container,
        pod_ips: &[IpAddr],
    ) -> Result<Vec<KeyValue>, ConfigError> {
        environment::Sources {
            pod,
            container,
            pod_ips,
            host_ips: &self.host_ips(),
            objects: &self.objects,
            machine: &self.machine,
            root: &self.settings.root,
        }
        .environment(&self.services)
        .await
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
        if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
            return Err(ConfigError(format!(
                "container {:?} asks for volumeDevices, and this node has no block volumes",
                container.name
            )));
        }
        let linux = container_runtime::services::LinuxContainerConfig {
            resources: resources::container(pod, container, &self.machine),
            security_context: security::security_context(&self.settings.root, pod, container, image)?,
        };
        Ok(container::config(pod, container, image, environment, mounts, restarts, linux))
    }

    /// The limits of the pod as a whole as they should be.
    pub fn pod_resources(&self, pod: &Pod) -> LinuxContainerResources {
        resources::pod(pod, &self.machine)
    }

    /// What there is of the processors, in thousandths of one.
    pub fn processors(&self) -> i64 {
        totals::number(&self.machine.allocatable, "cpu").unwrap_or(0)
    }

    /// The limits of a container as they should be.
    pub fn resources(&self, pod: &Pod, container: &Container) -> LinuxContainerResources {
        resources::container(pod, container, &self.machine)
    }

    /// The node's primary address, and one of the other family if it has one.
    fn host_ips(&self) -> Vec<IpAddr> {
        let Some(first) = self.settings.addresses.first() else { return Vec::new() };
        let other = self.settings.addresses.iter().find(|address| address.is_ipv4() != first.is_ipv4());
        [Some(*first), other.copied()].into_iter().flatten().collect()
    }
}

/// As Kubernetes names a pod in messages: `name_namespace(uid)`.
pub fn named(pod: &Pod) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}_{}({})", part(&pod.metadata.name), part(&pod.metadata.namespace), part(&pod.metadata.uid))
}
