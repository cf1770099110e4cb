//! Do two patches change the same field to different values?

use std::collections::HashMap;

use serde_json::Value;

use super::error::StrategicError;
use super::lists::{ItemKind, identity};
use super::lookup::Member;
use super::{DELETE_FROM_LIST, DIRECTIVE, ELEMENT_ORDER, RETAIN_KEYS};
use crate::schema::Ref;
use crate::value::Object;

/// Compares two strategic merge patches of the same kind of object. Lists of scalars that are merged never conflict.
pub fn have_conflicts(schema: Ref<'_>, left: &Object, right: &Object) -> Result<bool, StrategicError> {
    // A directive concerns the whole object, so it must be the same on both sides.
    if left.get(DIRECTIVE) != right.get(DIRECTIVE) {
        return Ok(true);
    }
    for (name, l) in left.iter().filter(|(name, _)| !is_directive(name)) {
        let conflict = match (l, right.get(name)) {
            (_, None) => false,
            (Value::Object(l), Some(Value::Object(r))) => {
                let member = Member::object(schema, name)?;
                match member.patch.replace {
                    true => l.get(DIRECTIVE) != r.get(DIRECTIVE),
                    false => have_conflicts(member.schema, l, r)?,
                }
            }
            (Value::Array(l), Some(Value::Array(r))) => list_conflicts(&Member::list(schema, name)?, l, r)?,
            (l, Some(r)) => l != r,
        };
        if conflict {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Is it a key that says how to patch, not what?
fn is_directive(name: &str) -> bool {
    name == DIRECTIVE || name == RETAIN_KEYS || name.starts_with(DELETE_FROM_LIST) || name.starts_with(ELEMENT_ORDER)
}

fn list_conflicts(member: &Member<'_>, left: &[Value], right: &[Value]) -> Result<bool, StrategicError> {
    if left.is_empty() && right.is_empty() {
        return Ok(false);
    }
    let kind = ItemKind::common([left, right])?;
    if member.patch.merge {
        if kind != ItemKind::Object {
            return Ok(false);
        }
        let key = member.merge_key().ok_or(StrategicError::NoDeclaredMergeKey)?;
        let mut rights = HashMap::new();
        for item in right {
            rights.insert(identity(item, Some(key))?, item);
        }
        for item in left {
            if let (Value::Object(l), Some(Value::Object(r))) = (item, rights.get(identity(item, Some(key))?))
                && have_conflicts(member.schema, l, r)?
            {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if kind != ItemKind::Object {
        return Ok(sorted(left) != sorted(right));
    }
    if left.len() != right.len() {
        return Ok(true);
    }
    for pair in left.iter().zip(right) {
        if let (Value::Object(l), Value::Object(r)) = pair
            && have_conflicts(member.schema, l, r)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Scalars whose order does not count.
fn sorted(items: &[Value]) -> Vec<String> {
    let mut texts: Vec<String> = items.iter().map(Value::to_string).collect();
    texts.sort();
    texts
}
