//! What most kinds do before an object is validated: status and spec have separate writers, and the generation counts
//! changes of the spec.

use serde_json::{Map, Value, json};

use super::Context;
use crate::validation::same_at;

/// Sets, or with `None` removes, the value at a path of nested objects.
pub fn put(object: &mut Value, path: &[&str], value: Option<&Value>) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = object;
    for name in parents {
        if !at.is_object() {
            return;
        }
        let entry = &mut at[*name];
        if entry.is_null() {
            if value.is_none() {
                return;
            }
            *entry = Value::Object(Map::new());
        }
        at = entry;
    }
    if let Some(fields) = at.as_object_mut() {
        match value {
            Some(value) => fields.insert((*last).to_owned(), value.clone()),
            None => fields.remove(*last),
        };
    }
}

/// Makes a field what it was in the old object.
pub fn keep(object: &mut Value, old: &Value, name: &str) {
    put(object, &[name], old.get(name));
}

/// The first generation of a new object.
pub fn first_generation(object: &mut Value) {
    put(object, &["metadata", "generation"], Some(&json!(1)));
}

/// One more if any of these fields says something else than before.
pub fn next_generation(object: &mut Value, old: &Value, fields: &[&str]) {
    if fields.iter().any(|name| !same_at(object, old, name)) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        put(object, &["metadata", "generation"], Some(&json!(generation)));
    }
}

/// A new object with a status of its own writer: an empty status, generation 1.
pub fn new_with_status(object: &mut Value, _: &Context) {
    put(object, &["status"], Some(&json!({})));
    first_generation(object);
}

/// A change of the spec: the status stays, the generation counts.
pub fn spec_only(object: &mut Value, old: &Value, _: &Context) {
    keep(object, old, "status");
    next_generation(object, old, &["spec"]);
}

/// A change of the status: the spec stays.
pub fn status_only(object: &mut Value, old: &Value, _: &Context) {
    keep(object, old, "spec");
}

/// As [`status_only`], and metadata stays too, except managedFields and resourceVersion.
pub fn status_and_nothing_else(object: &mut Value, old: &Value, context: &Context) {
    status_only(object, old, context);
    keep_metadata_for_status(object, old);
}

/// Metadata of a status writer: it may not touch labels, annotations, finalizers and owners.
pub fn keep_metadata_for_status(object: &mut Value, old: &Value) {
    for name in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        put(object, &["metadata", name], old["metadata"].get(name));
    }
}

/// What a client may leave out of metadata on a change, and what it cannot change.
pub fn keep_system_metadata(object: &mut Value, old: &Value) {
    let empty = |value: &Value| value.is_null() || value.as_str() == Some("");
    if empty(&object["metadata"]["uid"]) {
        put(object, &["metadata", "uid"], old.get("uid"));
    }
    for name in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(time) = old.get(name).filter(|time| !time.is_null()) {
            put(object, &["metadata", name], Some(time));
        }
    }
    if object["metadata"].get("deletionGracePeriodSeconds").is_none() {
        put(object, &["metadata", "deletionGracePeriodSeconds"], old.get("deletionGracePeriodSeconds"));
    }
}
