//! When two values say the same.
//!
//! Canonical values differ in writing only where a quantity has two spellings (`1Gi`, `1073741824`) and where an empty
//! list or map may also be absent.

use object_model::quantity::Quantity;
use serde_json::Value;

/// Fields that hold a quantity, or a map of them.
const QUANTITIES: &[&str] = &[
    "allocatable",
    "allocatedResources",
    "capacity",
    "default",
    "defaultRequest",
    "divisor",
    "hard",
    "limits",
    "max",
    "maxLimitRequestRatio",
    "min",
    "overhead",
    "podFixed",
    "requests",
    "sizeLimit",
    "used",
];

/// Do these say the same?
pub fn same(a: &Value, b: &Value) -> bool {
    compare(a, b, false)
}

/// Do the fields of this name say the same in both objects?
pub fn same_at(a: &Value, b: &Value, name: &str) -> bool {
    compare(a.get(name).unwrap_or(&Value::Null), b.get(name).unwrap_or(&Value::Null), QUANTITIES.contains(&name))
}

fn compare(a: &Value, b: &Value, quantities: bool) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let field = |name: &str| quantities || QUANTITIES.contains(&name);
            a.iter().all(|(k, v)| compare(v, b.get(k).unwrap_or(&Value::Null), field(k)))
                && b.iter().all(|(k, v)| a.contains_key(k) || compare(&Value::Null, v, field(k)))
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| compare(a, b, false)),
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        (Value::String(a), Value::String(b)) if quantities && a != b => {
            matches!((a.parse::<Quantity>(), b.parse::<Quantity>()), (Ok(a), Ok(b)) if a == b)
        }
        _ => a == b,
    }
}
