//! The records on disk: one folder for each sandbox and each container, with what was asked for and what became of it.
//!
//! A record is written before the thing it tells of is made, whole or not at all, so that whoever comes after a crash knows what to
//! look for. Processes do not survive the machine: each record says in which boot of it it was made.

use std::{
    fs, io,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    cgroups::Group,
    services::{ContainerConfig, PodSandboxConfig},
};

/// Where everything is.
#[derive(Debug, Clone)]
pub(crate) struct Folders {
    pub(crate) root: PathBuf,
}

impl Folders {
    const SNAPSHOTS: &str = "snapshots";
    const CONTAINERS: &str = "containers";
    const SANDBOXES: &str = "sandboxes";

    /// Nobody else enters them: they have the secrets of containers, and programs that would run with their owner's rights.
    pub(crate) fn create(root: &Path) -> io::Result<Self> {
        for name in [Self::SNAPSHOTS, Self::CONTAINERS, Self::SANDBOXES, "content", "images"] {
            let folder = root.join(name);
            fs::create_dir_all(&folder)?;
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self { root: root.canonicalize()? })
    }

    pub(crate) fn sandboxes(&self) -> PathBuf {
        self.root.join(Self::SANDBOXES)
    }

    pub(crate) fn sandbox(&self, id: &str) -> PathBuf {
        self.sandboxes().join(id)
    }

    pub(crate) fn containers(&self) -> PathBuf {
        self.root.join(Self::CONTAINERS)
    }

    pub(crate) fn container(&self, id: &str) -> PathBuf {
        self.containers().join(id)
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join(Self::SNAPSHOTS)
    }

    /// A container's folder, relative to that of the snapshots, as overlay mounts are given it.
    pub(crate) fn relative_container(id: &str) -> String {
        format!("../{}/{id}", Self::CONTAINERS)
    }
}

/// `sandbox.json`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxRecord {
    pub(crate) id: String,
    pub(crate) config: PodSandboxConfig,
    pub(crate) created_at: i64,
    pub(crate) boot_id: String,
    /// The pod's group; it is removed with the sandbox if it was not there before.
    pub(crate) group: Group,
    pub(crate) owns_group: bool,
    /// Whether it was ready once, and its maker told so.
    pub(crate) complete: bool,
    /// Whether there may be something that the network has to take down.
    pub(crate) has_network: bool,
    pub(crate) ips: Vec<IpAddr>,
}

/// `container.json`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    pub(crate) id: String,
    pub(crate) pod_sandbox_id: String,
    pub(crate) config: ContainerConfig,
    pub(crate) image_ref: String,
    pub(crate) created_at: i64,
    pub(crate) boot_id: String,
    pub(crate) group: Group,
    pub(crate) log_path: String,
    pub(crate) stop_signal: i32,
    /// Whether a process may have been started.
    pub(crate) started: bool,
}

impl ContainerRecord {
    /// Whether the container is made of an image, or has it mounted.
    pub(crate) fn has_image(&self, id: &str) -> bool {
        self.image_ref == id || self.config.mounts.iter().any(|mount| mount.image == id)
    }
}

pub(crate) const SANDBOX: &str = "sandbox.json";
pub(crate) const CONTAINER: &str = "container.json";
pub(crate) const EXIT: &str = "exit.json";
pub(crate) const SPEC: &str = "spec.json";

pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, serde_json::to_vec(record)?)?;
    fs::rename(temporary, path)
}

/// What is no record at all is invalid data; a record that says something else than expected, as that of another version may, is not.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    serde_json::from_slice(&fs::read(path)?).map_err(|error| {
        let kind = if error.is_data() { io::ErrorKind::Unsupported } else { io::ErrorKind::InvalidData };
        io::Error::new(kind, format!("{} is damaged: {error}", path.display()))
    })
}

/// The names of what is in a folder.
pub(crate) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Sixty-four hexadecimal digits that nobody else has.
pub(crate) fn new_id() -> io::Result<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(hex(&bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Changes with each start of the machine.
pub(crate) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}
