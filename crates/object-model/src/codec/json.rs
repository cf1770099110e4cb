//! JSON as Kubernetes reads and writes it.
//!
//! Numbers without point and exponent that fit in 64 bits are integers, all others floats. Field names are taken as
//! they are, and of a name that is there twice the last counts. Bytes that are no UTF-8 and halves of surrogate pairs
//! read as U+FFFD, as in Go. Written JSON is compact, its names sorted, and `<`, `>` and `&` are escaped as Go does.

mod read;
mod write;

use serde_json::Value;

pub use read::{BadJson, in_order, read, read_strict};
pub use write::{to_string, to_vec, write};

/// What Go's reader calls a value in its complaints.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
pub(in crate::codec) mod tests;
