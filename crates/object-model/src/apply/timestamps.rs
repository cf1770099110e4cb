//! A write that changes nothing must not change times either, or it would make a revision.

use serde_json::Value;

use super::element::same;
use crate::value::Fields;

/// Puts the old times back where an object differs from the stored one in nothing else.
pub fn keep_times(new: &mut Value, old: &Value) {
    let list = |object| Fields::at(object, &["metadata", "managedFields"]).and_then(Value::as_array);
    let (Some(before), Some(after)) = (list(old), list(new)) else { return };
    let same_but_time = |(a, b): (&Value, &Value)| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            let rest = |map: &crate::value::Object| map.iter().filter(|(name, _)| *name != "time").count();
            rest(a) == rest(b)
                && a.iter().filter(|(name, _)| *name != "time").all(|(name, value)| b.get(name) == Some(value))
        }
        _ => a == b,
    };
    if before == after || before.len() != after.len() || !before.iter().zip(after).all(same_but_time) {
        return;
    }
    if same_beside_managers(new, old)
        && let (Some(before), Some(slot)) = (list(old).cloned(), new.pointer_mut("/metadata/managedFields"))
    {
        *slot = Value::Array(before);
    }
}

fn same_beside_managers(a: &Value, b: &Value) -> bool {
    let same_but = |skip: &str, a: Option<&Value>, b: Option<&Value>| {
        let (Some(a), Some(b)) = (a.and_then(Value::as_object), b.and_then(Value::as_object)) else { return false };
        a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| name == skip || same(a, b)))
    };
    same_but("metadata", Some(a), Some(b)) && same_but("managedFields", a.get("metadata"), b.get("metadata"))
}
