//! What the node and its pods use, as Kubernetes' summary tells it.
//!
//! The runtime and the kernel are asked when somebody asks. How much is used per second is known from the last time that
//! somebody did.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    sync::{Mutex, PoisonError},
};

use container_runtime::services::{ContainerFilter, ContainerStats};
use hyper::StatusCode;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
use serde_json::{Value, json};

use super::{
    Host,
    answer::{self, Answer, text},
};
use crate::{Settings, configuration::labels, node::facts};

/// Nanoseconds of processor time for each tick of the kernel's clock, of which there are a hundred in a second.
const TICK: u64 = 10_000_000;

#[derive(Default)]
pub(super) struct Figures {
    /// Processor time by container, and when.
    last: Mutex<HashMap<String, (u64, i64)>>,
}

/// The same of the node itself.
pub(super) struct Node {
    pub(super) cpu_nanos: u64,
    pub(super) memory_total: u64,
    pub(super) memory_available: u64,
    pub(super) started: i64,
    processes: u64,
    most_processes: u64,
}

impl Node {
    pub(super) fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (stat, load) = (read("/proc/stat"), read("/proc/loadavg"));
        let line = |text: &str, name: &str| -> Option<String> {
            text.lines().find_map(|line| line.strip_prefix(name)).map(|rest| rest.trim().to_owned())
        };
        Self {
            cpu_nanos: line(&stat, "cpu ").map_or(0, |cpu| busy_ticks(&cpu)) * TICK,
            memory_total: facts::memory("MemTotal").unwrap_or(0),
            memory_available: facts::memory("MemAvailable").unwrap_or(0),
            started: line(&stat, "btime ").and_then(|time| time.parse().ok()).unwrap_or(0),
            processes: load.split(['/', ' ']).nth(4).and_then(|count| count.parse().ok()).unwrap_or(0),
            most_processes: read("/proc/sys/kernel/pid_max").trim().parse().unwrap_or(0),
        }
    }

    pub(super) fn working_set(&self) -> u64 {
        self.memory_total.saturating_sub(self.memory_available)
    }
}

/// All but the time in which nothing was done. What guests use is counted as user time already.
fn busy_ticks(cpu: &str) -> u64 {
    let ticks: Vec<u64> = cpu.split_whitespace().filter_map(|ticks| ticks.parse().ok()).take(8).collect();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    ticks.iter().sum::<u64>() - idle
}

impl Figures {
    pub(super) async fn summary(&self, settings: &Settings, host: &dyn Host) -> Answer {
        let containers = match settings.runtime.list_container_stats(&ContainerFilter::default()).await {
            Ok(containers) => containers,
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let images = settings.images.image_fs_info().await.unwrap_or_default();
        let (now, node) = (settings.clock.now(), Node::look());
        let own_fs = file_system(&settings.root, now, None);
        let images =
            images.first().map(|images| file_system(Path::new(&images.mountpoint), now, Some(images.used_bytes)));
        let mut pods = Vec::new();
        let starts: HashMap<String, Time> = host
            .pods()
            .iter()
            .filter_map(|pod| Some((pod.metadata.uid.clone()?, pod.status.as_ref()?.start_time.clone()?)))
            .collect();
        for (uid, containers) in by_pod(&containers) {
            pods.push(self.pod(&uid, &containers, starts.get(&uid)));
        }
        self.forget_others(&containers);
        let nanos = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        answer::json(&json!({
            "node": {
                "nodeName": settings.node_name,
                "startTime": time(node.started.saturating_mul(1_000_000_000)),
                "cpu": {"time": Time(now), "usageNanoCores": self.rate("", node.cpu_nanos, nanos),
                    "usageCoreNanoSeconds": node.cpu_nanos},
                "memory": {"time": Time(now), "availableBytes": node.memory_available, "usageBytes": node.working_set(),
                    "workingSetBytes": node.working_set()},
                "fs": own_fs,
                "runtime": {"imageFs": images, "containerFs": images},
                "rlimit": {"time": Time(now), "maxpid": node.most_processes, "curproc": node.processes},
            },
            "pods": pods,
        }))
    }

    fn pod(&self, uid: &str, containers: &[&ContainerStats], started: Option<&Time>) -> Value {
        let label = |name: &str| containers.first().and_then(|one| one.labels.get(name)).cloned().unwrap_or_default();
        let sum = |of: fn(&ContainerStats) -> u64| containers.iter().map(|one| of(one)).sum::<u64>();
        let latest = containers.iter().map(|one| one.timestamp).max().unwrap_or(0);
        let each: Vec<(Value, Option<u64>)> = containers.iter().map(|one| self.container(one, started)).collect();
        let rates: Option<u64> = each.iter().map(|(_, rate)| *rate).sum();
        json!({
            "podRef": {"name": label(labels::POD_NAME), "namespace": label(labels::POD_NAMESPACE), "uid": uid},
            "startTime": started,
            "containers": each.into_iter().map(|(container, _)| container).collect::<Vec<_>>(),
            "cpu": {"time": time(latest), "usageNanoCores": rates,
                "usageCoreNanoSeconds": sum(|one| one.usage.cpu_usage_core_nano_seconds)},
            "memory": {"time": time(latest), "usageBytes": sum(|one| one.usage.memory_usage_bytes),
                "workingSetBytes": sum(|one| one.usage.memory_working_set_bytes),
                "rssBytes": sum(|one| one.usage.memory_rss_bytes),
                "pageFaults": sum(|one| one.usage.page_faults), "majorPageFaults": sum(|one| one.usage.major_page_faults)},
            "ephemeral-storage": {"time": time(latest), "usedBytes": sum(|one| one.writable_layer.used_bytes),
                "inodesUsed": sum(|one| one.writable_layer.inodes_used)},
            "process_stats": {"process_count": sum(|one| one.usage.process_count)},
        })
    }

    fn container(&self, stats: &ContainerStats, started: Option<&Time>) -> (Value, Option<u64>) {
        let (usage, time) = (&stats.usage, time(stats.timestamp));
        let rate = self.rate(&stats.id, usage.cpu_usage_core_nano_seconds, stats.timestamp);
        let available = usage.memory_limit_bytes.map(|limit| limit.saturating_sub(usage.memory_working_set_bytes));
        let value = json!({
            "name": stats.metadata.name,
            "startTime": started,
            "cpu": {"time": time, "usageNanoCores": rate, "usageCoreNanoSeconds": usage.cpu_usage_core_nano_seconds},
            "memory": {"time": time, "availableBytes": available, "usageBytes": usage.memory_usage_bytes,
                "workingSetBytes": usage.memory_working_set_bytes, "rssBytes": usage.memory_rss_bytes,
                "pageFaults": usage.page_faults, "majorPageFaults": usage.major_page_faults},
            "rootfs": {"time": time, "usedBytes": stats.writable_layer.used_bytes,
                "inodesUsed": stats.writable_layer.inodes_used},
        });
        (value, rate)
    }

    /// Billionths of a processor since the last time.
    fn rate(&self, id: &str, used: u64, now: i64) -> Option<u64> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, then) = last.insert(id.to_owned(), (used, now))?;
        let passed = u128::try_from(now.checked_sub(then)?).ok().filter(|passed| *passed > 0)?;
        u64::try_from(u128::from(used.saturating_sub(before)) * 1_000_000_000 / passed).ok()
    }

    fn forget_others(&self, containers: &[ContainerStats]) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|id, _| id.is_empty() || containers.iter().any(|container| container.id == *id));
    }
}

/// The containers of each pod, by its uid.
pub(super) fn by_pod(containers: &[ContainerStats]) -> BTreeMap<String, Vec<&ContainerStats>> {
    let mut pods = BTreeMap::<String, Vec<&ContainerStats>>::new();
    for container in containers {
        if let Some(uid) = container.labels.get(labels::POD_UID) {
            pods.entry(uid.clone()).or_default().push(container);
        }
    }
    pods
}

fn time(nanos: i64) -> Value {
    Timestamp::from_nanosecond(nanos.into()).map_or(Value::Null, |time| json!(Time(time)))
}

fn file_system(path: &Path, now: Timestamp, used: Option<u64>) -> Value {
    let Some(disk) = facts::disk(path) else { return Value::Null };
    json!({
        "time": Time(now),
        "availableBytes": disk.available,
        "capacityBytes": disk.total,
        "usedBytes": used.unwrap_or(disk.total.saturating_sub(disk.available)),
        "inodesFree": disk.inodes_free,
        "inodes": disk.inodes,
        "inodesUsed": disk.inodes.saturating_sub(disk.inodes_free),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_used_time() {
        assert_eq!(busy_ticks("100 1 20 5000 300 4 5 6 50 0"), 136);
    }

    #[test]
    fn rates_are_between_two_looks() {
        let figures = Figures::default();
        assert_eq!(figures.rate("a", 1_000_000_000, 0), None);
        assert_eq!(figures.rate("a", 1_500_000_000, 2_000_000_000), Some(250_000_000));
        assert_eq!(figures.rate("a", 1_500_000_000, 2_000_000_000), None);
        figures.forget_others(&[]);
        assert_eq!(figures.rate("a", 0, 3_000_000_000), None);
    }
}
