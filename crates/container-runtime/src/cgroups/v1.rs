//! Version 1: one tree for each controller.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{DeviceRule, Hierarchy, Usage, field, number, write};
use crate::services::LinuxContainerResources;

pub(super) const CONTROLLERS: &[&str] = &[
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

pub(super) fn create(hierarchies: &[Hierarchy], path: &str) -> io::Result<()> {
    for hierarchy in hierarchies {
        let is_cpuset = hierarchy.controllers.iter().any(|controller| controller == "cpuset");
        let mut folder = hierarchy.mount.clone();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            folder.push(part);
            match fs::create_dir(&folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
            }
            if is_cpuset {
                inherit_cpuset(&folder)?;
            }
        }
    }
    Ok(())
}

/// A new group has no processors and no memory nodes, and takes no process until it has.
fn inherit_cpuset(folder: &Path) -> io::Result<()> {
    let Some(parent) = folder.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if fs::read_to_string(folder.join(file))?.trim().is_empty() {
            fs::write(folder.join(file), fs::read_to_string(parent.join(file))?)?;
        }
    }
    Ok(())
}

pub(super) fn set_limits(
    folder: impl Fn(&str) -> Option<PathBuf>,
    resources: &LinuxContainerResources,
) -> io::Result<()> {
    let need = |controller: &str| {
        folder(controller).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, format!("the controller {controller} is not mounted"))
        })
    };
    if resources.cpu_shares != 0 {
        write(&need("cpu")?, "cpu.shares", resources.cpu_shares)?;
    }
    if resources.cpu_period != 0 {
        write(&need("cpu")?, "cpu.cfs_period_us", resources.cpu_period)?;
    }
    if resources.cpu_quota != 0 {
        write(&need("cpu")?, "cpu.cfs_quota_us", resources.cpu_quota)?;
    }
    if !resources.cpuset_cpus.is_empty() {
        write(&need("cpuset")?, "cpuset.cpus", &resources.cpuset_cpus)?;
    }
    if !resources.cpuset_mems.is_empty() {
        write(&need("cpuset")?, "cpuset.mems", &resources.cpuset_mems)?;
    }
    if resources.memory_limit_in_bytes != 0 {
        set_memory(&need("memory")?, resources)?;
    }
    if resources.pids_limit != 0 {
        let limit = if resources.pids_limit < 0 { "max".to_owned() } else { resources.pids_limit.to_string() };
        write(&need("pids")?, "pids.max", limit)?;
    }
    for (size, limit) in &resources.hugepage_limits {
        write(&need("hugetlb")?, &format!("hugetlb.{size}.limit_in_bytes"), limit)?;
    }
    Ok(())
}

/// Memory with swap must not be below memory at any moment, so the order depends on the direction of the change.
fn set_memory(folder: &Path, resources: &LinuxContainerResources) -> io::Result<()> {
    let memory = resources.memory_limit_in_bytes;
    let swap = resources.memory_swap_limit_in_bytes;
    if swap == 0 || !folder.join("memory.memsw.limit_in_bytes").exists() {
        return write(folder, "memory.limit_in_bytes", memory);
    }
    let growing = number(folder.join("memory.memsw.limit_in_bytes")).is_some_and(|now| swap < 0 || swap as u64 >= now);
    let set_swap = || write(folder, "memory.memsw.limit_in_bytes", swap);
    if growing {
        set_swap()?;
    }
    write(folder, "memory.limit_in_bytes", memory)?;
    if growing { Ok(()) } else { set_swap() }
}

pub(super) fn set_devices(folder: &Path, rules: &[DeviceRule]) -> io::Result<()> {
    write(folder, "devices.deny", "a")?;
    for rule in rules {
        write(folder, "devices.allow", rule)?;
    }
    Ok(())
}

pub(super) fn usage(folder: impl Fn(&str) -> Option<PathBuf>) -> io::Result<Usage> {
    let mut usage = Usage::default();
    if let Some(cpu) = folder("cpuacct") {
        usage.cpu_usage_core_nano_seconds = number(cpu.join("cpuacct.usage")).unwrap_or(0);
    }
    if let Some(pids) = folder("pids") {
        usage.process_count = number(pids.join("pids.current")).unwrap_or(0);
    }
    let Some(memory) = folder("memory") else { return Ok(usage) };
    let stat = fs::read_to_string(memory.join("memory.stat"))?;
    let value = |name| field(&stat, name).unwrap_or(0);
    usage.memory_usage_bytes = number(memory.join("memory.usage_in_bytes")).unwrap_or(0);
    usage.memory_working_set_bytes = usage.memory_usage_bytes.saturating_sub(value("total_inactive_file"));
    usage.memory_rss_bytes = value("total_rss");
    usage.page_faults = value("total_pgfault");
    usage.major_page_faults = value("total_pgmajfault");
    // "No limit" is a number near the largest one.
    usage.memory_limit_bytes = number(memory.join("memory.limit_in_bytes")).filter(|limit| *limit < 1 << 60);
    Ok(usage)
}
