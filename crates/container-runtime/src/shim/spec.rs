//! What the shim is told about a pod and its containers, in files of their folders.
//!
//! They are complete: the shim takes no decision, and reads nothing of the runtime's records.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{cgroups::Group, security::capabilities::CapabilitySets, security::seccomp::Programs, services::Mount};

/// `shim.json` in the folder of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxSpec {
    pub id: String,
    pub hostname: String,
    /// Whether the pod has a network namespace of its own; loopback is set up then.
    pub own_network: bool,
    pub own_ipc: bool,
    /// Whether the containers share one pid namespace, which an idle process holds.
    pub shared_pid: bool,
    pub sysctls: BTreeMap<String, String>,
    /// Where the shim itself lives, apart from the pod, so that the pod's limits do not hit it.
    pub shim_group: Group,
}

/// `spec.json` in the folder of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub id: String,
    pub rootfs: Overlay,
    pub readonly_rootfs: bool,
    /// Binds, in order.
    pub mounts: Vec<Mount>,
    /// The layers of the images among them, by their ids, the topmost first: folders relative to the base of `rootfs`.
    #[serde(default)]
    pub image_layers: BTreeMap<String, Vec<String>>,
    pub devices: Vec<DeviceNode>,
    pub masked_paths: Vec<String>,
    pub readonly_paths: Vec<String>,
    /// /sys and the cgroups can be written, and the node's devices are all there.
    pub privileged: bool,
    pub pid: PidNamespace,
    pub group: Group,
    pub log: Option<LogSpec>,
    pub stdin: bool,
    pub stdin_once: bool,
    pub process: ProcessSpec,
    /// Where the exit is recorded.
    pub exit_file: PathBuf,
}

/// Folders relative to `base`, because the kernel takes one page of mount options only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlay {
    pub base: PathBuf,
    /// The topmost first.
    pub lower: Vec<String>,
    pub upper: String,
    pub work: String,
    pub target: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub host_path: PathBuf,
    pub container_path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PidNamespace {
    Own,
    Pod,
    Host,
    /// That of another container of the pod, by id.
    Of(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSpec {
    pub path: PathBuf,
    pub max_size: u64,
    pub max_files: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub args: Vec<String>,
    /// `NAME=value`
    pub env: Vec<String>,
    pub cwd: String,
    pub user: UserSpec,
    pub capabilities: CapabilitySets,
    pub no_new_privs: bool,
    pub seccomp: Option<Programs>,
    pub oom_score_adj: i32,
    pub tty: bool,
}

/// Names are looked up in the container's own files, when it is started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserSpec {
    /// As an image has it: a name or a number, and after a colon a group. Empty is root.
    pub user: String,
    pub group: Option<u32>,
    pub additional_groups: Vec<u32>,
    /// Leaves out the groups that the container's /etc/group gives the user.
    pub strict_groups: bool,
}

/// The record of an exit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub exit_code: i32,
    /// Nanoseconds since 1970.
    pub started_at: i64,
    pub finished_at: i64,
    pub oom_killed: bool,
    /// Why the command could not be executed, if it could not.
    pub start_error: Option<String>,
}
