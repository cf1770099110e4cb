//! JSON merge patch (RFC 7386) and its inverses: the two-way and the three-way diff.
//!
//! The merge is Kubernetes', which strips more nulls than the RFC: an object that arrives where none was is kept
//! without its nulls, also inside lists. Only a list that replaces an object keeps the nulls of its items.

use serde_json::Value;

use super::error::DiffError;
use super::preconditions::{Precondition, check};
use crate::value::Object;

/// Merges a patch into an object.
pub fn apply(current: &mut Object, patch: &Object) {
    for (name, value) in patch {
        if value.is_null() {
            current.remove(name);
            continue;
        }
        match (current.get_mut(name), value) {
            (Some(Value::Object(into)), Value::Object(patch)) => apply(into, patch),
            (Some(into @ Value::Object(_)), _) => *into = value.clone(),
            _ => {
                current.insert(name.clone(), without_nulls(value));
            }
        }
    }
}

/// A copy without the null fields of objects; null items of lists stay.
pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}

/// The patch that turns `original` into `modified`. Nulls in `modified` cannot be expressed: they delete.
pub fn diff(original: &Object, modified: &Object) -> Object {
    let mut patch = Object::new();
    for (name, new) in modified {
        match (original.get(name), new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(name.clone(), Value::Object(diff(old, new)));
            }
            _ => {
                patch.insert(name.clone(), new.clone());
            }
        }
    }
    for name in original.keys().filter(|n| !modified.contains_key(*n)) {
        patch.insert(name.clone(), Value::Null);
    }
    patch
}

/// The patch that brings `current` to what `modified` says, deletes what `original` had and `modified` has no more,
/// and leaves everything else in `current` alone. What `kubectl apply` sends for custom kinds.
pub fn three_way(
    original: &Object,
    modified: &Object,
    current: &Object,
    preconditions: &[Precondition],
) -> Result<Object, DiffError> {
    let changes = settings(&diff(current, modified));
    let mut patch = deletions(&diff(original, modified));
    if overlap_differs(&changes, &patch) {
        return Err(DiffError::conflict(changes, patch));
    }
    // A deletion below a field that is set as a whole gives way to it.
    apply(&mut patch, &changes);
    check(&patch, preconditions)?;
    Ok(patch)
}

/// The part of a patch that sets values. An empty object is a value, unless it only held deletions.
fn settings(patch: &Object) -> Object {
    let mut out = Object::new();
    for (name, value) in patch {
        match value {
            Value::Null => {}
            Value::Object(map) if !map.is_empty() => {
                let inner = settings(map);
                if !inner.is_empty() {
                    out.insert(name.clone(), Value::Object(inner));
                }
            }
            value => {
                out.insert(name.clone(), value.clone());
            }
        }
    }
    out
}

/// The part of a patch that deletes.
fn deletions(patch: &Object) -> Object {
    let mut out = Object::new();
    for (name, value) in patch {
        match value {
            Value::Null => {
                out.insert(name.clone(), Value::Null);
            }
            Value::Object(map) => {
                let inner = deletions(map);
                if !inner.is_empty() {
                    out.insert(name.clone(), Value::Object(inner));
                }
            }
            _ => {}
        }
    }
    out
}

/// Do two patches say different things of the same field?
fn overlap_differs(left: &Object, right: &Object) -> bool {
    left.iter().any(|(name, l)| match (l, right.get(name)) {
        (_, None) => false,
        (Value::Object(l), Some(Value::Object(r))) => overlap_differs(l, r),
        (l, Some(r)) => l != r,
    })
}

#[cfg(test)]
#[path = "merge_patch_tests.rs"]
mod tests;
