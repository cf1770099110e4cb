//! One step of a path into an object: a field, an item of a list by its key, by its value or by its place.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Number, Value};

use super::json;
use crate::go_text;

/// A step of a path. Ordered as Kubernetes orders them: fields, then keys, values and indexes.
#[derive(Clone, Debug)]
pub enum Element {
    /// A field of a struct or an entry of a map.
    Field(Box<str>),
    /// An item of an associative list: its key fields, sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    /// An item of a set.
    Value(Box<Value>),
    /// An item by its place.
    Index(i64),
}

/// A FieldsV1 key that is no path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadElement {
    #[error("key must be 2 characters long: {0}")]
    Short(String),
    #[error("missing colon: {0}")]
    NoColon(String),
    #[error("unknown path element type: {0}")]
    Unknown(String),
    #[error("{0}: {1}")]
    Content(String, String),
}

impl Element {
    pub fn field(name: &str) -> Self {
        Element::Field(name.into())
    }

    /// The item whose key fields have these values.
    pub fn key(fields: impl IntoIterator<Item = (Box<str>, Value)>) -> Self {
        let mut fields: Vec<_> = fields.into_iter().collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Element::Key(fields.into())
    }

    pub fn value(value: Value) -> Self {
        Element::Value(Box::new(value))
    }

    /// Reads a key of FieldsV1, such as `f:spec` or `k:{"name":"web"}`.
    pub fn parse(text: &str) -> Result<Self, BadElement> {
        let bad = |why: &dyn fmt::Display| BadElement::Content(text.to_owned(), why.to_string());
        if text.len() < 2 {
            return Err(BadElement::Short(text.to_owned()));
        }
        let Some((kind, rest)) = text.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(BadElement::NoColon(text.to_owned()));
        };
        match kind {
            "f" => Ok(Element::field(rest)),
            "v" => serde_json::from_str(rest).map(Element::value).map_err(|e| bad(&e)),
            "k" => match serde_json::from_str(rest) {
                Ok(Value::Object(map)) => Ok(Element::key(map.into_iter().map(|(k, v)| (k.into(), v)))),
                Ok(_) => Err(bad(&"a key must be an object")),
                Err(e) => Err(bad(&e)),
            },
            "i" => rest.parse().map(Element::Index).map_err(|e| bad(&e)),
            _ => Err(BadElement::Unknown(text.to_owned())),
        }
    }

    /// The key of FieldsV1.
    pub fn encoded(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Key(fields) => {
                let mut out = String::from("k:");
                json::write_object(fields.iter().map(|(name, value)| (name, value)), &mut out);
                out
            }
            Element::Value(value) => {
                let mut out = String::from("v:");
                json::write(value, &mut out);
                out
            }
            Element::Index(place) => format!("i:{place}"),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Element::Field(_) => 0,
            Element::Key(_) => 1,
            Element::Value(_) => 2,
            Element::Index(_) => 3,
        }
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Element::Field(a), Element::Field(b)) => a.cmp(b),
            (Element::Key(a), Element::Key(b)) => {
                let fields = a.iter().zip(b.iter());
                let mut orders = fields.map(|(a, b)| a.0.cmp(&b.0).then_with(|| order(&a.1, &b.1)));
                orders.find(|o| o.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
            }
            (Element::Value(a), Element::Value(b)) => order(a, b),
            (Element::Index(a), Element::Index(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Element {}

/// As Kubernetes writes paths in conflicts: `.spec`, `[name="web"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(fields) => {
                f.write_str("[")?;
                for (i, (name, value)) in fields.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", shown(value))?;
                }
                f.write_str("]")
            }
            Element::Value(value) => write!(f, "[={}]", shown(value)),
            Element::Index(place) => write!(f, "[{place}]"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quote(text),
        Value::Number(number) if number.is_f64() => go_text::float(float(number)),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(",")),
        Value::Object(map) => map.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect(),
        scalar => scalar.to_string(),
    }
}

/// A total order of values of any type; numbers compare as numbers, whether they are integers or floats.
fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let differ = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|o| o.is_ne());
            differ.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let differ =
                a.iter().zip(b).map(|((an, av), (bn, bv))| an.cmp(bn).then_with(|| order(av, bv))).find(|o| o.is_ne());
            differ.unwrap_or_else(|| a.len().cmp(&b.len()))
        }
        (a, b) => kind(a).cmp(&kind(b)),
    }
}

fn kind(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn order_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => order_whole(a, float(b)),
        (None, Some(b)) => order_whole(b, float(a)).reverse(),
        (None, None) => float(a).total_cmp(&float(b)),
    }
}

/// A whole number beside a float, exactly: as floats, neighbours beyond 2^53 would equal the same float and not each
/// other, which is no order.
fn order_whole(whole: i128, float: f64) -> Ordering {
    let below = float.floor();
    // Whole numbers have 64 bits; floats beyond 128 stay beyond them.
    whole.cmp(&(below as i128)).then(if float > below { Ordering::Less } else { Ordering::Equal })
}

fn float(number: &Number) -> f64 {
    // A negative zero is equal to zero, in sets too.
    number.as_f64().unwrap_or_default() + 0.0
}

/// Are two values the same to server-side apply? Numbers are equal by what they count, not by how they are written.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => order_numbers(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}
