//! Requests and limits as numbers of control groups.

use std::collections::BTreeMap;

use container_runtime::services::LinuxContainerResources;
use k8s_openapi::{
    api::core::v1::{Container, Pod, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity as Written,
};
use object_model::quantity::Quantity;

use super::{machine::Machine, totals};

/// The groups that the groups of pods are in.
pub const PODS: &str = "/kubepods";
pub const BURSTABLE: &str = "/kubepods/burstable";
pub const BEST_EFFORT: &str = "/kubepods/besteffort";

const SHARES_OF_A_CPU: i64 = 1024;
const SHARES: std::ops::RangeInclusive<i64> = 2..=262_144;
/// Microseconds over which the use of processors is limited.
const PERIOD: i64 = 100_000;
const SMALLEST_QUOTA: i64 = 1000;
const NO_LIMIT: i64 = -1;
/// The last that the kernel kills for want of memory, and the first.
const GUARANTEED_SCORE: i64 = -997;
const BEST_EFFORT_SCORE: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quality {
    Guaranteed,
    Burstable,
    BestEffort,
}

impl Quality {
    /// As the API server has found.
    pub fn of(pod: &Pod) -> Self {
        match pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) {
            Some("Guaranteed") => Self::Guaranteed,
            Some("Burstable") => Self::Burstable,
            _ => Self::BestEffort,
        }
    }
}

/// The pod's group.
pub fn group(pod: &Pod) -> String {
    let class = match Quality::of(pod) {
        Quality::Guaranteed => PODS,
        Quality::Burstable => BURSTABLE,
        Quality::BestEffort => BEST_EFFORT,
    };
    format!("{class}/pod{}", pod.metadata.uid.as_deref().unwrap_or_default())
}

pub type Amounts = BTreeMap<String, Written>;

/// An amount that is zero counts as none. What cannot be read was refused by the server.
pub fn amount(amounts: Option<&Amounts>, name: &str) -> Option<Quantity> {
    let written = amounts?.get(name)?;
    Quantity::parse(&written.0).ok().filter(|amount| !amount.is_zero())
}

pub fn requests(resources: &Option<ResourceRequirements>) -> Option<&Amounts> {
    resources.as_ref()?.requests.as_ref()
}

pub fn limits(resources: &Option<ResourceRequirements>) -> Option<&Amounts> {
    resources.as_ref()?.limits.as_ref()
}

/// The limits of a pod as a whole: its containers together get no more, whatever each of them may have.
pub(super) fn pod(pod: &Pod, machine: &Machine) -> LinuxContainerResources {
    let (requested, limited) = (totals::requested(pod), totals::limited(pod));
    let requested_cpu = requested.get("cpu").copied().unwrap_or(0);
    let pages = requested.iter().filter_map(|(name, amount)| {
        let size = Quantity::parse(name.strip_prefix("hugepages-")?).ok()?;
        Some((size_name(size.value()), u64::try_from(*amount).unwrap_or(0)))
    });
    let mut all = LinuxContainerResources {
        cpu_shares: shares(requested_cpu),
        hugepage_limits: huge_pages(&machine.allocatable, None, None).into_iter().chain(pages).collect(),
        ..LinuxContainerResources::default()
    };
    if Quality::of(pod) != Quality::BestEffort {
        all.cpu_period = PERIOD;
        all.cpu_quota = limited.get("cpu").map_or(NO_LIMIT, |cpu| quota(*cpu));
        all.memory_limit_in_bytes = limited.get("memory").copied().unwrap_or(NO_LIMIT);
    }
    all
}

/// The limits of one container. A limit of the whole pod stands in for one that the container does not have.
pub(super) fn container(pod: &Pod, container: &Container, machine: &Machine) -> LinuxContainerResources {
    let pod_limits = pod.spec.as_ref().and_then(|spec| limits(&spec.resources));
    let limit = |name| amount(limits(&container.resources), name).or_else(|| amount(pod_limits, name));
    let cpu_limit = limit("cpu").map(|cpu| cpu.milli_value());
    let memory = limit("memory").map_or(0, |memory| memory.value());
    let requested = requests(&container.resources).is_some_and(|requests| requests.contains_key("cpu"));
    let cpu_request = match requested {
        true => amount(requests(&container.resources), "cpu").map(|cpu| cpu.milli_value()),
        false => cpu_limit,
    };
    LinuxContainerResources {
        cpu_period: PERIOD,
        cpu_quota: cpu_limit.map_or(0, quota),
        cpu_shares: shares(cpu_request.unwrap_or(0)),
        memory_limit_in_bytes: memory,
        // Containers do not swap.
        memory_swap_limit_in_bytes: memory,
        oom_score_adj: oom_score(pod, container, machine.memory),
        hugepage_limits: huge_pages(&machine.allocatable, pod_limits, limits(&container.resources)),
        // One that is out of memory ends as a whole, where the kernel knows how: cgroups of version 1 kill single processes.
        unified: BTreeMap::from([("memory.oom.group".to_owned(), "1".to_owned())]),
        ..LinuxContainerResources::default()
    }
}

pub fn shares(milli_cpus: i64) -> i64 {
    (milli_cpus.saturating_mul(SHARES_OF_A_CPU) / 1000).clamp(*SHARES.start(), *SHARES.end())
}

fn quota(milli_cpus: i64) -> i64 {
    (milli_cpus.saturating_mul(PERIOD) / 1000).max(SMALLEST_QUOTA)
}

/// How ready the kernel is to kill the container when memory runs out: the less, the more of the node's memory it has
/// asked for. A sidecar is not killed before the containers it serves.
fn oom_score(pod: &Pod, container: &Container, memory_of_node: i64) -> i64 {
    let Some(spec) = &pod.spec else { return BEST_EFFORT_SCORE };
    if spec.priority_class_name.as_deref() == Some("system-node-critical") {
        return GUARANTEED_SCORE;
    }
    match Quality::of(pod) {
        Quality::Guaranteed => return GUARANTEED_SCORE,
        Quality::BestEffort => return BEST_EFFORT_SCORE,
        Quality::Burstable => {}
    }
    let requested = |c: &Container| amount(requests(&c.resources), "memory").map_or(0, |memory| memory.value());
    let sidecars = spec.init_containers.iter().flatten();
    // What the pod has asked for as a whole and its containers have not is shared among them.
    let unclaimed = amount(requests(&spec.resources), "memory").map_or(0, |whole| {
        let claimed: i64 = spec.containers.iter().chain(sidecars.clone()).map(requested).sum();
        let count = (spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len)).max(1) as i64;
        (whole.value() - claimed).max(0) / count
    });
    let mut memory = requested(container);
    let is_sidecar = container.restart_policy.as_deref() == Some("Always")
        && sidecars.clone().any(|sidecar| sidecar.name == container.name);
    if is_sidecar {
        memory = memory.max(spec.containers.iter().map(requested).min().unwrap_or(0));
    }
    let part = (memory + unclaimed) as i128 * 1000 / i128::from(memory_of_node.max(1));
    (1000 - part as i64).clamp(1000 + GUARANTEED_SCORE, BEST_EFFORT_SCORE - 1)
}

/// None of any size that the node has pages of, unless there is a limit.
fn huge_pages(node: &Amounts, pod: Option<&Amounts>, container: Option<&Amounts>) -> BTreeMap<String, u64> {
    let size = |name: &str| name.strip_prefix("hugepages-").and_then(|size| Quantity::parse(size).ok());
    let has_pages = |name: &&String| amount(Some(node), name).is_some();
    let none = node.keys().filter(has_pages).filter_map(|name| Some((size_name(size(name)?.value()), 0)));
    let mut pages: BTreeMap<String, u64> = none.collect();
    for (name, written) in pod.into_iter().flatten().chain(container.into_iter().flatten()) {
        if let (Some(size), Ok(amount)) = (size(name), Quantity::parse(&written.0)) {
            pages.insert(size_name(size.value()), u64::try_from(amount.value()).unwrap_or(0));
        }
    }
    pages
}

/// As the kernel's files name it: `2MB`.
fn size_name(mut size: i64) -> String {
    let mut units = ["B", "KB", "MB", "GB", "TB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while size % 1024 == 0 && size > 0 {
        let Some(next) = units.next() else { break };
        (size, unit) = (size / 1024, next);
    }
    format!("{size}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!([0, 1, 100, 1000, 1_000_000].map(shares), [2, 2, 102, 1024, 262_144]);
        assert_eq!([1, 10, 500, 2000].map(quota), [1000, 1000, 50_000, 200_000]);
        assert_eq!([2 << 20, 1 << 30, 64 << 10].map(size_name), ["2MB", "1GB", "64KB"]);
    }

    #[test]
    fn a_pod_is_limited_as_a_whole() {
        let of = |class: &str, containers: serde_json::Value| {
            let pod = serde_json::json!({"spec": {"containers": containers}, "status": {"qosClass": class}});
            let all = pod_limits(&pod);
            (all.cpu_shares, all.cpu_quota, all.memory_limit_in_bytes)
        };
        let sized = |cpu: &str| {
            let amounts = serde_json::json!({"cpu": cpu, "memory": "1Mi"});
            serde_json::json!({"name": cpu, "resources": {"requests": amounts, "limits": amounts}})
        };
        let free = serde_json::json!({"name": "free"});
        assert_eq!(of("Guaranteed", serde_json::json!([sized("1"), sized("500m")])), (1536, 150_000, 2 << 20));
        assert_eq!(of("Burstable", serde_json::json!([sized("1"), free])), (1024, NO_LIMIT, NO_LIMIT));
        assert_eq!(of("BestEffort", serde_json::json!([free])), (2, 0, 0));
    }

    fn pod_limits(value: &serde_json::Value) -> LinuxContainerResources {
        pod(&serde_json::from_value(value.clone()).expect("a pod"), &Machine::default())
    }
}
