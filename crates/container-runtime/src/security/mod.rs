//! What a container's processes may do: capabilities and system calls, and how a process takes them on.

pub mod capabilities;
pub mod profile;
pub mod seccomp;

/// Paths of /proc and /sys that say too much about the node, hidden unless the caller says otherwise.
pub const MASKED_PATHS: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Paths of /proc that can be read but not written.
pub const READONLY_PATHS: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
