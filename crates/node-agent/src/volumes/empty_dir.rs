//! An empty folder for as long as the pod lives: on disk, or in memory.

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};
use object_model::quantity::Quantity;

use super::{VolumeError, folder::Medium};
use crate::configuration::{
    machine::Machine,
    resources::{amount, limits},
};

pub(super) fn medium(pod: &Pod, source: &EmptyDirVolumeSource, machine: &Machine) -> Result<Medium, VolumeError> {
    match source.medium.as_deref().unwrap_or_default() {
        "" => Ok(Medium::Disk),
        "Memory" => Ok(Medium::Memory { size: Some(size(pod, source, machine)) }),
        medium if medium.starts_with("HugePages") => {
            Err(VolumeError(format!("this node has no volumes on the medium {medium:?}")))
        }
        medium => Err(VolumeError(format!("unknown storage medium {medium:?}"))),
    }
}

/// Memory counts as the pod's: there is no more of it than the pod may have.
fn size(pod: &Pod, source: &EmptyDirVolumeSource, machine: &Machine) -> u64 {
    let own = source.size_limit.as_ref().and_then(|limit| Quantity::parse(&limit.0).ok()).map(|limit| limit.value());
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|spec| amount(limits(&spec.resources), "memory")).map(|limit| limit.value());
    let of_containers = || -> Option<i64> {
        let limit = |container: &k8s_openapi::api::core::v1::Container| {
            amount(limits(&container.resources), "memory").map(|limit| limit.value())
        };
        spec?.containers.iter().map(limit).sum()
    };
    let of_node = amount(Some(&machine.allocatable), "memory").map(|memory| memory.value());
    let bounds = [of_node, own, of_pod.or_else(of_containers)];
    bounds.into_iter().flatten().filter(|bound| *bound > 0).min().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(source: serde_json::Value, limits: &[&str]) -> Result<Medium, VolumeError> {
        let limit = |limit: &&str| match *limit {
            "" => json!({"name": "a"}),
            limit => json!({"name": "a", "resources": {"limits": {"memory": limit}}}),
        };
        let containers: Vec<_> = limits.iter().map(limit).collect();
        let pod = serde_json::from_value(json!({"spec": {"containers": containers}})).expect("a pod");
        let source = serde_json::from_value(source).expect("a source");
        let allocatable =
            [("memory".to_owned(), k8s_openapi::apimachinery::pkg::api::resource::Quantity("8Gi".into()))];
        medium(&pod, &source, &Machine { allocatable: allocatable.into(), memory: 9 << 30 })
    }

    #[test]
    fn memory_is_no_more_than_the_pod_may_have() {
        let memory = |size| Ok(Medium::Memory { size: Some(size) });
        assert_eq!(of(json!({}), &[""]), Ok(Medium::Disk));
        assert_eq!(of(json!({"medium": "Memory"}), &["1Gi", ""]), memory(8 << 30));
        assert_eq!(of(json!({"medium": "Memory"}), &["1Gi", "2Gi"]), memory(3 << 30));
        assert_eq!(of(json!({"medium": "Memory", "sizeLimit": "64Mi"}), &["1Gi"]), memory(64 << 20));
        assert_eq!(of(json!({"medium": "Memory", "sizeLimit": "0"}), &["1Gi"]), memory(1 << 30));
    }

    #[test]
    fn other_media_are_refused() {
        for medium in ["HugePages", "HugePages-2Mi", "Paper"] {
            let message = of(json!({"medium": medium}), &[""]).expect_err("it is refused").to_string();
            assert!(message.contains(medium), "{message}");
        }
    }
}
