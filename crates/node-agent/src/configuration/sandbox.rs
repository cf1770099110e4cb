//! What the containers of a pod share.

use std::path::{Path, PathBuf};

use container_runtime::services::{
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata, PortMapping,
};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::{ConfigError, hostname::Hostname, labels, machine::Machine, name_resolution, resources, sysctls};
use crate::Settings;

pub(super) fn sandbox(
    settings: &Settings,
    pod: &Pod,
    attempt: u32,
    machine: &Machine,
) -> Result<PodSandboxConfig, ConfigError> {
    let spec = pod.spec.as_ref().ok_or_else(|| ConfigError("the pod has no spec".into()))?;
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    let metadata = PodSandboxMetadata {
        name: text(&pod.metadata.name),
        uid: text(&pod.metadata.uid),
        namespace: text(&pod.metadata.namespace),
        attempt,
    };
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    labels.extend(own_labels(pod));
    // A pod on the node's network has the node's name, too.
    let hostname = match spec.host_network.unwrap_or(false) {
        true => String::new(),
        false => {
            let name = Hostname::of(pod, &settings.cluster_domain)?;
            name.for_kernel(spec.set_hostname_as_fqdn.unwrap_or(false))?
        }
    };
    Ok(PodSandboxConfig {
        hostname,
        log_directory: log_folder(&settings.root, &metadata).to_string_lossy().into_owned(),
        metadata,
        dns_config: Some(name_resolution::dns(settings, pod)),
        port_mappings: port_mappings(spec),
        labels,
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        linux: LinuxPodSandboxConfig {
            cgroup_parent: resources::group(pod),
            resources: resources::pod(pod, machine),
            security_context: LinuxSandboxSecurityContext {
                namespace_options: namespaces(spec),
                privileged: all_containers(spec).any(is_privileged),
            },
            sysctls: sysctls::wanted(pod),
        },
    })
}

pub(super) fn own_labels(pod: &Pod) -> impl Iterator<Item = (String, String)> {
    let own = [
        (labels::POD_NAME, &pod.metadata.name),
        (labels::POD_NAMESPACE, &pod.metadata.namespace),
        (labels::POD_UID, &pod.metadata.uid),
    ];
    own.map(|(name, value)| (name.to_owned(), value.clone().unwrap_or_default())).into_iter()
}

fn log_folder(root: &Path, pod: &PodSandboxMetadata) -> PathBuf {
    root.join("logs").join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
}

pub(super) fn namespaces(spec: &PodSpec) -> NamespaceOption {
    let node_or = |host: Option<bool>, other| if host.unwrap_or(false) { NamespaceMode::Node } else { other };
    let shared = spec.share_process_namespace.unwrap_or(false);
    NamespaceOption {
        network: node_or(spec.host_network, NamespaceMode::Pod),
        pid: node_or(spec.host_pid, if shared { NamespaceMode::Pod } else { NamespaceMode::Container }),
        ipc: node_or(spec.host_ipc, NamespaceMode::Pod),
        target_id: String::new(),
        userns: spec.host_users == Some(false),
    }
}

/// Those on the node. A pod on the node's network has its ports there anyway.
fn port_mappings(spec: &PodSpec) -> Vec<PortMapping> {
    if spec.host_network.unwrap_or(false) {
        return Vec::new();
    }
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter(|port| port.host_port.is_some_and(|port| port > 0))
        .map(|port| PortMapping {
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or_default(),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

pub(super) fn is_privileged(container: &Container) -> bool {
    container.security_context.as_ref().and_then(|context| context.privileged).unwrap_or(false)
}
