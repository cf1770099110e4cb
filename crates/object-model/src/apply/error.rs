//! Why an apply was refused, and the answer that says so.

use super::conflict::Conflicts;
use super::managed::BadManagedFields;
use super::problems::Problems;
use crate::status::{Reason, Status};

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    #[error("{}", .0.message())]
    Conflict(Conflicts),
    #[error("{0}")]
    BadRequest(String),
    #[error("failed to create typed patch object ({object}): {problems}")]
    Applied { object: String, problems: Problems },
    #[error("failed to create typed live object ({object}): {problems}")]
    Live { object: String, problems: Problems },
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] BadManagedFields),
    #[error("failed to compare objects: {0}")]
    Compare(Problems),
    #[error("failed to merge config: {0}")]
    Merge(Problems),
    #[error("failed to convert object to {version}: {why}")]
    Convert { version: String, why: String },
}

impl ApplyError {
    pub fn status(&self) -> Status {
        match self {
            ApplyError::Conflict(conflicts) => conflicts.status(),
            ApplyError::BadRequest(message) => Status::bad_request(message.clone()),
            other => Status::failure(500, Reason::default(), other.to_string(), None),
        }
    }
}
