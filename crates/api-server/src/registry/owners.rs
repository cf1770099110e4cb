//! Owners of an object that are named twice.

use std::collections::HashSet;

use object_model::meta::{Meta, MetaMut};
use serde_json::Value;

use crate::context::Warnings;

/// When an owner was found to be named twice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In the object that the client sent.
    Asked,
    /// In what patches and admission have made of it.
    Admitted,
}

/// Leaves each owner once, and warns of those that were there again.
pub fn told_once(object: &mut Value, when: When, warnings: &Warnings) {
    let owners = Meta::of(object).get("ownerReferences").and_then(Value::as_array);
    let Some(owners) = owners.filter(|owners| owners.len() > 1) else { return };
    let mut seen = HashSet::new();
    let (kept, again): (Vec<&Value>, Vec<&Value>) = owners.iter().partition(|owner| seen.insert(owner.to_string()));
    if again.is_empty() {
        return;
    }
    let after = if when == When::Admitted { " after mutating admission happens" } else { "" };
    let again: Vec<&str> = again.iter().map(|owner| owner["uid"].as_str().unwrap_or_default()).collect();
    warnings.add(format!(
        ".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in 1.20+, and may \
         reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        again.join(", ")
    ));
    let kept = kept.into_iter().cloned().collect();
    if let Some(fields) = object.as_object_mut() {
        MetaMut::of(fields).set_list("ownerReferences", kept);
    }
}
