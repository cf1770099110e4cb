//! Patches: JSON patch, merge patch and strategic merge patch, and the diffs that make them.
//!
//! Everything here is pure: a patch is read once into a [`PatchDocument`] and applied to the current object as often as
//! the write has to be tried again. What follows a patch on the way into the store (decoding against the schema, which
//! drops nulls and finds unknown fields; defaulting; validation) is the caller's, for all writes alike. Two answers are the
//! caller's too: 404 comes before any complaint about the patch, and a strategic merge patch on a custom kind is refused
//! with 415, since custom kinds have no patch strategies (see [`PatchKind::accepted`]).
//!
//! Server-side apply is the fourth kind of patch; it is [`crate::apply`].

mod error;
mod go_print;
pub mod json_patch;
pub mod merge_patch;
mod preconditions;
pub mod strategic;

use serde_json::Value;

pub use error::{Conflict, DiffError, PatchError};
pub use go_print::GoPrint;
pub use json_patch::JsonPatch;
pub use preconditions::{Precondition, SAME_OBJECT};

use crate::codec::json;
use crate::schema::Ref;
use crate::value::Object;

/// The kinds of patch, by their content type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl PatchKind {
    pub const ALL: [Self; 3] = [Self::Json, Self::Merge, Self::Strategic];

    /// The kinds that a resource accepts beside server-side apply.
    pub fn accepted(custom: bool) -> &'static [Self] {
        if custom { &[Self::Json, Self::Merge] } else { &Self::ALL }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
        }
    }

    /// The kind that a `Content-Type` header names, parameters aside.
    pub fn from_content_type(header: &str) -> Option<Self> {
        let media_type = header.split(';').next().unwrap_or_default();
        Self::ALL.into_iter().find(|k| k.content_type() == media_type)
    }
}

/// A patch, read and ready to be applied any number of times.
#[derive(Clone, Debug, PartialEq)]
pub enum PatchDocument {
    Json(JsonPatch),
    Merge(Object),
    Strategic(Object),
}

impl PatchDocument {
    /// Reads a decoded body as a patch.
    pub fn parse(kind: PatchKind, body: Value) -> Result<Self, PatchError> {
        let not_an_object = |prefix: &str, body: &Value| {
            let json_type = json::type_name(body);
            let into = "Go value of type map[string]interface {}";
            PatchError::Malformed(format!("{prefix}json: cannot unmarshal {json_type} into {into}"))
        };
        match (kind, body) {
            (PatchKind::Json, body) => JsonPatch::parse(body).map(Self::Json),
            (PatchKind::Merge, Value::Object(patch)) => Ok(Self::Merge(patch)),
            (PatchKind::Merge, Value::Null) => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
            (PatchKind::Merge, other) => Err(not_an_object("error decoding patch: ", &other)),
            (PatchKind::Strategic, Value::Object(patch)) => Ok(Self::Strategic(patch)),
            (PatchKind::Strategic, Value::Null) => Ok(Self::Strategic(Object::new())),
            (PatchKind::Strategic, other) => Err(not_an_object("", &other)),
        }
    }

    pub fn kind(&self) -> PatchKind {
        match self {
            Self::Json(_) => PatchKind::Json,
            Self::Merge(_) => PatchKind::Merge,
            Self::Strategic(_) => PatchKind::Strategic,
        }
    }

    /// Applies the patch to the current object; `schema` is the kind's. The result may hold nulls, unknown fields and
    /// values of the wrong type, as any body of a request may.
    pub fn apply(&self, schema: Ref<'_>, mut current: Object) -> Result<Value, PatchError> {
        match self {
            Self::Json(patch) => patch.apply(Value::Object(current)),
            Self::Merge(patch) => {
                merge_patch::apply(&mut current, patch);
                Ok(Value::Object(current))
            }
            Self::Strategic(patch) => Ok(Value::Object(strategic::apply(schema, current, patch)?)),
        }
    }
}

#[cfg(test)]
mod test_schema;
#[cfg(test)]
mod tests;
