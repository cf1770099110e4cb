//! Ephemeral containers: added to a running pod to look into it.

use std::collections::HashSet;

use serde_json::Value;

use super::container::{self, Pod};
use super::{Options, annotations, pod_object};
use crate::validation::{Field, go_form, meta, same};

/// Fields of a container that an ephemeral one must not have, in Kubernetes' order.
const FORBIDDEN: [&str; 8] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
];

/// The ephemeral containers of a pod specification.
pub fn in_spec(spec: &Field, pod: &Pod) {
    let mut others = HashSet::new();
    for list in ["containers", "initContainers"] {
        others.extend(spec.at(list).value().as_array().into_iter().flatten().filter_map(|c| c.get("name")?.as_str()));
    }
    let mut seen = others.clone();
    for container in spec.at("ephemeralContainers").each() {
        container::common(&container, pod);
        pod_object::image_without_spaces(&container);
        let name = container.at("name");
        if seen.contains(&name.text()) {
            name.duplicate();
        }
        seen.insert(name.text());
        let target = container.at("targetContainerName");
        if !target.is_empty() && !others.contains(&target.text()) {
            target.not_found();
        }
        for field in FORBIDDEN.into_iter().chain(["lifecycle"]) {
            if !container.at(field).is_empty() {
                container.at(field).forbidden("cannot be set for an Ephemeral Container");
            }
        }
        for mount in container.at("volumeMounts").each() {
            for field in ["subPath", "subPathExpr"] {
                if !mount.at(field).is_empty() {
                    mount.at(field).forbidden("cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

/// The `ephemeralcontainers` subresource: containers may be added, never changed or removed.
pub fn update(pod: &Field, old: &Value) {
    let options = Options::of_pod(Some(old));
    let null = Value::Null;
    let old_meta = old.get("metadata").unwrap_or(&null);
    if old_meta.pointer("/annotations/kubernetes.io~1config.mirror").is_some() {
        return pod.forbidden("static pods do not support ephemeral containers");
    }
    meta::builtin_meta_update(&pod.at("metadata"), old_meta);
    pod_object::metadata_and_spec(pod, &options);
    let (meta, spec) = (pod.at("metadata"), pod.at("spec"));
    annotations::pod_annotation_updates(&meta.at("annotations"), old_meta.get("annotations").unwrap_or(&null));
    let containers = spec.at("ephemeralContainers");
    for before in old.pointer("/spec/ephemeralContainers").and_then(Value::as_array).into_iter().flatten() {
        let name = before.get("name").and_then(Value::as_str).unwrap_or_default();
        match containers.each().find(|c| c.at("name").is(name)) {
            None => containers.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(now) if !same(now.value(), before) => {
                let difference = go_form::difference("EphemeralContainer", before, now.value());
                containers.forbidden(format!("existing ephemeral containers {name:?} may not be changed\n{difference}"))
            }
            Some(_) => {}
        }
    }
}
