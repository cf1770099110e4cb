//! Values as Go prints them: Kubernetes quotes parts of a patch in its errors with Go's `%v`.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use crate::go_text;

/// Displays a JSON value as Go's `%v` shows its decoded form: `map[a:1 b:[x y] c:<nil>]`.
pub struct GoPrint<'a>(pub &'a Value);

impl Display for GoPrint<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::Bool(b) => b.fmt(f),
            Value::Number(n) => match n.as_f64().filter(|_| n.is_f64()) {
                Some(float) => f.write_str(&go_text::float(float)),
                None => n.fmt(f),
            },
            Value::String(s) => f.write_str(s),
            Value::Array(items) => list(items, f),
            Value::Object(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_unstable_by_key(|(k, _)| *k);
                f.write_str("map[")?;
                for (i, (k, v)) in entries.into_iter().enumerate() {
                    write!(f, "{}{k}:{}", if i == 0 { "" } else { " " }, GoPrint(v))?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A list as Go prints it, for lists that are not wrapped in a value.
pub(super) struct GoList<'a>(pub &'a [Value]);

impl Display for GoList<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        list(self.0, f)
    }
}

fn list(items: &[Value], f: &mut Formatter<'_>) -> fmt::Result {
    f.write_str("[")?;
    for (i, v) in items.iter().enumerate() {
        write!(f, "{}{}", if i == 0 { "" } else { " " }, GoPrint(v))?;
    }
    f.write_str("]")
}

/// The Go type a JSON value decodes to, as errors about wrong types name it.
pub(super) fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn prints_like_go() {
        let cases = [
            (json!({"b": [1, "x", null], "a": {"c": true}, "z": {}}), "map[a:map[c:true] b:[1 x <nil>] z:map[]]"),
            (json!([1.5, 1e21, 1e-5, 0.0001, 1e15 as i64]), "[1.5 1e+21 1e-05 0.0001 1000000000000000]"),
            (json!("plain"), "plain"),
        ];
        for (value, text) in cases {
            assert_eq!(GoPrint(&value).to_string(), text);
        }
    }
}
