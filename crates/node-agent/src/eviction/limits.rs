//! Pods that write more to the node's disk than they may.

use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use object_model::quantity::Quantity;

use super::usage::Usages;
use crate::configuration::{
    resources::{amount, limits},
    totals,
};

const STORAGE: &str = "ephemeral-storage";

fn bytes(quantity: &Quantity) -> u64 {
    u64::try_from(quantity.value()).unwrap_or(0)
}

fn limit_of(resources: &Option<ResourceRequirements>) -> Option<Quantity> {
    amount(limits(resources), STORAGE)
}

/// Whether there is something that the pod may not exceed.
pub fn has_any(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut folders = spec.volumes.iter().flatten().filter_map(|volume| volume.empty_dir.as_ref());
    folders.any(|folder| folder.size_limit.is_some())
        || containers.any(|container| limit_of(&container.resources).is_some())
}

/// What the pod has exceeded, as Kubernetes says it.
pub fn exceeded(pod: &Pod, usages: &Usages) -> Option<String> {
    let (spec, usage) = (pod.spec.as_ref()?, usages.of(pod));
    for volume in spec.volumes.iter().flatten() {
        let limit = volume.empty_dir.as_ref().and_then(|dir| Quantity::parse(&dir.size_limit.as_ref()?.0).ok());
        let Some(limit) = limit.filter(|limit| limit.sign() > 0) else { continue };
        if usage.volumes.get(&volume.name).is_some_and(|used| *used > bytes(&limit)) {
            return Some(format!("Usage of EmptyDir volume {:?} exceeds the limit \"{limit}\". ", volume.name));
        }
    }
    let total = totals::limited(pod).get(STORAGE).and_then(|total| u64::try_from(*total).ok());
    if let Some(total) = total.filter(|total| usage.disk() > *total) {
        let shown = super::ranking::binary(total);
        return Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {shown}. "));
    }
    spec.containers.iter().find_map(|container| {
        let limit = limit_of(&container.resources)?;
        let used = usage.containers.get(&container.name).map_or(0, |used| used.disk());
        let message =
            || format!("Container {} exceeded its local ephemeral storage limit \"{limit}\". ", container.name);
        (used > bytes(&limit)).then(message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::eviction::usage::{ContainerUsage, Usage};

    #[test]
    fn a_pod_may_not_write_more_than_its_limits() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}, {"name": "free", "emptyDir": {}}],
            "containers": [
                {"name": "a", "resources": {"limits": {"ephemeral-storage": "1Ki"}}},
                {"name": "b", "resources": {"limits": {"ephemeral-storage": "3Ki"}}},
            ],
        }}))
        .expect("a pod");
        assert!(has_any(&pod));
        let exceeded = |volume: u64, a: u64, free: u64| {
            let container = ContainerUsage { layer: a, ..ContainerUsage::default() };
            let usage = Usage {
                containers: [("a".to_owned(), container)].into(),
                volumes: [("v".to_owned(), volume), ("free".to_owned(), free)].into(),
                ..Usage::default()
            };
            exceeded(&pod, &Usages::new([("u".to_owned(), usage)]))
        };
        assert_eq!(exceeded(1024, 1024, 2048), None);
        assert_eq!(exceeded(1025, 0, 0).as_deref(), Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Ki\". "));
        assert_eq!(
            exceeded(0, 1025, 0).as_deref(),
            Some("Container a exceeded its local ephemeral storage limit \"1Ki\". ")
        );
        assert_eq!(
            exceeded(0, 0, 4097).as_deref(),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 4Ki. ")
        );
    }
}
