//! What can go wrong with a patch, and the answer a client gets for it.

use thiserror::Error;

use super::json_patch::{MAX_OPERATIONS, OperationError};
use super::strategic::StrategicError;
use crate::identity::GroupResource;
use crate::status::{Reason, Status};
use crate::value::Object;

/// Why a patch could not be read or applied. [`PatchError::status`] is what Kubernetes tells the client.
#[derive(Debug, Error)]
pub enum PatchError {
    /// The body is JSON, but not a patch of its kind.
    #[error("{0}")]
    Malformed(String),
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// One operation of a JSON patch failed, so none took effect.
    #[error("operation {index} of the JSON patch: {source}")]
    Operation { index: usize, source: OperationError },
    #[error(transparent)]
    Strategic(#[from] StrategicError),
}

impl PatchError {
    /// What Kubernetes answers. It keeps the cause of a failed JSON patch to itself, and answers 500 to most strategic
    /// merge patches that make no sense.
    pub fn status(&self) -> Status {
        let rejected = || Status::generic(422, "", &GroupResource::default(), "", "");
        match self {
            Self::Malformed(_) => Status::bad_request(self.to_string()),
            Self::TooManyOperations(_) => Status::request_entity_too_large(self),
            Self::Operation { .. } => rejected(),
            Self::Strategic(e) if e.is_bad_format() => Status::bad_request(self.to_string()),
            Self::Strategic(StrategicError::ListOfLists) => rejected(),
            Self::Strategic(_) => Status::failure(500, Reason::UNKNOWN, self.to_string(), None),
        }
    }
}

/// Why a diff could not be made.
#[derive(Debug, Error)]
pub enum DiffError {
    #[error("precondition failed for: {}", super::GoPrint(&serde_json::Value::Object((**.0).clone())))]
    Precondition(Box<Object>),
    /// The live object was changed in the fields that the patch changes, and overwriting was not asked for.
    #[error(
        "patch:\n{}\nconflicts with changes made from original to current:\n{}\n",
        pretty(&.0.patch),
        pretty(&.0.changes)
    )]
    Conflict(Box<Conflict>),
    #[error(transparent)]
    Strategic(#[from] StrategicError),
}

/// The two sides of a conflict.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    pub patch: Object,
    pub changes: Object,
}

impl DiffError {
    pub(super) fn conflict(patch: Object, changes: Object) -> Self {
        Self::Conflict(Box::new(Conflict { patch, changes }))
    }
}

fn pretty(object: &Object) -> String {
    serde_json::to_string_pretty(object).unwrap_or_default()
}
