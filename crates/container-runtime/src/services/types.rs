//! CRI v1's messages, as far as a Linux runtime needs them, under their names there.
//!
//! They are also what the records on disk hold, so each field has a default and unknown fields are ignored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionResponse {
    pub version: String,
    pub runtime_name: String,
    pub runtime_version: String,
    pub runtime_api_version: String,
}

/// `RuntimeReady` and `NetworkReady`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeCondition {
    pub r#type: String,
    pub status: bool,
    pub reason: String,
    pub message: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSandboxMetadata {
    pub name: String,
    pub uid: String,
    pub namespace: String,
    pub attempt: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DnsConfig {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortMapping {
    pub protocol: String,
    pub container_port: i32,
    pub host_port: i32,
    pub host_ip: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSandboxConfig {
    pub metadata: PodSandboxMetadata,
    pub hostname: String,
    /// The folder that the containers' `log_path`s are in.
    pub log_directory: String,
    pub dns_config: Option<DnsConfig>,
    pub port_mappings: Vec<PortMapping>,
    pub labels: Labels,
    pub annotations: Labels,
    pub linux: LinuxPodSandboxConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxPodSandboxConfig {
    /// The group of the pod, such as `/kubepods/burstable/pod<uid>`; the containers' groups are made in it.
    pub cgroup_parent: String,
    /// The limits of that group: of the pod as a whole.
    pub resources: LinuxContainerResources,
    pub security_context: LinuxSandboxSecurityContext,
    pub sysctls: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxSandboxSecurityContext {
    pub namespace_options: NamespaceOption,
    pub privileged: bool,
}

/// Whose namespace a container uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamespaceMode {
    #[default]
    Pod,
    Container,
    Node,
    /// That of the container with the id `target_id`.
    Target,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceOption {
    pub network: NamespaceMode,
    pub pid: NamespaceMode,
    pub ipc: NamespaceMode,
    pub target_id: String,
    /// True asks for a user namespace of the pod's own.
    pub userns: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PodSandboxState {
    Ready,
    NotReady,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSandbox {
    pub id: String,
    pub metadata: PodSandboxMetadata,
    pub state: PodSandboxState,
    pub created_at: i64,
    pub labels: Labels,
    pub annotations: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSandboxStatus {
    pub id: String,
    pub metadata: PodSandboxMetadata,
    pub state: PodSandboxState,
    pub created_at: i64,
    /// The pod's addresses, the primary one first; none for a pod on the node's network.
    pub ips: Vec<std::net::IpAddr>,
    /// Opens the pod's network namespace, while the sandbox is ready.
    pub netns: String,
    pub linux: NamespaceOption,
    pub labels: Labels,
    pub annotations: Labels,
}

/// All conditions given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodSandboxFilter {
    pub id: Option<String>,
    pub state: Option<PodSandboxState>,
    pub label_selector: Labels,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerMetadata {
    pub name: String,
    pub attempt: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountPropagation {
    #[default]
    Private,
    HostToContainer,
    Bidirectional,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mount {
    pub container_path: String,
    /// Empty where an image is mounted.
    pub host_path: String,
    /// The id of an image whose files are mounted, never to be written nor executed.
    pub image: String,
    /// A file or folder of the image instead of all of it.
    pub image_sub_path: String,
    pub readonly: bool,
    /// With `readonly`, mounts below are read-only, too.
    pub recursive_read_only: bool,
    pub propagation: MountPropagation,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    pub container_path: String,
    pub host_path: String,
    /// Of `r`, `w` and `m`.
    pub permissions: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerConfig {
    pub metadata: ContainerMetadata,
    /// The image: a name, a digest or an id.
    pub image: String,
    /// Takes the place of the image's entrypoint, and of its command.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub working_dir: String,
    pub envs: Vec<KeyValue>,
    pub mounts: Vec<Mount>,
    pub devices: Vec<Device>,
    pub labels: Labels,
    pub annotations: Labels,
    /// Below the sandbox's `log_directory`.
    pub log_path: String,
    pub stdin: bool,
    /// The container's input ends when the first client that attached to it does.
    pub stdin_once: bool,
    pub tty: bool,
    pub linux: LinuxContainerConfig,
    /// Such as `SIGUSR1`; empty for the image's, or SIGTERM.
    pub stop_signal: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxContainerConfig {
    pub resources: LinuxContainerResources,
    pub security_context: LinuxContainerSecurityContext,
}

/// Zero leaves a limit as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxContainerResources {
    pub cpu_period: i64,
    /// Microseconds in each period; -1 for no limit.
    pub cpu_quota: i64,
    pub cpu_shares: i64,
    pub memory_limit_in_bytes: i64,
    pub memory_swap_limit_in_bytes: i64,
    pub oom_score_adj: i64,
    pub cpuset_cpus: String,
    pub cpuset_mems: String,
    pub pids_limit: i64,
    pub hugepage_limits: BTreeMap<String, u64>,
    /// Files of cgroup v2 and what to write to them.
    pub unified: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capability {
    pub add_capabilities: Vec<String>,
    pub drop_capabilities: Vec<String>,
    pub add_ambient_capabilities: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecurityProfile {
    RuntimeDefault,
    #[default]
    Unconfined,
    Localhost,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinuxContainerSecurityContext {
    pub capabilities: Capability,
    pub privileged: bool,
    pub namespace_options: NamespaceOption,
    pub run_as_user: Option<i64>,
    pub run_as_group: Option<i64>,
    pub run_as_username: String,
    pub readonly_rootfs: bool,
    pub supplemental_groups: Vec<i64>,
    /// Only `supplemental_groups` count, not those that the image's /etc/group gives the user.
    pub supplemental_groups_strict: bool,
    pub no_new_privs: bool,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    pub seccomp: SecurityProfile,
    /// The file of a `Localhost` profile.
    pub seccomp_localhost_ref: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    pub pod_sandbox_id: String,
    pub metadata: ContainerMetadata,
    pub image: String,
    /// The id of the image.
    pub image_ref: String,
    pub state: ContainerState,
    pub created_at: i64,
    pub labels: Labels,
    pub annotations: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    pub id: String,
    pub pod_sandbox_id: String,
    pub metadata: ContainerMetadata,
    pub state: ContainerState,
    pub created_at: i64,
    pub started_at: Option<i64>,
    pub finished_at: Option<i64>,
    pub exit_code: i32,
    pub image: String,
    pub image_ref: String,
    /// `Completed`, `Error`, `OOMKilled`, `StartError` once the container has exited.
    pub reason: String,
    pub message: String,
    pub labels: Labels,
    pub annotations: Labels,
    pub mounts: Vec<Mount>,
    /// The full path of the log.
    pub log_path: String,
    pub resources: LinuxContainerResources,
    /// The process, while the container runs.
    pub pid: Option<i32>,
}

/// All conditions given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerFilter {
    pub id: Option<String>,
    pub state: Option<ContainerState>,
    pub pod_sandbox_id: Option<String>,
    pub label_selector: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSyncResponse {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRequest {
    pub container_id: String,
    pub cmd: Vec<String>,
    pub tty: bool,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttachRequest {
    pub container_id: String,
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerStats {
    pub id: String,
    pub pod_sandbox_id: String,
    pub metadata: ContainerMetadata,
    pub labels: Labels,
    pub timestamp: i64,
    pub usage: crate::cgroups::Usage,
    pub writable_layer: FilesystemUsage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerEventType {
    Created,
    Started,
    /// The container has exited, and its log is complete.
    Stopped,
    Deleted,
}

/// Something happened to a container, or to a sandbox: then `container_id` is the sandbox's own id, as in CRI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEvent {
    pub container_id: String,
    pub pod_sandbox_id: String,
    pub container_event_type: ContainerEventType,
    pub created_at: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The digest of the image's configuration.
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    /// Bytes of the content as stored.
    pub size: u64,
    pub uid: Option<i64>,
    pub username: String,
    /// Never removed to make room.
    pub pinned: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuthConfig {
    pub username: String,
    pub password: String,
    pub auth: String,
    pub identity_token: String,
    pub registry_token: String,
    pub server_address: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilesystemUsage {
    pub timestamp: i64,
    pub mountpoint: String,
    pub used_bytes: u64,
    pub inodes_used: u64,
}
