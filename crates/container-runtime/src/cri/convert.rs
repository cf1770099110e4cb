//! Between CRI's messages and the services' types.

use super::wire;
use crate::services as own;

pub(super) fn labels(map: wire::Map) -> own::Labels {
    map.into_iter().collect()
}

fn map(labels: own::Labels) -> wire::Map {
    labels.into_iter().collect()
}

fn text(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn mode(number: i32) -> own::NamespaceMode {
    match number {
        1 => own::NamespaceMode::Container,
        2 => own::NamespaceMode::Node,
        3 => own::NamespaceMode::Target,
        _ => own::NamespaceMode::Pod,
    }
}

fn mode_number(mode: own::NamespaceMode) -> i32 {
    match mode {
        own::NamespaceMode::Pod => 0,
        own::NamespaceMode::Container => 1,
        own::NamespaceMode::Node => 2,
        own::NamespaceMode::Target => 3,
    }
}

fn namespaces(options: Option<wire::NamespaceOption>) -> own::NamespaceOption {
    let options = options.unwrap_or_default();
    own::NamespaceOption {
        network: mode(options.network),
        pid: mode(options.pid),
        ipc: mode(options.ipc),
        target_id: options.target_id,
        // The mode "pod" is zero, which asks for one of the pod's own.
        userns: options.userns_options.is_some_and(|userns| userns.mode == 0),
    }
}

impl From<wire::PodSandboxMetadata> for own::PodSandboxMetadata {
    fn from(wire::PodSandboxMetadata { name, uid, namespace, attempt }: wire::PodSandboxMetadata) -> Self {
        Self { name, uid, namespace, attempt }
    }
}

impl From<own::PodSandboxMetadata> for wire::PodSandboxMetadata {
    fn from(own::PodSandboxMetadata { name, uid, namespace, attempt }: own::PodSandboxMetadata) -> Self {
        Self { name, uid, namespace, attempt }
    }
}

impl From<wire::PodSandboxConfig> for own::PodSandboxConfig {
    fn from(config: wire::PodSandboxConfig) -> Self {
        let linux = config.linux.unwrap_or_default();
        let security = linux.security_context.unwrap_or_default();
        let protocol = |number| match number {
            1 => "UDP",
            2 => "SCTP",
            _ => "TCP",
        };
        Self {
            metadata: config.metadata.unwrap_or_default().into(),
            hostname: config.hostname,
            log_directory: config.log_directory,
            dns_config: config.dns_config.map(|dns| own::DnsConfig {
                servers: dns.servers,
                searches: dns.searches,
                options: dns.options,
            }),
            port_mappings: config
                .port_mappings
                .into_iter()
                .map(|port| own::PortMapping {
                    protocol: protocol(port.protocol).into(),
                    container_port: port.container_port,
                    host_port: port.host_port,
                    host_ip: port.host_ip,
                })
                .collect(),
            labels: labels(config.labels),
            annotations: labels(config.annotations),
            linux: own::LinuxPodSandboxConfig {
                cgroup_parent: linux.cgroup_parent,
                // Whoever speaks CRI makes and limits the groups of pods itself.
                resources: Default::default(),
                security_context: own::LinuxSandboxSecurityContext {
                    namespace_options: namespaces(security.namespace_options),
                    privileged: security.privileged,
                },
                sysctls: labels(linux.sysctls),
            },
        }
    }
}

impl From<wire::LinuxContainerResources> for own::LinuxContainerResources {
    fn from(given: wire::LinuxContainerResources) -> Self {
        Self {
            cpu_period: given.cpu_period,
            cpu_quota: given.cpu_quota,
            cpu_shares: given.cpu_shares,
            memory_limit_in_bytes: given.memory_limit_in_bytes,
            memory_swap_limit_in_bytes: given.memory_swap_limit_in_bytes,
            oom_score_adj: given.oom_score_adj,
            cpuset_cpus: given.cpuset_cpus,
            cpuset_mems: given.cpuset_mems,
            // The files of version 2 have it where they are asked for.
            pids_limit: 0,
            hugepage_limits: given.hugepage_limits.into_iter().map(|limit| (limit.page_size, limit.limit)).collect(),
            unified: labels(given.unified),
        }
    }
}

impl From<own::LinuxContainerResources> for wire::LinuxContainerResources {
    fn from(own: own::LinuxContainerResources) -> Self {
        let pages = own.hugepage_limits.into_iter();
        Self {
            cpu_period: own.cpu_period,
            cpu_quota: own.cpu_quota,
            cpu_shares: own.cpu_shares,
            memory_limit_in_bytes: own.memory_limit_in_bytes,
            oom_score_adj: own.oom_score_adj,
            cpuset_cpus: own.cpuset_cpus,
            cpuset_mems: own.cpuset_mems,
            hugepage_limits: pages.map(|(page_size, limit)| wire::HugepageLimit { page_size, limit }).collect(),
            unified: map(own.unified),
            memory_swap_limit_in_bytes: own.memory_swap_limit_in_bytes,
        }
    }
}

impl From<wire::LinuxContainerSecurityContext> for own::LinuxContainerSecurityContext {
    fn from(given: wire::LinuxContainerSecurityContext) -> Self {
        let capabilities = given.capabilities.unwrap_or_default();
        let seccomp = given.seccomp.unwrap_or(wire::SecurityProfile { profile_type: 1, localhost_ref: String::new() });
        Self {
            capabilities: own::Capability {
                add_capabilities: capabilities.add_capabilities,
                drop_capabilities: capabilities.drop_capabilities,
                add_ambient_capabilities: capabilities.add_ambient_capabilities,
            },
            privileged: given.privileged,
            namespace_options: namespaces(given.namespace_options),
            run_as_user: given.run_as_user.map(|id| id.value),
            run_as_group: given.run_as_group.map(|id| id.value),
            run_as_username: given.run_as_username,
            readonly_rootfs: given.readonly_rootfs,
            supplemental_groups: given.supplemental_groups,
            supplemental_groups_strict: given.supplemental_groups_policy == 1,
            no_new_privs: given.no_new_privs,
            masked_paths: given.masked_paths,
            readonly_paths: given.readonly_paths,
            seccomp: match seccomp.profile_type {
                0 => own::SecurityProfile::RuntimeDefault,
                2 => own::SecurityProfile::Localhost,
                _ => own::SecurityProfile::Unconfined,
            },
            seccomp_localhost_ref: seccomp.localhost_ref,
        }
    }
}

impl From<wire::ContainerConfig> for own::ContainerConfig {
    fn from(config: wire::ContainerConfig) -> Self {
        let linux = config.linux.unwrap_or_default();
        let metadata = config.metadata.unwrap_or_default();
        Self {
            metadata: own::ContainerMetadata { name: metadata.name, attempt: metadata.attempt },
            image: config.image.unwrap_or_default().image,
            command: config.command,
            args: config.args,
            working_dir: config.working_dir,
            envs: config
                .envs
                .into_iter()
                .map(|env| own::KeyValue { key: env.key, value: String::from_utf8_lossy(&env.value).into_owned() })
                .collect(),
            mounts: config.mounts.into_iter().map(Into::into).collect(),
            devices: config
                .devices
                .into_iter()
                .map(|device| own::Device {
                    container_path: device.container_path,
                    host_path: device.host_path,
                    permissions: device.permissions,
                })
                .collect(),
            labels: labels(config.labels),
            annotations: labels(config.annotations),
            log_path: config.log_path,
            stdin: config.stdin,
            stdin_once: config.stdin_once,
            tty: config.tty,
            linux: own::LinuxContainerConfig {
                resources: linux.resources.unwrap_or_default().into(),
                security_context: linux.security_context.unwrap_or_default().into(),
            },
            stop_signal: String::new(),
        }
    }
}

impl From<wire::Mount> for own::Mount {
    fn from(mount: wire::Mount) -> Self {
        Self {
            container_path: mount.container_path,
            host_path: mount.host_path,
            image: mount.image.map(|image| image.image).unwrap_or_default(),
            image_sub_path: mount.image_sub_path,
            readonly: mount.readonly,
            recursive_read_only: mount.recursive_read_only,
            propagation: match mount.propagation {
                1 => own::MountPropagation::HostToContainer,
                2 => own::MountPropagation::Bidirectional,
                _ => own::MountPropagation::Private,
            },
        }
    }
}

impl From<own::Mount> for wire::Mount {
    fn from(mount: own::Mount) -> Self {
        Self {
            container_path: mount.container_path,
            host_path: mount.host_path,
            image: (!mount.image.is_empty()).then(|| wire::ImageSpec { image: mount.image, ..Default::default() }),
            image_sub_path: mount.image_sub_path,
            readonly: mount.readonly,
            recursive_read_only: mount.recursive_read_only,
            propagation: match mount.propagation {
                own::MountPropagation::Private => 0,
                own::MountPropagation::HostToContainer => 1,
                own::MountPropagation::Bidirectional => 2,
            },
        }
    }
}

impl From<wire::PodSandboxFilter> for own::PodSandboxFilter {
    fn from(filter: wire::PodSandboxFilter) -> Self {
        let state = |number| if number == 0 { own::PodSandboxState::Ready } else { own::PodSandboxState::NotReady };
        Self {
            id: text(filter.id),
            state: filter.state.map(|value| state(value.state)),
            label_selector: labels(filter.label_selector),
        }
    }
}

impl From<wire::ContainerFilter> for own::ContainerFilter {
    fn from(filter: wire::ContainerFilter) -> Self {
        let state = |number| match number {
            0 => own::ContainerState::Created,
            1 => own::ContainerState::Running,
            2 => own::ContainerState::Exited,
            _ => own::ContainerState::Unknown,
        };
        Self {
            id: text(filter.id),
            state: filter.state.map(|value| state(value.state)),
            pod_sandbox_id: text(filter.pod_sandbox_id),
            label_selector: labels(filter.label_selector),
        }
    }
}

impl From<wire::ContainerStatsFilter> for own::ContainerFilter {
    fn from(filter: wire::ContainerStatsFilter) -> Self {
        Self {
            id: text(filter.id),
            state: None,
            pod_sandbox_id: text(filter.pod_sandbox_id),
            label_selector: labels(filter.label_selector),
        }
    }
}

impl From<wire::AuthConfig> for own::AuthConfig {
    fn from(auth: wire::AuthConfig) -> Self {
        Self {
            username: auth.username,
            password: auth.password,
            auth: auth.auth,
            identity_token: auth.identity_token,
            registry_token: auth.registry_token,
            server_address: auth.server_address,
        }
    }
}

impl From<own::AuthConfig> for wire::AuthConfig {
    fn from(auth: own::AuthConfig) -> Self {
        Self {
            username: auth.username,
            password: auth.password,
            auth: auth.auth,
            server_address: auth.server_address,
            identity_token: auth.identity_token,
            registry_token: auth.registry_token,
        }
    }
}

fn sandbox_state(state: own::PodSandboxState) -> i32 {
    match state {
        own::PodSandboxState::Ready => 0,
        own::PodSandboxState::NotReady => 1,
    }
}

fn container_state(state: own::ContainerState) -> i32 {
    match state {
        own::ContainerState::Created => 0,
        own::ContainerState::Running => 1,
        own::ContainerState::Exited => 2,
        own::ContainerState::Unknown => 3,
    }
}

impl From<own::PodSandbox> for wire::PodSandbox {
    fn from(sandbox: own::PodSandbox) -> Self {
        Self {
            id: sandbox.id,
            metadata: Some(sandbox.metadata.into()),
            state: sandbox_state(sandbox.state),
            created_at: sandbox.created_at,
            labels: map(sandbox.labels),
            annotations: map(sandbox.annotations),
        }
    }
}

impl From<own::PodSandboxStatus> for wire::PodSandboxStatus {
    fn from(status: own::PodSandboxStatus) -> Self {
        let mut ips = status.ips.iter().map(ToString::to_string);
        let linux = status.linux;
        let options = wire::NamespaceOption {
            network: mode_number(linux.network),
            pid: mode_number(linux.pid),
            ipc: mode_number(linux.ipc),
            target_id: linux.target_id,
            userns_options: linux.userns.then(wire::UserNamespace::default),
        };
        Self {
            id: status.id,
            metadata: Some(status.metadata.into()),
            state: sandbox_state(status.state),
            created_at: status.created_at,
            network: Some(wire::PodSandboxNetworkStatus {
                ip: ips.next().unwrap_or_default(),
                additional_ips: ips.map(|ip| wire::PodIp { ip }).collect(),
            }),
            linux: Some(wire::LinuxPodSandboxStatus { namespaces: Some(wire::Namespace { options: Some(options) }) }),
            labels: map(status.labels),
            annotations: map(status.annotations),
        }
    }
}

impl From<own::ContainerMetadata> for wire::ContainerMetadata {
    fn from(metadata: own::ContainerMetadata) -> Self {
        Self { name: metadata.name, attempt: metadata.attempt }
    }
}

fn image_spec(image: String) -> Option<wire::ImageSpec> {
    Some(wire::ImageSpec { user_specified_image: image.clone(), image, ..Default::default() })
}

impl From<own::Container> for wire::Container {
    fn from(container: own::Container) -> Self {
        Self {
            id: container.id,
            pod_sandbox_id: container.pod_sandbox_id,
            metadata: Some(container.metadata.into()),
            image: image_spec(container.image),
            image_id: container.image_ref.clone(),
            image_ref: container.image_ref,
            state: container_state(container.state),
            created_at: container.created_at,
            labels: map(container.labels),
            annotations: map(container.annotations),
        }
    }
}

impl From<own::ContainerStatus> for wire::ContainerStatus {
    fn from(status: own::ContainerStatus) -> Self {
        Self {
            id: status.id,
            metadata: Some(status.metadata.into()),
            state: container_state(status.state),
            created_at: status.created_at,
            started_at: status.started_at.unwrap_or(0),
            finished_at: status.finished_at.unwrap_or(0),
            exit_code: status.exit_code,
            image: image_spec(status.image),
            image_id: status.image_ref.clone(),
            image_ref: status.image_ref,
            reason: status.reason,
            message: status.message,
            labels: map(status.labels),
            annotations: map(status.annotations),
            mounts: status.mounts.into_iter().map(Into::into).collect(),
            log_path: status.log_path,
            resources: Some(wire::ContainerResources { linux: Some(status.resources.into()) }),
        }
    }
}

impl From<own::Image> for wire::Image {
    fn from(image: own::Image) -> Self {
        Self {
            id: image.id,
            repo_tags: image.repo_tags,
            repo_digests: image.repo_digests,
            size: image.size,
            uid: image.uid.map(|value| wire::Int64Value { value }),
            username: image.username,
            pinned: image.pinned,
        }
    }
}

fn number(value: u64) -> Option<wire::UInt64Value> {
    Some(wire::UInt64Value { value })
}

impl From<own::FilesystemUsage> for wire::FilesystemUsage {
    fn from(usage: own::FilesystemUsage) -> Self {
        Self {
            timestamp: usage.timestamp,
            fs_id: Some(wire::FilesystemIdentifier { mountpoint: usage.mountpoint }),
            used_bytes: number(usage.used_bytes),
            inodes_used: number(usage.inodes_used),
        }
    }
}

impl From<own::ContainerStats> for wire::ContainerStats {
    fn from(stats: own::ContainerStats) -> Self {
        let (usage, timestamp) = (stats.usage, stats.timestamp);
        let available = |limit: u64| limit.saturating_sub(usage.memory_working_set_bytes);
        Self {
            attributes: Some(wire::ContainerAttributes {
                id: stats.id,
                metadata: Some(stats.metadata.into()),
                labels: map(stats.labels),
            }),
            cpu: Some(wire::CpuUsage { timestamp, usage_core_nano_seconds: number(usage.cpu_usage_core_nano_seconds) }),
            memory: Some(wire::MemoryUsage {
                timestamp,
                working_set_bytes: number(usage.memory_working_set_bytes),
                available_bytes: usage.memory_limit_bytes.map(available).and_then(number),
                usage_bytes: number(usage.memory_usage_bytes),
                rss_bytes: number(usage.memory_rss_bytes),
                page_faults: number(usage.page_faults),
                major_page_faults: number(usage.major_page_faults),
            }),
            writable_layer: Some(stats.writable_layer.into()),
        }
    }
}

pub(super) fn event_type(kind: own::ContainerEventType) -> i32 {
    match kind {
        own::ContainerEventType::Created => 0,
        own::ContainerEventType::Started => 1,
        own::ContainerEventType::Stopped => 2,
        own::ContainerEventType::Deleted => 3,
    }
}
