//! Does a custom object's value fit its schema?
//!
//! All problems are reported at once, with the kinds, paths and words that Kubernetes has for them, in the order of the
//! object's keys. Three checks follow each other: the schema's rules ([`walk`]), embedded resources, and the keys of sets
//! and keyed lists. Expression rules are checked elsewhere.
//!
//! On update, what is wrong but unchanged is tolerated: see [`Old`](old::Old).

mod embedded;
mod format;
mod lists;
mod number;
mod old;
mod pattern;
mod walk;

use serde_json::Value;

pub use format::Format;
pub use pattern::{Pattern, PatternError};

use super::{Ref, Schema};
use crate::field::{Errors, Path};
use old::Old;

/// Checks a new object.
pub fn validate(schema: &Schema, object: &Value) -> Errors {
    let mut errors = walk::check(schema.root(), object, &Old::Never, None);
    embedded::check(schema.root(), object, &mut errors);
    lists::check(schema.root(), object, &mut errors);
    errors
}

/// Checks a changed object against what it was.
pub fn validate_update(schema: &Schema, object: &Value, old: &Value) -> Errors {
    let root = schema.root();
    let mut errors = walk::check(root, object, &Old::Root(root, old), None);
    check_whole_update(root, object, old, &mut errors);
    errors
}

/// Checks a change through the status subresource: only the status must fit the schema.
pub fn validate_status_update(schema: &Schema, object: &Value, old: &Value) -> Errors {
    let root = schema.root();
    let mut errors = match (root.property("status"), object.get("status")) {
        (Some(node), Some(status)) => {
            let before = Old::Root(node, old.get("status").unwrap_or(&Value::Null));
            walk::check(node, status, &before, Some(&Path::Root.child("status")))
        }
        _ => Errors::new(),
    };
    check_whole_update(root, object, old, &mut errors);
    errors
}

fn check_whole_update(root: Ref<'_>, object: &Value, old: &Value, errors: &mut Errors) {
    embedded::check(root, object, errors);
    let mut before = Errors::new();
    lists::check(root, old, &mut before);
    if before.is_empty() {
        lists::check(root, object, errors);
    }
}

/// Checks one value, such as a default, against one node. Paths in the errors start with `at`.
pub(super) fn validate_value(node: Ref<'_>, value: &Value, at: &Path<'_>) -> Errors {
    walk::check(node, value, &Old::Never, Some(at))
}

pub(super) use embedded::check_node as validate_resources;

#[cfg(test)]
mod tests;
