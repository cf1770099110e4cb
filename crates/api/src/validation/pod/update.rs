//! What may change on a Pod: its images, its deadline, more tolerations, fewer scheduling gates.

use serde_json::{Value, json};

use super::affinity::REQUIRED;
use super::{Options, annotations, pod_object, tolerations};
use crate::validation::{Field, go_form, meta, same, same_at};

const CHANGEABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                          `spec.tolerations` (only additions to existing tolerations),\
                          `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub fn update(pod: &Field, old: &Value) {
    let options = Options::of_pod(Some(old));
    let null = Value::Null;
    let (metadata, spec) = (pod.at("metadata"), pod.at("spec"));
    let old_meta = old.get("metadata").unwrap_or(&null);
    let old_spec = old.get("spec").unwrap_or(&null);
    let annotations = metadata.at("annotations");
    meta::builtin_meta_update(&metadata, old_meta);
    pod_object::metadata_and_spec(pod, &options);
    annotations::pod_annotation_updates(&annotations, old_meta.get("annotations").unwrap_or(&null));
    annotations::pod_annotations(&annotations, &spec, options.invalid_deletion_cost);
    for list in ["containers", "initContainers"] {
        if !same_number_of_containers(&spec.at(list), old_spec) {
            return;
        }
    }
    if !deadline(&spec.at("activeDeadlineSeconds"), old_spec) {
        return;
    }
    only_added_tolerations(&spec.at("tolerations"), old_spec);
    only_removed_gates(&spec.at("schedulingGates"), old_spec);
    if same(spec.value(), old_spec) {
        return;
    }
    let mut rest = with_changeable_fields_of(spec.value(), old_spec);
    if old_spec.get("schedulingGates").is_some() {
        gated_pod_may_narrow(&spec, &mut rest, old_spec);
    }
    if !same(&rest, old_spec) {
        spec.forbidden(format!(
            "pod updates may not change fields other than {CHANGEABLE}\n{}",
            go_form::difference("PodSpec", old_spec, &rest)
        ));
    }
}

fn same_number_of_containers(containers: &Field, old_spec: &Value) -> bool {
    let name = if containers.path().to_string().ends_with("initContainers") { "initContainers" } else { "containers" };
    if containers.len() != old_spec.get(name).and_then(Value::as_array).map_or(0, Vec::len) {
        containers.forbidden("pod updates may not add or remove containers");
        return false;
    }
    for container in containers.each() {
        container.at("image").required();
        pod_object::image_without_spaces(&container);
    }
    true
}

fn deadline(deadline: &Field, old_spec: &Value) -> bool {
    let before = old_spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    match (deadline.int(), before) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            deadline.in_range(0, i64::from(i32::MAX));
            false
        }
        (Some(now), Some(before)) if before < now => {
            deadline.invalid("must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            deadline.invalid("must not update from a positive integer to nil value");
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(tolerations: &Field, old_spec: &Value) {
    let without_seconds = |toleration: &Value| {
        let mut rest = toleration.clone();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        rest
    };
    for before in old_spec.get("tolerations").and_then(Value::as_array).into_iter().flatten() {
        let before = without_seconds(before);
        if !tolerations.each().any(|now| same(&without_seconds(now.value()), &before)) {
            return tolerations.forbidden("existing toleration can not be modified except its tolerationSeconds");
        }
    }
    tolerations::tolerations(tolerations);
}

fn only_removed_gates(gates: &Field, old_spec: &Value) {
    let old = old_spec.get("schedulingGates").and_then(Value::as_array);
    for gate in gates.each() {
        let name = gate.at("name");
        if !old.into_iter().flatten().any(|before| before.get("name") == Some(name.value())) {
            name.forbidden(format!("only deletion is allowed, but found new scheduling gate '{}'", name.text()));
        }
    }
}

/// The new specification with everything that may change put back.
fn with_changeable_fields_of(spec: &Value, old: &Value) -> Value {
    let mut rest = spec.clone();
    for list in ["containers", "initContainers"] {
        let before = old.get(list).and_then(Value::as_array).into_iter().flatten();
        let now = rest.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in now.zip(before) {
            put_back(container, before, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        put_back(&mut rest, old, name);
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(&rest) == Some(1) {
        put_back(&mut rest, old, "terminationGracePeriodSeconds");
    }
    rest
}

fn put_back(value: &mut Value, old: &Value, name: &str) {
    if let Some(fields) = value.as_object_mut() {
        match old.get(name) {
            Some(before) => fields.insert(name.to_owned(), before.clone()),
            None => fields.remove(name),
        };
    }
}

/// While a pod is gated it may say more about the nodes it wants.
fn gated_pod_may_narrow(spec: &Field, rest: &mut Value, old: &Value) {
    if !same_at(spec.value(), old, "nodeSelector") {
        let selector = spec.at("nodeSelector");
        let kept = |(key, value): (&String, &Value)| selector.value().get(key) == Some(value);
        if !old.get("nodeSelector").and_then(Value::as_object).into_iter().flatten().all(kept) {
            selector.invalid("only additions to spec.nodeSelector are allowed (no mutations or deletions)");
        }
        put_back(rest, old, "nodeSelector");
    }
    let affinity = spec.at("affinity");
    let node_affinity = affinity.at("nodeAffinity");
    let null = Value::Null;
    let before = old.pointer("/affinity/nodeAffinity").unwrap_or(&null);
    if same(node_affinity.value(), before) {
        return;
    }
    let required = node_affinity.at(REQUIRED);
    only_narrowed(&required.at("nodeSelectorTerms"), &before[REQUIRED]["nodeSelectorTerms"]);
    let mut merged = rest.get("affinity").filter(|a| a.is_object()).cloned().unwrap_or_else(|| json!({}));
    put_back(&mut merged, old.get("affinity").unwrap_or(&null), "nodeAffinity");
    if let Some(fields) = rest.as_object_mut() {
        let nothing_left = merged.as_object().is_some_and(|a| a.is_empty()) && old.get("affinity").is_none();
        if nothing_left {
            fields.remove("affinity");
        } else {
            fields.insert("affinity".to_owned(), merged);
        }
    }
}

fn only_narrowed(terms: &Field, old: &Value) {
    let Some(old) = old.as_array().filter(|old| !old.is_empty()) else { return };
    if terms.len() != old.len() {
        return terms.invalid("no additions/deletions to non-empty NodeSelectorTerms list are allowed");
    }
    for (term, before) in terms.each().zip(old) {
        let lists = ["matchExpressions", "matchFields"];
        let items = |value: &Value, list: &str| value.get(list).and_then(Value::as_array).cloned().unwrap_or_default();
        let was_empty = lists.iter().all(|list| items(before, list).is_empty());
        let narrowed = if was_empty {
            lists.iter().all(|list| items(term.value(), list).is_empty())
        } else {
            lists.iter().all(|list| items(term.value(), list).starts_with(&items(before, list)))
        };
        if !narrowed {
            term.invalid("only additions are allowed (no mutations or deletions)");
        }
    }
}
