//! The `resize` subresource: cpu and memory of a running pod.

use serde_json::{Map, Value};

use super::{Options, is_sidecar, pod_object};
use crate::kinds::core::pod::quality_of_service;
use crate::validation::{Field, meta, same};

pub fn update(pod: &Field, old: &Value) {
    let null = Value::Null;
    let old_meta = old.get("metadata").unwrap_or(&null);
    let old_spec = old.get("spec").unwrap_or(&null);
    if old_meta.pointer("/annotations/kubernetes.io~1config.mirror").is_some() {
        return pod.forbidden("static pods cannot be resized");
    }
    if old_spec.pointer("/os/name").and_then(Value::as_str) == Some("windows") {
        return pod.forbidden("windows pods cannot be resized");
    }
    let before = pod.problem_count();
    meta::builtin_meta_update(&pod.at("metadata"), old_meta);
    pod_object::metadata_and_spec(pod, &Options::of_pod(Some(old)));
    let spec = pod.at("spec");
    let old_class = old.pointer("/status/qosClass").and_then(Value::as_str).filter(|class| !class.is_empty());
    if old_class.unwrap_or_else(|| quality_of_service(old_spec)) != quality_of_service(spec.value()) {
        let class = pod.value().pointer("/status/qosClass").cloned().unwrap_or_else(|| Value::from(""));
        spec.invalid_value(class, "Pod QOS Class may not change as a result of resizing");
    }
    if !node_can_resize(old) {
        spec.forbidden("Pod running on node without support for resize");
    }
    let mut rest = spec.value().clone();
    pod_level(&spec, old_spec, &mut rest);
    if !same_order(&spec, old_spec) {
        return;
    }
    for (list, told_at_item) in [("initContainers", true), ("containers", false)] {
        containers(&spec, old_spec, list, told_at_item, &mut rest);
    }
    if pod.problem_count() == before && !same(&rest, old_spec) {
        spec.forbidden("only cpu and memory resources are mutable");
    }
}

/// A node that tells the resources of running containers can change them.
fn node_can_resize(old: &Value) -> bool {
    let statuses = old.pointer("/status/containerStatuses").and_then(Value::as_array).into_iter().flatten();
    statuses
        .filter(|status| status.pointer("/state/running").is_some_and(|r| !r.is_null()))
        .map(|status| status.get("resources").is_some_and(|r| !r.is_null()))
        .next()
        .unwrap_or(true)
}

fn same_order(spec: &Field, old_spec: &Value) -> bool {
    let before = spec.problem_count();
    for list in ["containers", "initContainers"] {
        let containers = spec.at(list);
        let old = old_spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        if containers.len() != old.len() {
            containers.forbidden(format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, before) in containers.each().zip(old) {
            if container.value().get("name") != before.get("name") {
                container.at("name").forbidden(format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    spec.problem_count() == before
}

fn containers(spec: &Field, old_spec: &Value, list: &str, is_init: bool, rest: &mut Value) {
    let old = old_spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let field = spec.at(list);
    for (container, before) in field.each().zip(old) {
        nothing_removed(&container.at("resources"), before.get("resources"), "resource");
    }
    let kept = rest.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    for ((kept, before), container) in kept.zip(old).zip(field.each()) {
        let changed = !same(kept, before);
        put_compute_back(kept, before);
        if !same(kept, before) {
            if is_init {
                container.forbidden("only cpu and memory resources for init or sidecar containers are mutable");
            } else {
                spec.forbidden("only cpu and memory resources are mutable");
            }
        }
        if is_init && changed && !is_sidecar(&container) {
            let restarts =
                container.at("resizePolicy").each().filter(|p| p.at("restartPolicy").is("RestartContainer")).count();
            for _ in 0..restarts {
                container.forbidden(
                    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized",
                );
            }
        }
    }
}

fn pod_level(spec: &Field, old_spec: &Value, rest: &mut Value) {
    let resources = spec.at("resources");
    let old = old_spec.get("resources").filter(|r| !r.is_null());
    if old.is_some() && !resources.is_set() {
        return resources.forbidden("pod-level resources cannot be removed");
    }
    if !resources.is_set() {
        return;
    }
    nothing_removed(&resources, old, "pod-level resource");
    let empty = Value::Object(Map::new());
    put_compute_back(rest, &serde_json::json!({ "resources": old.unwrap_or(&empty) }));
    let left = rest.get("resources").cloned().unwrap_or(Value::Null);
    let nothing = left.as_object().is_some_and(Map::is_empty) && old.is_none();
    if nothing && let Some(fields) = rest.as_object_mut() {
        fields.remove("resources");
    }
    if !nothing && !same(&left, old.unwrap_or(&Value::Null)) {
        spec.forbidden("only cpu and memory resources are mutable at pod-level");
    }
}

fn nothing_removed(resources: &Field, old: Option<&Value>, what: &str) {
    for which in ["requests", "limits"] {
        let list = resources.at(which);
        let before = old.and_then(|old| old.get(which)?.as_object());
        if before.into_iter().flatten().any(|(name, _)| !list.key(name).is_set()) {
            list.forbidden(format!("{what} {which} cannot be removed"));
        }
    }
}

/// Puts cpu and memory of the old `resources` back, and drops what else the new ones have beside requests and limits.
fn put_compute_back(owner: &mut Value, old: &Value) {
    let Some(fields) = owner.as_object_mut() else { return };
    let mut kept = Map::new();
    for which in ["requests", "limits"] {
        let list = |value: Option<&Value>| value.and_then(|r| r.get(which)?.as_object().cloned()).unwrap_or_default();
        let mut now = list(fields.get("resources"));
        let before = list(old.get("resources"));
        for name in ["cpu", "memory"] {
            match before.get(name) {
                Some(amount) => now.insert(name.to_owned(), amount.clone()),
                None => now.remove(name),
            };
        }
        if !now.is_empty() {
            kept.insert(which.to_owned(), Value::Object(now));
        }
    }
    if let Some(claims) = fields.get("resources").and_then(|r| r.get("claims")) {
        kept.insert("claims".to_owned(), claims.clone());
    }
    fields.insert("resources".to_owned(), Value::Object(kept));
}
