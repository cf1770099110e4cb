//! As if a process ran on another machine: it gets only the processor time that nobody else wants.
//!
//! The scheduling policy SCHED_IDLE would not do: most systems put the processes of each session into a group, and groups share
//! the processors evenly, whatever is in them. So this is a group of its own that is idle as a whole.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
};

use anyhow::Context;

/// A cgroup, which is removed when this is dropped. By then, its processes must have ended.
pub struct Afar(PathBuf);

impl Afar {
    pub fn make() -> anyhow::Result<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let parent = if root.join("cgroup.controllers").exists() {
            // It may be on already, and stays on; if it cannot be switched on, the group has no such file.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
            root.to_owned()
        } else {
            root.join("cpu")
        };
        let group = Self(parent.join(format!("bench-flood-{}", std::process::id())));
        let made = fs::create_dir(&group.0).and_then(|()| fs::write(group.0.join("cpu.idle"), "1"));
        made.with_context(|| format!("cannot make the idle group {}: is this root?", group.0.display()))?;
        Ok(group)
    }

    pub fn take(&self, process: &Child) -> anyhow::Result<()> {
        let file = self.0.join("cgroup.procs");
        fs::write(&file, process.id().to_string()).with_context(|| format!("cannot write to {}", file.display()))
    }
}

impl Drop for Afar {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
