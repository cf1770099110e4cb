//! The way from kubectl's client-side apply to server-side apply.
//!
//! Client-side apply keeps what it applied in an annotation. When the same kubectl comes back with server-side apply,
//! fields that still are as the annotation says are no conflict, and the annotation is kept up for a way back.

use serde_json::Value;

use super::compare::{compare, field_set};
use super::json;
use super::set::Set;
use super::validate::{Duplicates, validate};
use crate::schema::Schema;
use crate::value::Fields;

/// The manager that client-side and server-side apply of kubectl share.
pub(super) const KUBECTL: &str = "kubectl";

/// What client-side apply applied last.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// All annotations of an object together may have this many bytes.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The fields of the last client-side apply whose values nobody has changed since.
pub(super) fn unchanged_fields(schema: &Schema, api_version: &str, live: &Value) -> Option<Set> {
    let text = live.text_at(&["metadata", "annotations", LAST_APPLIED]);
    let last: Value = serde_json::from_str(text).ok()?;
    if last.text("apiVersion") != api_version || last.text("kind").is_empty() {
        return None;
    }
    validate(schema, live, Duplicates::Refused).ok()?;
    validate(schema, &last, Duplicates::Refused).ok()?;
    let found = compare(schema, &last, live).ok()?;
    let fields = field_set(schema, &last);
    Some(fields.difference(&found.modified).difference(&found.added).difference(&found.removed))
}

/// Writes the applied configuration into the annotation, where the object has it. Says whether that changed anything.
pub(super) fn keep_up(object: &mut Value, applied: &Value) -> bool {
    let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return false;
    };
    let Some(last) = annotations.get(LAST_APPLIED).filter(|last| *last != "").cloned() else { return false };
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    annotations.insert(LAST_APPLIED.to_owned(), Value::String(json::text(&applied) + "\n"));
    let size: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(LAST_APPLIED);
    }
    annotations.get(LAST_APPLIED) != Some(&last)
}
