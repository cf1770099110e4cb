//! Dropping what a custom resource's schema does not know.
//!
//! Unknown fields go, except below `x-kubernetes-preserve-unknown-fields`; that setting holds for one level and is taken
//! back by the children that the schema does specify. `apiVersion`, `kind` and `metadata` of the object itself and of
//! embedded resources are not pruned but brought into the form of their Kubernetes types, see [`metadata`].
//!
//! What was dropped is told by path, for `fieldValidation`: `spec.foo`, `spec.list[0].bar`, and no more of it than a
//! strict decoder tells.

mod metadata;

use serde_json::Value;

use super::default::drop_nulls;
use super::{Ref, Schema};
use crate::codec::StrictErrors;
use crate::field::{FieldError, Path};
pub use metadata::Malformed;
pub(super) use metadata::coerce;

/// Everything that decoding a custom object does after defaulting: prunes, drops nulls that may not be, and coerces
/// metadata. Says what was dropped, sorted.
pub fn clean(schema: &Schema, object: &mut Value, malformed: Malformed) -> Result<Vec<String>, FieldError> {
    let mut unknown = coerce(schema.root(), object, true, malformed)?;
    unknown.append(&mut prune(schema, object));
    drop_nulls(schema, object);
    unknown.append(&mut coerce(schema.root(), object, false, malformed)?);
    unknown.sort();
    unknown.dedup();
    Ok(unknown)
}

/// Drops unknown fields and says where they were, sorted.
pub fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    walk(Some(schema.root()), object, true, &Path::Root, &mut unknown);
    unknown.sort();
    unknown
}

/// Is anything dropped from a default?
pub(super) fn prune_value(node: Ref<'_>, value: &mut Value) -> bool {
    let mut unknown = Vec::new();
    walk(Some(node), value, false, &Path::Root, &mut unknown);
    !unknown.is_empty()
}

pub(super) fn is_meta_field(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn walk(node: Option<Ref<'_>>, value: &mut Value, is_root: bool, path: &Path<'_>, unknown: &mut Vec<String>) {
    let keeps_unknown = node.is_some_and(Ref::keeps_unknown);
    match value {
        Value::Object(object) => {
            let is_resource = is_root || node.is_some_and(Ref::is_resource);
            let open = node.and_then(Ref::rules).is_some_and(|rules| rules.additional.is_some());
            object.retain(|name, value| {
                let here = path.child(name);
                match node.and_then(|node| node.property(name)) {
                    _ if is_resource && is_meta_field(name) => {}
                    Some(child) => walk(Some(child), value, false, &here, unknown),
                    // `additionalProperties: true` keeps the keys, but says nothing of what is below.
                    None if open => walk(None, value, false, &here, unknown),
                    None if keeps_unknown => {}
                    None => {
                        if unknown.len() < StrictErrors::MOST {
                            unknown.push(here.to_string());
                        }
                        return false;
                    }
                }
                true
            });
        }
        Value::Array(items) => {
            let item_node = node.and_then(Ref::element);
            if item_node.is_none() && keeps_unknown {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                walk(item_node, item, false, &path.index(index), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
