//! What the node's machine has: the limits of containers that have none of their own.

use std::{fs, path::Path};

/// What pods can use of this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Machine {
    pub milli_cpus: i64,
    pub memory: i64,
    /// Of the file system that pods' folders are on.
    pub ephemeral_storage: i64,
}

impl Machine {
    pub fn look(root: &Path) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let storage = rustix::fs::statvfs(root).map_or(0, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        Self {
            milli_cpus: cpus * 1000,
            memory: total_memory(&meminfo).unwrap_or(0),
            ephemeral_storage: i64::try_from(storage).unwrap_or(i64::MAX),
        }
    }

    /// By the name of the resource.
    pub fn amount(&self, resource: &str) -> Option<object_model::quantity::Quantity> {
        use object_model::quantity::{Format, Quantity};
        match resource {
            "cpu" => Some(Quantity::from_milli(self.milli_cpus, Format::DecimalSi)),
            "memory" => Some(Quantity::new(self.memory, Format::BinarySi)),
            "ephemeral-storage" => Some(Quantity::new(self.ephemeral_storage, Format::BinarySi)),
            _ => None,
        }
    }
}

fn total_memory(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_kernels_table() {
        assert_eq!(total_memory("MemTotal:       24690276 kB\nMemFree: 1 kB\n"), Some(24_690_276 * 1024));
        assert_eq!(total_memory("nothing"), None);
    }
}
