//! Capabilities, as sets of bits, limited to what this process has to give.

use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::services::Capability;

/// In the order of their numbers (capabilities(7)).
const NAMES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What a container has when its pod says nothing.
const DEFAULTS: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "MKNOD",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// The sets of a process. Inheritable capabilities are the ambient ones only: more would leak through file capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitySets {
    pub bounding: u64,
    pub ambient: u64,
}

/// The bit of a capability, with or without `CAP_`, in any case.
pub fn bit(name: &str) -> Option<u64> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
    NAMES.iter().position(|known| *known == plain).map(|number| 1 << number)
}

/// What this process can give to others.
pub fn held() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/status has no CapBnd"))
}

/// The sets of a container. Dropping goes before adding, except where `ALL` is named: `drop ALL, add X` is X alone, and `add ALL,
/// drop X` everything but X.
pub fn resolve(wanted: &Capability, privileged: bool, held: u64) -> Result<CapabilitySets, String> {
    let every = (1 << NAMES.len()) - 1;
    if privileged {
        return Ok(CapabilitySets { bounding: every & held, ambient: 0 });
    }
    let mut unknown = Vec::new();
    let mut set_of = |names: &[String]| {
        names.iter().filter(|name| !is_all(name)).fold(0, |set, name| match bit(name) {
            Some(bit) => set | bit,
            None => {
                unknown.push(name.clone());
                set
            }
        })
    };
    let (add, drop) = (set_of(&wanted.add_capabilities), set_of(&wanted.drop_capabilities));
    let ambient = set_of(&wanted.add_ambient_capabilities);
    if !unknown.is_empty() {
        return Err(format!("unknown capabilities: {}", unknown.join(", ")));
    }
    let defaults = DEFAULTS.iter().filter_map(|name| bit(name)).fold(0, |set, bit| set | bit);
    let mut bounding = if wanted.drop_capabilities.iter().any(|name| is_all(name)) {
        add & !drop
    } else if wanted.add_capabilities.iter().any(|name| is_all(name)) {
        every & !drop
    } else {
        (defaults | add) & !drop
    };
    bounding = (bounding | ambient) & held;
    Ok(CapabilitySets { bounding, ambient: ambient & held })
}

fn is_all(name: &str) -> bool {
    name.eq_ignore_ascii_case("ALL")
}

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

/// The permitted set of this process.
pub fn permitted() -> io::Result<u64> {
    let header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: version 3 of the call fills two elements.
    let result = unsafe { libc::syscall(libc::SYS_capget, &header, data.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(u64::from(data[0].permitted) | u64::from(data[1].permitted) << 32)
}

/// Sets the effective and permitted sets, and the inheritable one.
pub fn set(effective_and_permitted: u64, inheritable: u64) -> io::Result<()> {
    let header = Header { version: VERSION_3, pid: 0 };
    let half = |shift: u32| Data {
        effective: (effective_and_permitted >> shift) as u32,
        permitted: (effective_and_permitted >> shift) as u32,
        inheritable: (inheritable >> shift) as u32,
    };
    let data = [half(0), half(32)];
    // SAFETY: version 3 of the call reads two elements.
    let result = unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes everything else out of the bounding set, for good.
pub fn limit_bounding(keep: u64) -> io::Result<()> {
    for number in 0..64 {
        if keep & 1 << number != 0 {
            continue;
        }
        // SAFETY: the call takes numbers only.
        let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        if result != 0 {
            // The first number that the kernel does not know ends the list.
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) };
        }
    }
    Ok(())
}

/// Capabilities that an executed program gets without being privileged itself.
pub fn raise_ambient(set: u64) -> io::Result<()> {
    for number in (0..64u64).filter(|number| set & 1 << number != 0) {
        // SAFETY: the call takes numbers only.
        let result = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE, number, 0, 0) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(add: &[&str], drop: &[&str]) -> Capability {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Capability { add_capabilities: list(add), drop_capabilities: list(drop), ..Default::default() }
    }

    #[test]
    fn adding_and_dropping() {
        let all = u64::MAX;
        let sets = |add, drop| resolve(&wanted(add, drop), false, all).expect("known names").bounding;
        assert_eq!(sets(&[], &[]).count_ones(), 14);
        assert_eq!(sets(&["NET_BIND_SERVICE"], &["ALL"]), 1 << 10);
        assert_eq!(sets(&["NET_BIND_SERVICE", "CHOWN"], &["ALL", "CHOWN"]), 1 << 10);
        assert_eq!(sets(&["cap_sys_time"], &["KILL"]).count_ones(), 14);
        assert_eq!(sets(&["ALL"], &["SYS_ADMIN"]).count_ones() as usize, NAMES.len() - 1);
    }

    #[test]
    fn nobody_gets_what_the_process_does_not_hold() {
        let without_chown = !1;
        assert_eq!(resolve(&wanted(&[], &[]), false, without_chown).map(|s| s.bounding & 1), Ok(0));
        assert_eq!(resolve(&wanted(&[], &[]), true, without_chown).map(|s| s.bounding & 1), Ok(0));
    }

    #[test]
    fn all_unknown_names_are_told() {
        let error = resolve(&wanted(&["FLY"], &["SWIM"]), false, u64::MAX).expect_err("unknown");
        assert_eq!(error, "unknown capabilities: FLY, SWIM");
    }
}
