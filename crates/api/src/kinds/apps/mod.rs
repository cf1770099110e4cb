//! The `apps` group, and what its controllers have in common.

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;

use serde_json::Value;

use super::prepare;
use crate::validation::selectors::{Selection, label_selector, select};
use crate::validation::{Field, pod};

const GROUP: &str = "apps";
const TEMPLATE: &[&str] = &["spec", "template"];

/// A new controller: the status given, generation 1, no fields of disabled features.
fn prepare_create(object: &mut Value, status: &Value) {
    prepare::put(object, &["status"], Some(status));
    prepare::first_generation(object);
    pod::drop_disabled(object, TEMPLATE, None);
}

/// A changed one: its status stays, and the generation counts changes of these fields.
fn prepare_update(object: &mut Value, old: &Value, counted: &[&str]) {
    prepare::keep(object, old, "status");
    pod::drop_disabled(object, TEMPLATE, Some(old));
    prepare::next_generation(object, old, counted);
}

/// Warnings about the template and, for those whose pods are named after it, about the name.
fn warnings(object: &Value, names_pods: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    if names_pods {
        warnings.extend(pod::hostname_warning("Pod names and hostnames", &object["metadata"]));
    }
    warnings.extend(pod::template_warnings("spec.template", &object["spec"]["template"]));
    warnings
}

/// Warnings about the template if the generation says that something changed.
fn update_warnings(object: &Value, old: &Value) -> Vec<String> {
    if object["metadata"]["generation"] == old["metadata"]["generation"] {
        return Vec::new();
    }
    warnings(object, false)
}

/// What the selector of a controller says of its template.
fn selection_of(spec: &Field) -> Selection {
    let value = spec.value();
    select(&value["selector"], &value["template"]["metadata"]["labels"])
}

/// A selector must be there, valid and not empty.
fn selector(spec: &Field, empty: &str) {
    let selector = spec.at("selector");
    if !selector.is_set() {
        return selector.missing("");
    }
    label_selector(&selector);
    if selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
        selector.invalid(empty);
    }
}

/// Counts of a status: these are not negative, and these are not above all replicas.
fn counts(status: &Field, not_negative: &[&str], not_above_all: &[&str], above_ready: &str) {
    for name in not_negative {
        status.at(name).non_negative();
    }
    let all = status.at("replicas").number();
    for name in not_above_all {
        if status.at(name).number() > all {
            status.at(name).invalid("cannot be greater than status.replicas");
        }
    }
    let available = status.at("availableReplicas");
    if available.number() > status.at("readyReplicas").number() {
        available.invalid(above_ready);
    }
}

/// The count of hash collisions only grows.
fn collisions_only_grow(status: &Field, old: &Value) {
    let count = status.at("collisionCount");
    if let Some(before) = old["status"]["collisionCount"].as_i64()
        && count.int().is_none_or(|now| now < before)
    {
        count.invalid_value(count.number(), "cannot be decremented");
    }
}
