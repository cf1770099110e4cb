//! What Linux knows of a running process.

use std::{fs, path::PathBuf, time::Duration};

const TICKS_PER_SECOND: f64 = 100.0;

/// What a process has used so far on all cores, in user and in system mode.
pub fn cpu_time(process: u32) -> Duration {
    // User and system time are the 12th and 13th field.
    let ticks: f64 = stat(process).iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    Duration::from_secs_f64(ticks / TICKS_PER_SECOND)
}

/// The memory of a process that is not swapped out.
pub fn resident_kilobytes(process: u32) -> u64 {
    kilobytes(process, "status", &["VmRSS:"])
}

/// What of it no other process has.
pub fn private_kilobytes(process: u32) -> u64 {
    kilobytes(process, "smaps_rollup", &["Private_Clean:", "Private_Dirty:", "Private_Hugetlb:"])
}

/// What of it nobody else has, and a fair share of what others have, too.
pub fn proportional_kilobytes(process: u32) -> u64 {
    kilobytes(process, "smaps_rollup", &["Pss:"])
}

/// The sum of some lines of a file about a process.
fn kilobytes(process: u32, file: &str, names: &[&str]) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).unwrap_or_default();
    let value = |line: &str| -> Option<u64> {
        let rest = names.iter().find_map(|name| line.strip_prefix(*name))?;
        rest.split_whitespace().next()?.parse().ok()
    };
    text.lines().filter_map(value).sum()
}

/// All processes that there are at the moment.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Who started a process, or looks after it since.
pub fn parent(process: u32) -> Option<u32> {
    stat(process).get(1)?.parse().ok()
}

/// Which file systems a process sees: the same for all processes that share them.
pub fn mount_namespace(process: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/mnt")).ok()
}

/// The fields behind the name, which may contain anything; the first is its state.
fn stat(process: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        all, cpu_time, mount_namespace, parent, private_kilobytes, proportional_kilobytes, resident_kilobytes,
    };

    #[test]
    fn linux_knows_this_process() {
        let own = std::process::id();
        assert!(all().contains(&own));
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        assert!(mount_namespace(own).is_some());
        let (private, proportional) = (private_kilobytes(own), proportional_kilobytes(own));
        assert!(0 < private && private <= proportional, "{private} kB private, {proportional} kB proportional");
        assert!(resident_kilobytes(own) > 0);
        let nobody = u32::MAX;
        assert!(cpu_time(nobody).is_zero() && parent(nobody).is_none() && resident_kilobytes(nobody) == 0);
    }
}
