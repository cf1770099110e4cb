//! Control groups: where the limits and figures of pods and containers are.
//!
//! A [`Group`] is a path that exists in each hierarchy of version 1 that is mounted, or once in version 2's single tree. A hybrid
//! system, with version 2 beside the controllers of version 1, counts as version 1. Groups are named by the caller before
//! they are made, so that a record of the name is enough to remove them after a crash.

mod devices;
mod v1;
mod v2;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

pub use devices::{DeviceKind, DeviceRule};

use crate::services::LinuxContainerResources;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("no cgroup file system is mounted: mount cgroup2 on /sys/fs/cgroup")]
    Missing,
    #[error("cannot {step} the cgroup {path}: {source}")]
    Io { step: &'static str, path: String, source: io::Error },
    #[error("the cgroup {0} still has processes")]
    Busy(String),
}

type Result<T, E = CgroupError> = std::result::Result<T, E>;

/// What is mounted on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    V1(Vec<Hierarchy>),
    V2(PathBuf),
}

/// One mounted hierarchy of version 1: its controllers, or its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hierarchy {
    pub controllers: Vec<String>,
    pub mount: PathBuf,
}

/// What a container uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_usage_core_nano_seconds: u64,
    pub memory_usage_bytes: u64,
    /// Usage without file pages that can be dropped at once: what the eviction of pods goes by.
    pub memory_working_set_bytes: u64,
    pub memory_rss_bytes: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    pub memory_limit_bytes: Option<u64>,
    pub process_count: u64,
}

impl Layout {
    /// Reads the mounts of this process.
    pub fn detect() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|source| CgroupError::Io {
            step: "find",
            path: "/proc/self/mountinfo".into(),
            source,
        })?;
        Self::from_mountinfo(&mounts).ok_or(CgroupError::Missing)
    }

    fn from_mountinfo(mounts: &str) -> Option<Self> {
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        let mut unified = None;
        for line in mounts.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let Some(mount) = before.split(' ').nth(4).map(PathBuf::from) else { continue };
            let mut fields = after.split(' ');
            match (fields.next(), fields.nth(1)) {
                (Some("cgroup2"), _) => unified = unified.or(Some(mount)),
                (Some("cgroup"), Some(options)) => {
                    let controllers: Vec<String> = options
                        .split(',')
                        .filter(|option| v1::CONTROLLERS.contains(option) || option.starts_with("name="))
                        .map(String::from)
                        .collect();
                    // The same hierarchy may be mounted again elsewhere, as container tools do: the first counts.
                    if !controllers.is_empty() && hierarchies.iter().all(|known| known.controllers != controllers) {
                        hierarchies.push(Hierarchy { controllers, mount });
                    }
                }
                _ => {}
            }
        }
        if hierarchies.iter().any(|h| h.controllers.iter().any(|c| !c.starts_with("name="))) {
            return Some(Self::V1(hierarchies));
        }
        unified.map(Self::V2)
    }

    pub fn group(&self, path: &str) -> Group {
        Group { path: format!("/{}", path.trim_matches('/')), layout: self.clone() }
    }
}

/// One group, in every hierarchy. Making the value makes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    path: String,
    layout: Layout,
}

impl Group {
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub fn child(&self, name: &str) -> Self {
        Self { path: format!("{}/{name}", self.path.trim_end_matches('/')), layout: self.layout.clone() }
    }

    /// The group's folder in each hierarchy.
    fn folders(&self) -> Vec<PathBuf> {
        let relative = self.path.trim_start_matches('/');
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies.iter().map(|hierarchy| hierarchy.mount.join(relative)).collect(),
            Layout::V2(mount) => vec![mount.join(relative)],
        }
    }

    /// The folder that has a controller's files.
    fn folder(&self, controller: &str) -> Option<PathBuf> {
        let relative = self.path.trim_start_matches('/');
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies
                .iter()
                .find(|hierarchy| hierarchy.controllers.iter().any(|c| c == controller))
                .map(|hierarchy| hierarchy.mount.join(relative)),
            Layout::V2(mount) => Some(mount.join(relative)),
        }
    }

    fn error(&self, step: &'static str) -> impl FnOnce(io::Error) -> CgroupError {
        let path = self.path.clone();
        move |source| CgroupError::Io { step, path, source }
    }

    pub fn exists(&self) -> bool {
        self.folders().iter().any(|folder| folder.exists())
    }

    /// Makes the group and those above it.
    pub fn create(&self) -> Result<()> {
        match &self.layout {
            Layout::V1(hierarchies) => v1::create(hierarchies, &self.path),
            Layout::V2(mount) => v2::create(mount, &self.path),
        }
        .map_err(self.error("make"))
    }

    /// Moves the calling process into the group.
    pub fn join(&self) -> io::Result<()> {
        for folder in self.folders() {
            let file = folder.join("cgroup.procs");
            fs::write(&file, "0")
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
        }
        Ok(())
    }

    /// Moves the calling process to where another process of the group is. A container that has made groups of its own, in version 2,
    /// has its processes in these, and its own group takes none.
    pub fn join_beside(&self, process: i32) -> io::Result<()> {
        match (self.join(), &self.layout) {
            (Err(error), Layout::V2(mount)) if error.kind() == io::ErrorKind::ResourceBusy => {
                let groups = fs::read_to_string(format!("/proc/{process}/cgroup"))?;
                let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).ok_or(error)?;
                fs::write(mount.join(path).join("cgroup.procs"), "0")
            }
            (result, _) => result,
        }
    }

    /// Sets the limits that are given, and leaves the others.
    pub fn set_limits(&self, resources: &LinuxContainerResources) -> Result<()> {
        match &self.layout {
            Layout::V1(_) => v1::set_limits(|controller| self.folder(controller), resources),
            Layout::V2(mount) => v2::set_limits(&mount.join(self.path.trim_start_matches('/')), resources),
        }
        .map_err(self.error("limit"))
    }

    /// Forbids all devices but these.
    pub fn set_devices(&self, rules: &[DeviceRule]) -> Result<()> {
        match self.folder("devices") {
            Some(folder) if matches!(self.layout, Layout::V2(_)) => devices::attach(&folder, rules),
            Some(folder) => v1::set_devices(&folder, rules),
            // Without the controller nothing can be forbidden: then the container must not run.
            None => Err(io::Error::new(io::ErrorKind::Unsupported, "the devices controller is not mounted")),
        }
        .map_err(self.error("set the devices of"))
    }

    pub fn usage(&self) -> Result<Usage> {
        match &self.layout {
            Layout::V1(_) => v1::usage(|controller| self.folder(controller)),
            Layout::V2(mount) => v2::usage(&mount.join(self.path.trim_start_matches('/'))),
        }
        .map_err(self.error("read"))
    }

    /// How many processes of the group the kernel has killed for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let file = match self.layout {
            Layout::V1(_) => "memory.oom_control",
            Layout::V2(_) => "memory.events",
        };
        let text = self.folder("memory").and_then(|folder| fs::read_to_string(folder.join(file)).ok());
        text.and_then(|text| field(&text, "oom_kill")).unwrap_or(0)
    }

    /// The processes in the group itself.
    pub fn processes(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self
            .folders()
            .iter()
            .filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>())
            .filter(|pid| *pid > 0)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Kills every process of the group, once. Who needs them gone calls it until [`Group::processes`] is empty: in version 1,
    /// a process that forks at this moment may get away once.
    pub fn kill(&self) {
        if let Layout::V2(mount) = &self.layout
            && fs::write(mount.join(self.path.trim_start_matches('/')).join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        for pid in self.processes() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                // It may have exited meanwhile, which is what is wanted.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }

    /// Kills what is in the group and in those below it, and removes them, leaves first. Blocks until it is done, at most
    /// for `patience`: a process that is stuck in the kernel cannot be killed.
    pub fn destroy(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            let left: Vec<PathBuf> = self.folders().into_iter().filter(|folder| !remove_tree(folder)).collect();
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(CgroupError::Busy(self.path.clone()));
            }
            for folder in &left {
                kill_below(folder);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Removes the group if nothing is in it.
    pub fn remove_if_empty(&self) {
        for folder in self.folders() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Removes a folder of groups, and tells whether it is gone.
fn remove_tree(folder: &Path) -> bool {
    for child in children(folder) {
        remove_tree(&child);
    }
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn kill_below(folder: &Path) {
    for child in children(folder) {
        kill_below(&child);
    }
    let pids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in pids.lines().filter_map(|line| line.parse().ok()).filter_map(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// The number after a name, in files with a name and a number on each line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then(|| value.trim().parse().ok())?
    })
}

fn number(file: PathBuf) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Writes a limit, and says which in the error.
fn write(folder: &Path, file: &str, value: impl ToString) -> io::Result<()> {
    let value = value.to_string();
    fs::write(folder.join(file), &value)
        .map_err(|error| io::Error::new(error.kind(), format!("writing {value} to {file}: {error}")))
}

#[cfg(test)]
mod tests;
