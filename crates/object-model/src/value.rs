//! Reading values without ceremony.
//!
//! Objects are `serde_json` values on the generic road. Their structure has been checked against the schema before
//! anybody reads them through this trait, so a missing field and a field of the wrong type read as the zero value.

use serde_json::{Map, Value};

/// A JSON object.
pub type Object = Map<String, Value>;

/// Field access in the style of a typed struct: absent reads as zero.
pub trait Fields {
    fn field(&self, name: &str) -> Option<&Value>;

    /// Is the field there and not null?
    fn has(&self, name: &str) -> bool {
        self.field(name).is_some_and(|v| !v.is_null())
    }

    /// Text, or `""`.
    fn text(&self, name: &str) -> &str {
        self.field(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn int(&self, name: &str) -> Option<i64> {
        self.field(name).and_then(Value::as_i64)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.field(name).and_then(Value::as_bool)
    }

    /// The items of a list, or none.
    fn items(&self, name: &str) -> &[Value] {
        self.field(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The entries of an object or map, in key order, or none.
    fn entries<'a>(&'a self, name: &str) -> Box<dyn Iterator<Item = (&'a String, &'a Value)> + 'a> {
        match self.field(name).and_then(Value::as_object) {
            Some(map) => Box::new(map.iter()),
            None => Box::new(std::iter::empty()),
        }
    }

    /// A nested object, if it is there.
    fn object(&self, name: &str) -> Option<&Value> {
        self.field(name).filter(|v| v.is_object())
    }

    /// Text at the end of a path of nested objects, or `""`.
    fn text_at(&self, path: &[&str]) -> &str {
        let Some((first, rest)) = path.split_first() else { return "" };
        match rest {
            [] => self.text(first),
            rest => self.field(first).map(|v| v.text_at(rest)).unwrap_or_default(),
        }
    }

    /// The value at the end of a path of nested objects.
    fn at(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        let value = self.field(first)?;
        if rest.is_empty() { Some(value) } else { value.at(rest) }
    }
}

impl Fields for Value {
    fn field(&self, name: &str) -> Option<&Value> {
        self.as_object()?.get(name)
    }
}

impl Fields for Object {
    fn field(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

/// How many levels of lists and objects there are.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// About how many bytes a value takes in memory.
pub(crate) fn weight(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(map) => map.iter().map(|(key, value)| size_of::<String>() + key.len() + weight(value)).sum(),
            _ => 0,
        }
}
