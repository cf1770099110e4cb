//! What a computed patch must leave alone, such as an object's name.

use serde_json::Value;

use super::error::DiffError;
use crate::value::Object;

/// A field that a patch may not touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition<'a> {
    KeyUnchanged(&'a str),
    MetadataKeyUnchanged(&'a str),
}

/// What `kubectl apply` demands: the patch stays on the object it was made for.
pub const SAME_OBJECT: &[Precondition] = &[
    Precondition::KeyUnchanged("apiVersion"),
    Precondition::KeyUnchanged("kind"),
    Precondition::MetadataKeyUnchanged("name"),
];

pub(super) fn check(patch: &Object, preconditions: &[Precondition]) -> Result<(), DiffError> {
    let touched = |p: &Precondition| match p {
        Precondition::KeyUnchanged(key) => patch.contains_key(*key),
        Precondition::MetadataKeyUnchanged(key) => {
            patch.get("metadata").and_then(Value::as_object).is_some_and(|m| m.contains_key(*key))
        }
    };
    match preconditions.iter().any(touched) {
        true => Err(DiffError::Precondition(Box::new(patch.clone()))),
        false => Ok(()),
    }
}
