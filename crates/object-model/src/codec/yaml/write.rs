//! Values as YAML, in block style and with keys in order, as kubectl prints them.

use serde_json::Value;

/// One document, ending in a line break.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => object(fields, 0, &mut out),
        Value::Array(items) if !items.is_empty() => list(items, 0, &mut out),
        other => {
            scalar(other, &mut out);
            out.push('\n');
        }
    }
    out
}

fn object(fields: &serde_json::Map<String, Value>, indent: usize, out: &mut String) {
    for (i, (key, value)) in fields.iter().enumerate() {
        if i > 0 {
            pad(indent, out);
        }
        text(key, out);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                pad(indent + 2, out);
                object(inner, indent + 2, out);
            }
            // Lists stand under their key, not inside of it.
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                pad(indent, out);
                list(items, indent, out);
            }
            other => {
                out.push(' ');
                scalar(other, out);
                out.push('\n');
            }
        }
    }
}

fn list(items: &[Value], indent: usize, out: &mut String) {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            pad(indent, out);
        }
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => object(fields, indent + 2, out),
            Value::Array(inner) if !inner.is_empty() => list(inner, indent + 2, out),
            other => {
                scalar(other, out);
                out.push('\n');
            }
        }
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value, out: &mut String) {
    match value {
        Value::String(string) => text(string, out),
        // The empty ones are the same in JSON.
        other => out.push_str(&other.to_string()),
    }
}

/// Plain where every reader takes it for text, else in double quotes as in JSON.
fn text(string: &str, out: &mut String) {
    let starts_plain = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let stays_plain = string.chars().all(|c| c.is_ascii_alphanumeric() || "-_./@+=~".contains(c));
    if starts_plain && stays_plain && matches!(super::read(string.as_bytes()), Ok(Value::String(_))) {
        out.push_str(string);
    } else {
        out.push_str(&Value::String(string.to_owned()).to_string());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_like_kubectl() {
        let object = json!({"a": {"b": [{"c": 1, "d": "yes"}, []], "e": {}}, "f": "x y", "g": null, "h": "1"});
        assert_eq!(
            write(&object),
            "a:\n  b:\n  - c: 1\n    d: \"yes\"\n  - []\n  e: {}\nf: \"x y\"\ng: null\nh: \"1\"\n"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
            "[a-z0-9.:-]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z0-9 :]{1,5}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn what_is_written_reads_back(value in value()) {
            prop_assert_eq!(super::super::read(write(&value).as_bytes()).unwrap(), value);
        }
    }
}
