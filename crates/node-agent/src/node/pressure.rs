//! Whether the node is short of something.

use super::facts::{Disk, Facts, MEMORY_KEPT, disk, memory};

/// Below these parts of the whole the disk is full.
const DISK_KEPT: f64 = 0.05;
const INODES_KEPT: f64 = 0.05;

pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
    pub processes: bool,
}

pub fn now(facts: &Facts) -> Pressure {
    Pressure {
        memory: memory("MemAvailable").is_some_and(|available| available < MEMORY_KEPT),
        disk: disk(&facts.root).is_some_and(|disk| is_full(&disk)),
        // Kubernetes has no limit here unless one is set.
        processes: false,
    }
}

fn is_full(disk: &Disk) -> bool {
    let below = |part: u64, whole: u64, kept: f64| whole > 0 && (part as f64) < whole as f64 * kept;
    below(disk.available, disk.total, DISK_KEPT) || below(disk.inodes_free, disk.inodes, INODES_KEPT)
}
