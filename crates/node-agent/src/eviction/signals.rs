//! What the node is short of.

use std::{path::Path, time::Duration};

use tokio::time::Instant;

use crate::node::facts::{Disk, MEMORY_KEPT, disk, memory};

/// How long a shortage is told of after it has gone, so that the scheduler does not bring at once what was just sent away.
const TOLD_FOR: Duration = Duration::from_secs(300);

/// When the node is short of something. Parts are of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Thresholds {
    /// Bytes that are left at least.
    pub memory: u64,
    /// The part that is left at least of the disk that pods write to, and of the one that images are on.
    pub node_disk: f64,
    pub image_disk: f64,
    /// Of what a disk has for files, whatever their size.
    pub inodes: f64,
    /// When so much of their disk is used, images that nobody uses are removed until it is no more than that.
    pub images_from: f64,
    pub images_to: f64,
}

impl Default for Thresholds {
    /// As Kubernetes has them, but for the disks: there a node owns its machine, here it often shares one with its user's work,
    /// and a disk with a tenth left is not full.
    fn default() -> Self {
        Self { memory: MEMORY_KEPT, node_disk: 0.05, image_disk: 0.05, inodes: 0.05, images_from: 0.85, images_to: 0.8 }
    }
}

/// What can be short; the first is the most urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    Memory,
    NodeDisk,
    NodeInodes,
    ImageDisk,
    ImageInodes,
}

impl Signal {
    pub fn resource(self) -> &'static str {
        match self {
            Signal::Memory => "memory",
            Signal::NodeDisk | Signal::ImageDisk => "ephemeral-storage",
            Signal::NodeInodes | Signal::ImageInodes => "inodes",
        }
    }

    pub fn is_of_disk(self) -> bool {
        self != Signal::Memory
    }
}

/// There is less of something than there should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub signal: Signal,
    pub threshold: u64,
    pub available: u64,
}

/// What there is. What cannot be found out is not short.
pub struct Observation {
    memory: Option<u64>,
    node: Option<Disk>,
    images: Option<Disk>,
}

impl Observation {
    /// Reads the kernel's figures: of memory, and of the disks that two folders are on.
    pub fn look(root: &Path, images: &Path) -> Self {
        Self { memory: memory("MemAvailable"), node: disk(root), images: disk(images) }
    }

    /// The most urgent first.
    pub fn shortages(&self, thresholds: &Thresholds) -> Vec<Shortage> {
        let part = |whole: u64, part: f64| (whole as f64 * part) as u64;
        let mut found = Vec::new();
        let mut check = |signal, available: u64, threshold: u64| {
            if available < threshold {
                found.push(Shortage { signal, threshold, available });
            }
        };
        if let Some(available) = self.memory {
            check(Signal::Memory, available, thresholds.memory);
        }
        if let Some(disk) = &self.node {
            check(Signal::NodeDisk, disk.available, part(disk.total, thresholds.node_disk));
            check(Signal::NodeInodes, disk.inodes_free, part(disk.inodes, thresholds.inodes));
        }
        if let Some(disk) = &self.images {
            check(Signal::ImageDisk, disk.available, part(disk.total, thresholds.image_disk));
            check(Signal::ImageInodes, disk.inodes_free, part(disk.inodes, thresholds.inodes));
        }
        found
    }
}

/// What is told of the node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
}

/// When each was last seen.
#[derive(Debug, Default)]
pub struct Hold {
    memory: Option<Instant>,
    disk: Option<Instant>,
}

impl Hold {
    pub fn pressure(&mut self, short: &[Shortage], now: Instant) -> Pressure {
        for shortage in short {
            let seen = if shortage.signal.is_of_disk() { &mut self.disk } else { &mut self.memory };
            *seen = Some(now);
        }
        let holds = |seen: Option<Instant>| seen.is_some_and(|seen| now.duration_since(seen) < TOLD_FOR);
        Pressure { memory: holds(self.memory), disk: holds(self.disk) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(available: u64, inodes_free: u64) -> Option<Disk> {
        Some(Disk { total: 1000, available, inodes: 100, inodes_free })
    }

    #[test]
    fn below_a_threshold_is_short() {
        let thresholds = Thresholds { memory: 100, node_disk: 0.1, image_disk: 0.15, ..Thresholds::default() };
        let short = |memory, node, images| {
            let observed = Observation { memory, node, images };
            observed.shortages(&thresholds).into_iter().map(|short| short.signal).collect::<Vec<_>>()
        };
        assert_eq!(short(Some(100), disk(100, 5), disk(150, 5)), []);
        assert_eq!(
            short(Some(99), disk(99, 4), disk(149, 4)),
            [Signal::Memory, Signal::NodeDisk, Signal::NodeInodes, Signal::ImageDisk, Signal::ImageInodes]
        );
        assert_eq!(short(None, None, disk(149, 5)), [Signal::ImageDisk]);
        // Some file systems do not count.
        assert_eq!(short(None, Some(Disk { total: 0, available: 0, inodes: 0, inodes_free: 0 }), None), []);
    }

    #[test]
    fn pressure_is_told_for_a_while() {
        let (mut hold, start) = (Hold::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let short = [Shortage { signal: Signal::ImageInodes, threshold: 2, available: 1 }];
        assert_eq!(hold.pressure(&[], at(0)), Pressure::default());
        assert_eq!(hold.pressure(&short, at(10)), Pressure { memory: false, disk: true });
        assert_eq!(hold.pressure(&[], at(309)), Pressure { memory: false, disk: true });
        assert_eq!(hold.pressure(&[], at(310)), Pressure::default());
    }
}
