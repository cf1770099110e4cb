//! Merging a patch into an object, or a patch into another patch.

use std::collections::HashSet;

use serde_json::Value;

use super::error::StrategicError;
use super::lookup::Member;
use super::{DELETE, DELETE_FROM_LIST, DIRECTIVE, ELEMENT_ORDER, REPLACE, RETAIN_KEYS, lists};
use crate::schema::Ref;
use crate::value::Object;

/// What the patch is merged into.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// An object: directives are carried out, nulls delete.
    Apply,
    /// Another patch: directives and nulls are kept.
    Combine,
}

pub(super) fn objects(
    schema: Ref<'_>,
    mut original: Object,
    patch: &Object,
    mode: Mode,
) -> Result<Object, StrategicError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some(REPLACE) => {
                Ok(patch.iter().filter(|(k, _)| *k != DIRECTIVE).map(|(k, v)| (k.clone(), v.clone())).collect())
            }
            Some(DELETE) => Ok(Object::new()),
            _ => Err(StrategicError::unknown_directive(patch)),
        };
    }
    if let Some(keys) = patch.get(RETAIN_KEYS) {
        retain_keys(&mut original, patch, keys, mode)?;
    }
    let ordered = ordered_lists(schema, &mut original, patch, mode)?;
    for (key, value) in patch {
        if key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || ordered.contains(key.as_str()) {
            continue;
        }
        let deletes = key.starts_with(DELETE_FROM_LIST);
        if deletes && mode == Mode::Combine {
            original.insert(key.clone(), value.clone());
            continue;
        }
        let name =
            if deletes { parallel_field(key, DELETE_FROM_LIST).ok_or(StrategicError::BadDeleteList)? } else { key };
        field(schema, &mut original, name, value, deletes, mode)?;
    }
    Ok(original)
}

/// Merges one field of a patch.
fn field(
    schema: Ref<'_>,
    original: &mut Object,
    name: &str,
    value: &Value,
    deletes: bool,
    mode: Mode,
) -> Result<(), StrategicError> {
    let merged = match (original.get_mut(name), value) {
        (_, Value::Null) if mode == Mode::Apply => None,
        (Some(Value::Object(old)), Value::Object(patch)) => {
            let member = Member::object(schema, name)?;
            Some(Value::Object(match member.patch.replace {
                true => patch.clone(),
                false => objects(member.schema, std::mem::take(old), patch, mode)?,
            }))
        }
        (Some(Value::Array(old)), Value::Array(patch)) => {
            let member = Member::list(schema, name)?;
            let old = std::mem::take(old);
            Some(Value::Array(match deletes {
                true => lists::delete(&member, old, patch, mode)?,
                false => lists::merge(&member, old, patch, mode)?,
            }))
        }
        // There is nothing to delete from.
        (None, _) if deletes => return Ok(()),
        (Some(old), value) if deletes && !same_scalar_type(old, value) => return Ok(()),
        (_, value) => adopted(value, mode),
    };
    match merged {
        Some(value) => original.insert(name.to_owned(), value),
        None => original.remove(name),
    };
    Ok(())
}

fn same_scalar_type(a: &Value, b: &Value) -> bool {
    !a.is_null() && lists::ItemKind::of(a) == lists::ItemKind::of(b)
}

/// A patch value that has no counterpart: itself, without the objects that only carry a directive and, when it becomes
/// part of an object, without nulls.
pub(super) fn adopted(value: &Value, mode: Mode) -> Option<Value> {
    let strip = mode == Mode::Apply;
    match value {
        Value::Object(map) => {
            if map.get(DIRECTIVE).is_some_and(|d| !(strip && d.is_null())) {
                return None;
            }
            let kept = map.iter().filter(|(_, v)| !(strip && v.is_null()));
            Some(kept.filter_map(|(k, v)| Some((k.clone(), adopted(v, mode)?))).collect())
        }
        Value::Array(items) => Some(items.iter().filter_map(|v| adopted(v, mode)).collect()),
        scalar => Some(scalar.clone()),
    }
}

/// Drops the fields that the patch does not want to retain. Every field it sets must be among the retained.
fn retain_keys(original: &mut Object, patch: &Object, keys: &Value, mode: Mode) -> Result<(), StrategicError> {
    if mode == Mode::Combine {
        return combine_directive(original, RETAIN_KEYS, keys, StrategicError::BadRetainKeys);
    }
    let keys = keys.as_array().ok_or(StrategicError::BadRetainKeys)?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let exempt = |k: &str| k == RETAIN_KEYS || k.starts_with(DELETE_FROM_LIST) || k.starts_with(ELEMENT_ORDER);
    if patch.iter().any(|(k, v)| !v.is_null() && !exempt(k) && !keys.contains(k.as_str())) {
        return Err(StrategicError::BadRetainKeys);
    }
    original.retain(|k, _| keys.contains(k.as_str()));
    Ok(())
}

/// Two patches that are combined must not contradict each other in a directive.
fn combine_directive(
    original: &mut Object,
    key: &str,
    value: &Value,
    contradiction: StrategicError,
) -> Result<(), StrategicError> {
    match original.get(key) {
        Some(old) if old != value => Err(contradiction),
        Some(_) => Ok(()),
        None => {
            original.insert(key.to_owned(), value.clone());
            Ok(())
        }
    }
}

/// Merges the lists that come with an order, and says which those were.
fn ordered_lists<'p>(
    schema: Ref<'_>,
    original: &mut Object,
    patch: &'p Object,
    mode: Mode,
) -> Result<HashSet<&'p str>, StrategicError> {
    let mut done = HashSet::new();
    for (key, order) in patch.iter().filter(|(k, _)| k.starts_with(ELEMENT_ORDER)) {
        if mode == Mode::Combine {
            combine_directive(original, key, order, StrategicError::BadElementOrder)?;
        }
        let order = order.as_array().ok_or_else(|| StrategicError::not_a_list(order))?;
        let name = parallel_field(key, ELEMENT_ORDER).ok_or(StrategicError::BadElementOrder)?;
        let changes = patch.get(name).map(list).transpose()?;
        let live = original.get(name).map(list).transpose()?;
        let member = Member::list(schema, name)?;
        lists::check_order(&member, changes.map(Vec::as_slice).unwrap_or_default(), order)?;
        if live.is_none() && changes.is_none() {
            continue;
        }
        let live = match original.get_mut(name) {
            Some(Value::Array(items)) => Some(std::mem::take(items)),
            _ => None,
        };
        let merged = lists::merge_in_order(&member, live, changes.map(Vec::as_slice), order, mode)?;
        original.insert(name.to_owned(), Value::Array(merged));
        done.insert(name);
    }
    Ok(done)
}

fn list(value: &Value) -> Result<&Vec<Value>, StrategicError> {
    value.as_array().ok_or_else(|| StrategicError::not_a_list(value))
}

/// The field that a parallel list such as `$setElementOrder/containers` belongs to.
fn parallel_field<'k>(key: &'k str, prefix: &str) -> Option<&'k str> {
    key.strip_prefix(prefix)?.strip_prefix('/')
}
