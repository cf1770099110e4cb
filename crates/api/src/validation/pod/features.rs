//! Fields of features that are off by default in v1.36: dropped unless the old object already has them.

use serde_json::Value;

use super::CONTAINER_LISTS;
use crate::defaults::Defaults;

/// Sources of projected volumes that are off.
const PROJECTIONS: [&str; 2] = ["clusterTrustBundle", "podCertificate"];

/// Drops disabled fields of the pod specification at `path` (of the object that holds `spec`).
pub fn drop_disabled(object: &mut Value, path: &[&str], old: Option<&Value>) {
    let mut holder = object;
    for name in path {
        match holder.get_mut(*name) {
            Some(inner) => holder = inner,
            None => return,
        }
    }
    let null = Value::Null;
    let old_holder = path.iter().fold(old.unwrap_or(&null), |value, name| &value[*name]);
    if let Some(spec) = holder.child("spec") {
        drop_from_spec(spec, &old_holder["spec"]);
    }
}

fn drop_from_spec(spec: &mut Value, old: &Value) {
    let sources_of = |spec: &Value| -> Vec<Value> {
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        volumes.flat_map(|v| v["projected"]["sources"].as_array().into_iter().flatten()).cloned().collect()
    };
    for projection in PROJECTIONS {
        if sources_of(old).iter().all(|source| source[projection].is_null()) {
            for volume in spec.each("volumes") {
                if let Some(projected) = volume.child("projected") {
                    projected.each("sources").for_each(|source| source.remove(projection));
                }
            }
        }
    }
    if old["schedulingGroup"].is_null() {
        spec.remove("schedulingGroup");
    }
    let stops = |container: &Value| !container["lifecycle"]["stopSignal"].is_null();
    let used = CONTAINER_LISTS.iter().any(|list| old[*list].as_array().into_iter().flatten().any(stops));
    if used {
        return;
    }
    for list in CONTAINER_LISTS {
        for container in spec.each(list).filter(|container| stops(container)) {
            if let Some(lifecycle) = container.child("lifecycle") {
                lifecycle.remove("stopSignal");
                if lifecycle.as_object().is_some_and(|fields| fields.is_empty()) {
                    container.remove("lifecycle");
                }
            }
        }
    }
}

/// The same for the status.
pub fn drop_disabled_status(status: &mut Value, old: &Value) {
    if old["status"]["nodeAllocatableResourceClaimStatuses"].is_null() {
        status.remove("nodeAllocatableResourceClaimStatuses");
    }
    for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        for mount in status.each(list).flat_map(|container| container.each("volumeMounts")) {
            mount.remove("volumeStatus");
        }
    }
}
