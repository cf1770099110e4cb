//! What the machine is: read once, at the start.

use std::{collections::BTreeMap, fs, path::Path};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What is kept back of the memory, below which the node says that it is short of it.
pub const MEMORY_KEPT: u64 = 100 << 20;

pub struct Facts {
    pub capacity: BTreeMap<String, Quantity>,
    pub allocatable: BTreeMap<String, Quantity>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    pub kernel: String,
    pub os_image: String,
}

impl Facts {
    pub fn read(root: &Path) -> Self {
        let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let machine_id = line("/etc/machine-id");
        let system_uuid = Some(line("/sys/class/dmi/id/product_uuid")).filter(|uuid| !uuid.is_empty());
        let os_release = line("/etc/os-release");
        let pretty = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        let (capacity, allocatable) = resources(root);
        Self {
            capacity,
            allocatable,
            system_uuid: system_uuid.unwrap_or_else(|| machine_id.clone()),
            machine_id,
            boot_id: line("/proc/sys/kernel/random/boot_id"),
            kernel: line("/proc/sys/kernel/osrelease"),
            os_image: pretty.unwrap_or("Linux").trim_matches('"').to_owned(),
        }
    }
}

/// What there is, and what pods can have of it. The number of pods is a setting, and added later.
fn resources(root: &Path) -> (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>) {
    let mut capacity = BTreeMap::new();
    let mut allocatable = BTreeMap::new();
    let mut add = |name: String, has: String, gives: String| {
        capacity.insert(name.clone(), Quantity(has));
        allocatable.insert(name, Quantity(gives));
    };
    let cpus = processors().to_string();
    add("cpu".into(), cpus.clone(), cpus);
    let mut memory = memory("MemTotal").unwrap_or(0);
    for (size, bytes) in huge_pages() {
        let name = format!("hugepages-{size}");
        memory = memory.saturating_sub(bytes);
        add(name, bytes.to_string(), bytes.to_string());
    }
    let kibibytes = |bytes: u64| format!("{}Ki", bytes / 1024);
    add("memory".into(), kibibytes(memory), kibibytes(memory.saturating_sub(MEMORY_KEPT)));
    let disk = disk(root).map_or(0, |disk| disk.total);
    // A tenth of the disk is not for pods.
    add("ephemeral-storage".into(), kibibytes(disk), (disk / 10 * 9).to_string());
    (capacity, allocatable)
}

fn processors() -> usize {
    let listed = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let count = listed.lines().filter(|line| line.starts_with("processor")).count();
    if count > 0 { count } else { std::thread::available_parallelism().map_or(1, usize::from) }
}

/// A line of /proc/meminfo, in bytes.
pub fn memory(line: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let value = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(':'))?;
    Some(value.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Sizes as in the names of resources, and how many bytes of each there are.
fn huge_pages() -> Vec<(String, u64)> {
    let folders = fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten();
    let pages = folders.filter_map(|folder| {
        let name = folder.file_name().into_string().ok()?;
        let kibibytes: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count: u64 = fs::read_to_string(folder.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let size = match kibibytes {
            gibibytes if gibibytes % (1 << 20) == 0 => format!("{}Gi", gibibytes >> 20),
            mebibytes if mebibytes % 1024 == 0 => format!("{}Mi", mebibytes >> 10),
            kibibytes => format!("{kibibytes}Ki"),
        };
        Some((size, kibibytes * 1024 * count))
    });
    pages.collect()
}

pub struct Disk {
    pub total: u64,
    pub available: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// The disk that a folder is on.
pub fn disk(folder: &Path) -> Option<Disk> {
    // The folder itself may not be there yet.
    let existing = folder.ancestors().find(|folder| folder.exists())?;
    let found = rustix::fs::statvfs(existing).ok()?;
    Some(Disk {
        total: found.f_blocks * found.f_frsize,
        available: found.f_bavail * found.f_frsize,
        inodes: found.f_files,
        inodes_free: found.f_favail,
    })
}
