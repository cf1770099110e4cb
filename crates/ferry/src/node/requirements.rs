//! What a node needs of its machine, and what of that is missing.

use std::fs;

use rustix::process::geteuid;

/// Groups of processes that pods are limited by.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "pids", "devices"];

/// Tells all that is missing, and what to do.
pub fn check() -> anyhow::Result<()> {
    let missing = missing();
    anyhow::ensure!(
        missing.is_empty(),
        "this machine cannot run pods:\n  - {}\nhint: without a node, the API alone runs with --control-plane-only",
        missing.join("\n  - ")
    );
    Ok(())
}

/// Everything that is missing to run pods here, a line each that says what to do.
fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if !geteuid().is_root() {
        missing.push("it is not started as root, which namespaces, mounts and the network need: try sudo".to_owned());
    }
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = |name: &str| filesystems.lines().any(|line| line.split_whitespace().last() == Some(name));
    if !has("overlay") {
        missing.push("the kernel has no overlay file system: try modprobe overlay".to_owned());
    }
    for (file, what) in [("net", "network"), ("pid", "process"), ("mnt", "mount"), ("ipc", "IPC"), ("uts", "host name")]
    {
        if fs::symlink_metadata(format!("/proc/self/ns/{file}")).is_err() {
            missing.push(format!("the kernel has no {what} namespaces (CONFIG_NAMESPACES)"));
        }
    }
    missing.extend(missing_controllers());
    if fs::metadata("/proc/sys/net/ipv4/ip_forward").is_err() {
        missing.push("the kernel does not forward packets (no /proc/sys/net/ipv4/ip_forward)".to_owned());
    }
    missing
}

/// Version 2 has all of them in one place, version 1 a line for each.
fn missing_controllers() -> Option<String> {
    if let Ok(controllers) = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers") {
        let has = |name: &&str| controllers.split_whitespace().any(|controller| controller == *name);
        let wanted = ["cpu", "memory", "pids"];
        let lacking: Vec<&str> = wanted.into_iter().filter(|name| !has(name)).collect();
        return told(&lacking);
    }
    let known = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    let on = |name: &&str| {
        known.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.first() == Some(name) && fields.get(3) == Some(&"1")
        })
    };
    let lacking: Vec<&str> = CONTROLLERS.into_iter().filter(|name| !on(name)).collect();
    told(&lacking)
}

fn told(lacking: &[&str]) -> Option<String> {
    (!lacking.is_empty()).then(|| {
        let names = lacking.join(", ");
        format!("control groups lack {names}: mount /sys/fs/cgroup, or boot with cgroup_enable={names}")
    })
}
