//! Strategic merge patch: a merge patch that knows from the schema which lists are merged item by item, and by what key.
//!
//! A patch may hold directives:
//! - `$patch: replace | delete` in an object: take the patch as it is, or empty the object; in an item of a merged list:
//!   replace the whole list by the other items, or delete the items with that key;
//! - `$deleteFromPrimitiveList/<field>`: items to remove from a list of scalars;
//! - `$setElementOrder/<field>`: the order of the items that the writer knows; the others keep their place among them;
//! - `$retainKeys`: the only fields that the object keeps.
//!
//! [`diff`] makes the patch between two objects, [`three_way`] the one `kubectl apply` sends. Kubernetes' peculiarities
//! that clients can see are kept (see `docs/design/patch.md`); merged lists are expected to have distinct keys.

mod conflicts;
mod diff;
mod error;
mod lists;
mod lookup;
mod merge;

use serde_json::Value;

pub use conflicts::have_conflicts;
pub use error::StrategicError;

use super::error::DiffError;
use super::preconditions::{Precondition, check};
use crate::schema::Ref;
use crate::value::Object;

const DIRECTIVE: &str = "$patch";
const DELETE: &str = "delete";
const REPLACE: &str = "replace";
const MERGE: &str = "merge";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const ELEMENT_ORDER: &str = "$setElementOrder";

/// Applies a patch to an object.
pub fn apply(schema: Ref<'_>, current: Object, patch: &Object) -> Result<Object, StrategicError> {
    merge::objects(schema, current, patch, merge::Mode::Apply)
}

/// The patch that turns `original` into `modified`: what client libraries call CreateTwoWayMergePatch.
pub fn diff(schema: Ref<'_>, original: &Object, modified: &Object) -> Result<Object, StrategicError> {
    diff::objects(schema, original, modified, diff::Options { changes: true, deletions: true, order: true })
}

/// The patch that brings `current` to what `modified` says, deletes what `original` had and `modified` has no more, and
/// leaves everything else in `current` alone. Unless told to overwrite, it is refused when `current` was changed since
/// `original` in a field that the patch changes to something else.
pub fn three_way(
    schema: Ref<'_>,
    original: &Object,
    modified: &Object,
    current: &Object,
    overwrite: bool,
    preconditions: &[Precondition],
) -> Result<Object, DiffError> {
    let settings = diff::Options { changes: true, deletions: false, order: true };
    let removals = diff::Options { changes: false, deletions: true, order: true };
    let delta = diff::objects(schema, current, modified, settings)?;
    let deletions = diff::objects(schema, original, modified, removals)?;
    let patch = merge::objects(schema, deletions, &delta, merge::Mode::Combine)?;
    check(&patch, preconditions)?;
    if !overwrite {
        let changes = diff::Options { changes: true, deletions: true, order: false };
        let changes = diff::objects(schema, original, current, changes)?;
        if have_conflicts(schema, &patch, &changes)? {
            return Err(DiffError::conflict(patch, changes));
        }
    }
    Ok(patch)
}

/// The directive of an object, if it has one.
fn directive(item: &Value) -> Option<&Value> {
    item.as_object()?.get(DIRECTIVE)
}

#[cfg(test)]
mod tests;
