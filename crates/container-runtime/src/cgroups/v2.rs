//! Version 2: one tree, in which processes live in leaves and controllers are switched on from above.

use std::{fs, io, path::Path};

use super::{Usage, field, number, write};
use crate::services::LinuxContainerResources;

/// The controllers that containers use. `devices` is no controller here: see `devices.rs`.
const CONTROLLERS: &[&str] = &["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

pub(super) fn create(mount: &Path, path: &str) -> io::Result<()> {
    let mut folder = mount.to_path_buf();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        enable_controllers(&folder, folder == mount)?;
        folder.push(part);
        match fs::create_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Gives the groups in a folder the controllers that the folder has. One that it does not give, since something else on the machine
/// needs it otherwise, is missed where a limit is set that needs it, and only there.
fn enable_controllers(folder: &Path, is_root: bool) -> io::Result<()> {
    let available = fs::read_to_string(folder.join("cgroup.controllers"))?;
    let enabled = fs::read_to_string(folder.join("cgroup.subtree_control"))?;
    let is_enabled = |controller: &str| enabled.split_whitespace().any(|known| known == controller);
    for controller in available.split_whitespace().filter(|c| CONTROLLERS.contains(c) && !is_enabled(c)) {
        let enable = || write(folder, "cgroup.subtree_control", format!("+{controller}"));
        if enable().is_err_and(|error| is_root && error.kind() == io::ErrorKind::ResourceBusy) {
            make_room(folder)?;
            // Whether it works now is seen where it is needed.
            let _ = enable();
        }
    }
    Ok(())
}

/// A group that gives controllers to others must have no processes itself, except on the machine's own root: this one is what a
/// container sees as its root. Its processes go on in a group beside ours.
fn make_room(root: &Path) -> io::Result<()> {
    let beside = root.join("init");
    match fs::create_dir(&beside) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for process in fs::read_to_string(root.join("cgroup.procs"))?.lines() {
        // It may have ended meanwhile.
        let _ = fs::write(beside.join("cgroup.procs"), process);
    }
    Ok(())
}

pub(super) fn set_limits(folder: &Path, resources: &LinuxContainerResources) -> io::Result<()> {
    if resources.cpu_shares != 0 {
        write(folder, "cpu.weight", weight(resources.cpu_shares))?;
    }
    if resources.cpu_quota != 0 || resources.cpu_period != 0 {
        let period = if resources.cpu_period == 0 { 100_000 } else { resources.cpu_period };
        let quota = if resources.cpu_quota > 0 { resources.cpu_quota.to_string() } else { "max".into() };
        write(folder, "cpu.max", format!("{quota} {period}"))?;
    }
    if !resources.cpuset_cpus.is_empty() {
        write(folder, "cpuset.cpus", &resources.cpuset_cpus)?;
    }
    if !resources.cpuset_mems.is_empty() {
        write(folder, "cpuset.mems", &resources.cpuset_mems)?;
    }
    let memory = resources.memory_limit_in_bytes;
    if memory != 0 {
        write(folder, "memory.max", limit(memory))?;
    }
    // CRI's figure is memory and swap together, as in version 1; the file here is swap alone.
    if resources.memory_swap_limit_in_bytes != 0 && folder.join("memory.swap.max").exists() {
        let both = resources.memory_swap_limit_in_bytes;
        write(folder, "memory.swap.max", if both < 0 { limit(both) } else { limit((both - memory).max(0)) })?;
    }
    if resources.pids_limit != 0 {
        write(folder, "pids.max", limit(resources.pids_limit))?;
    }
    for (size, bytes) in &resources.hugepage_limits {
        write(folder, &format!("hugetlb.{size}.max"), bytes)?;
    }
    for (file, value) in &resources.unified {
        if file.contains('/') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{file} is not the name of a cgroup's file"),
            ));
        }
        write(folder, file, value)?;
    }
    Ok(())
}

fn limit(value: i64) -> String {
    if value < 0 { "max".into() } else { value.to_string() }
}

/// Shares of version 1 (2 to 262144, 1024 for one processor) as a weight of version 2 (1 to 10000), on the curve that OCI
/// runtimes agreed on: 1024 shares are the default weight of 100.
pub(super) fn weight(shares: i64) -> u64 {
    match shares {
        ..=2 => 1,
        262_144.. => 10_000,
        _ => {
            let l = (shares as f64).log2();
            let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
            10f64.powf(exponent).ceil() as u64
        }
    }
}

pub(super) fn usage(folder: &Path) -> io::Result<Usage> {
    let cpu = fs::read_to_string(folder.join("cpu.stat"))?;
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let value = |name| field(&stat, name).unwrap_or(0);
    let memory_usage_bytes = number(folder.join("memory.current")).unwrap_or(0);
    Ok(Usage {
        cpu_usage_core_nano_seconds: field(&cpu, "usage_usec").unwrap_or(0) * 1000,
        memory_usage_bytes,
        memory_working_set_bytes: memory_usage_bytes.saturating_sub(value("inactive_file")),
        memory_rss_bytes: value("anon"),
        page_faults: value("pgfault"),
        major_page_faults: value("pgmajfault"),
        memory_limit_bytes: number(folder.join("memory.max")),
        process_count: number(folder.join("pids.current")).unwrap_or(0),
    })
}
