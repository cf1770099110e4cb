//! Which pod goes first when the node is short of something, and what it is told.

use std::{cmp::Reverse, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use super::{
    signals::{Shortage, Signal},
    usage::{Usage, Usages},
};
use crate::{
    configuration::{
        resources::{amount, requests},
        totals,
    },
    pods::containers::find,
};

fn used(usage: &Usage, signal: Signal) -> u64 {
    match signal {
        Signal::Memory => usage.memory(),
        Signal::NodeDisk | Signal::ImageDisk => usage.disk(),
        Signal::NodeInodes | Signal::ImageInodes => usage.inodes,
    }
}

/// Those that use more than they asked for go before those that do not; then those of lower priority; then those that use most
/// beyond what they asked for. With what each is told.
pub fn ranked<'a>(pods: &'a [Arc<Pod>], usages: &Usages, shortage: &Shortage) -> Vec<(&'a Pod, String)> {
    let mut all: Vec<(&Pod, Usage)> = pods.iter().map(|pod| (&**pod, usages.of(pod))).collect();
    all.sort_by_cached_key(|(pod, usage)| {
        let asked = totals::requested(pod).get(shortage.signal.resource()).copied().unwrap_or(0);
        let beyond = i64::try_from(used(usage, shortage.signal)).unwrap_or(i64::MAX).saturating_sub(asked);
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        (Reverse(beyond > 0), priority, Reverse(beyond))
    });
    all.into_iter().map(|(pod, usage)| (pod, message(pod, &usage, shortage))).collect()
}

fn message(pod: &Pod, usage: &Usage, shortage: &Shortage) -> String {
    let Shortage { signal, threshold, available } = shortage;
    let resource = signal.resource();
    let (threshold, available) = (binary(*threshold), binary(*available));
    let mut message =
        format!("The node was low on resource: {resource}. Threshold quantity: {threshold}, available: {available}. ");
    for (name, usage) in &usage.containers {
        let used = match signal {
            Signal::Memory => usage.memory,
            Signal::NodeDisk | Signal::ImageDisk => usage.disk(),
            Signal::NodeInodes | Signal::ImageInodes => continue,
        };
        let Some((_, container)) = find(pod, name) else { continue };
        let asked = amount(requests(&container.resources), resource);
        if asked.as_ref().is_none_or(|asked| u64::try_from(asked.value()).unwrap_or(0) < used) {
            let asked = asked.map_or_else(|| "0".to_owned(), |asked| asked.to_string());
            let used = binary(used);
            message += &format!(
                "Container {name} was using {used}, request is {asked}, has larger consumption of {resource}. "
            );
        }
    }
    message
}

/// A number of bytes as a quantity: `100Mi`.
pub fn binary(bytes: u64) -> String {
    let mut units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter();
    let (mut number, mut unit) = (bytes, units.next().unwrap_or_default());
    while number > 0 && number.is_multiple_of(1024) {
        let Some(next) = units.next() else { break };
        (number, unit) = (number / 1024, next);
    }
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eviction::usage::ContainerUsage;

    fn pod(name: &str, priority: i32, request: &str) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": name, "uid": name}, "spec": {"priority": priority, "containers": [
            {"name": "c", "resources": {"requests": {"memory": request}}},
        ]}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn those_go_first_that_take_most_beyond_what_they_asked_for() {
        let pods = [
            pod("modest", 0, "10Mi"),
            pod("greedy", 0, "1Mi"),
            pod("greediest", 0, "1Mi"),
            pod("important", 1000, "1Mi"),
            pod("unimportant", -1, "9Mi"),
        ];
        let using = |name: &str, mebibytes: u64| {
            let container = ContainerUsage { memory: mebibytes << 20, ..ContainerUsage::default() };
            (name.to_owned(), Usage { containers: [("c".to_owned(), container)].into(), ..Usage::default() })
        };
        let usages = Usages::new([
            using("modest", 10),
            using("greedy", 5),
            using("greediest", 6),
            using("important", 90),
            using("unimportant", 8),
        ]);
        let shortage = Shortage { signal: Signal::Memory, threshold: 100 << 20, available: (50 << 20) + 1024 };
        let ranked = ranked(&pods, &usages, &shortage);
        let names: Vec<&str> = ranked.iter().filter_map(|(pod, _)| pod.metadata.name.as_deref()).collect();
        assert_eq!(names, ["greediest", "greedy", "important", "unimportant", "modest"]);
        assert_eq!(
            ranked[0].1,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 51201Ki. Container c was using \
             6Mi, request is 1Mi, has larger consumption of memory. "
        );
        assert!(ranked[4].1.ends_with("available: 51201Ki. "), "{}", ranked[4].1);
    }
}
