//! Values at run time.
//!
//! What comes from an object is a reference into its JSON, wrapped when it is looked at and never copied; the declared
//! type says whether a text is a moment, a length of time or bytes. What an expression builds is shared by counting.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use object_model::quantity::Quantity;
use object_model::time::{Duration, Time};
use serde_json::Value as Json;

use crate::library::authorizer::{Authority, Decision, GroupCheck, PathCheck, ResourceCheck};
use crate::library::format::NamedFormat;
use crate::library::network::Cidr;
use crate::library::semver::Version;
use crate::library::url::Url;
use crate::types::{LibraryType, ObjectType, Type};

#[derive(Clone, Debug)]
pub enum Value<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'v>),
    Bytes(Arc<[u8]>),
    Timestamp(Time),
    Duration(Duration),
    List(List<'v>),
    Map(Map<'v>),
    Optional(Option<Arc<Value<'v>>>),
    /// A type, by name.
    Type(&'static str),
    Library(LibraryValue),
}

/// Values that only functions of a library make and take.
#[derive(Clone, Debug)]
pub enum LibraryValue {
    Url(Arc<Url>),
    Ip(IpAddr),
    Cidr(Cidr),
    Quantity(Quantity),
    Semver(Arc<Version>),
    Format(&'static NamedFormat),
    Authorizer(Authority),
    PathCheck(Arc<PathCheck>),
    GroupCheck(Arc<GroupCheck>),
    ResourceCheck(Arc<ResourceCheck>),
    Decision(Arc<Decision>),
}

#[derive(Clone, Debug)]
pub enum Text<'v> {
    Borrowed(&'v str),
    Shared(Arc<str>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub enum List<'v> {
    Built(Arc<Vec<Value<'v>>>),
    Json(&'v [Json], Arc<Type>),
}

#[derive(Clone, Debug)]
pub enum Map<'v> {
    Built(Arc<BTreeMap<Key, (Value<'v>, Value<'v>)>>),
    Json(&'v serde_json::Map<String, Json>, Arc<Type>),
    Object(&'v serde_json::Map<String, Json>, Arc<ObjectType>),
}

/// A key of a map: numbers of all types are one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Bool(bool),
    Number(i128),
    String(Arc<str>),
}

static NULL: Json = Json::Null;

impl<'v> Value<'v> {
    /// Any JSON, by its looks. Whole numbers are signed.
    pub fn json(value: &'v Json) -> Self {
        Self::typed(value, &Type::Dyn)
    }

    /// JSON of a declared type. What does not look like its type is taken by its looks.
    pub fn typed(value: &'v Json, kind: &Type) -> Self {
        match (value, kind) {
            (Json::Null, _) => Value::Null,
            (Json::Bool(truth), _) => Value::Bool(*truth),
            (Json::Number(number), kind) => match (number.as_i64(), kind) {
                (Some(number), Type::Double) => Value::Double(number as f64),
                (Some(number), _) => Value::Int(number),
                (None, _) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            (Json::String(text), kind) => Self::typed_text(text, kind),
            (Json::Array(items), Type::List(of)) => Value::List(List::Json(items, of.clone())),
            (Json::Array(items), _) => Value::List(List::Json(items, Arc::new(Type::Dyn))),
            (Json::Object(fields), Type::Object(object)) => Value::Map(Map::Object(fields, object.clone())),
            (Json::Object(fields), Type::Map(_, of)) => Value::Map(Map::Json(fields, of.clone())),
            (Json::Object(fields), _) => Value::Map(Map::Json(fields, Arc::new(Type::Dyn))),
        }
    }

    fn typed_text(text: &'v str, kind: &Type) -> Self {
        let typed = match kind {
            Type::Timestamp => Time::parse(text).ok().map(Value::Timestamp),
            Type::Duration => Duration::parse(text).ok().map(Value::Duration),
            Type::Bytes => {
                base64::engine::general_purpose::STANDARD.decode(text).ok().map(|bytes| Value::Bytes(bytes.into()))
            }
            _ => None,
        };
        typed.unwrap_or(Value::String(Text::Borrowed(text)))
    }

    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Value::String(Text::Shared(text.into()))
    }

    pub fn list(values: Vec<Value<'v>>) -> Self {
        Value::List(List::Built(Arc::new(values)))
    }

    pub fn texts<T: Into<Arc<str>>>(texts: impl IntoIterator<Item = T>) -> Self {
        Self::list(texts.into_iter().map(Value::text).collect())
    }

    pub fn some(value: Value<'v>) -> Self {
        Value::Optional(Some(Arc::new(value)))
    }

    /// As JSON, where it has such a form.
    pub fn to_json(&self) -> Option<Json> {
        Some(match self {
            Value::Null => Json::Null,
            Value::Bool(truth) => Json::Bool(*truth),
            Value::Int(number) => (*number).into(),
            Value::Uint(number) => (*number).into(),
            Value::Double(number) => serde_json::Number::from_f64(*number)?.into(),
            Value::String(text) => Json::String(text.to_string()),
            Value::Bytes(bytes) => Json::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
            Value::Timestamp(time) => Json::String(timestamp_text(*time)),
            Value::Duration(duration) => Json::String(duration_text(*duration)),
            Value::List(list) => Json::Array(list.iter().map(|value| value.to_json()).collect::<Option<_>>()?),
            Value::Map(map) => {
                let mut fields = serde_json::Map::new();
                for (key, value) in map.iter() {
                    let Value::String(key) = key else { return None };
                    fields.insert(key.to_string(), value.to_json()?);
                }
                Json::Object(fields)
            }
            Value::Optional(Some(value)) => value.to_json()?,
            Value::Optional(None) => Json::Null,
            Value::Library(LibraryValue::Quantity(quantity)) => Json::String(quantity.to_string()),
            Value::Type(_) | Value::Library(_) => return None,
        })
    }

    pub(crate) fn key(&self) -> Option<Key> {
        Some(match self {
            Value::Bool(truth) => Key::Bool(*truth),
            Value::Int(number) => Key::Number((*number).into()),
            Value::Uint(number) => Key::Number((*number).into()),
            Value::Double(number) if number.fract() == 0.0 && number.abs() < 1e19 => Key::Number(*number as i128),
            Value::String(text) => Key::String(match text {
                Text::Borrowed(text) => (*text).into(),
                Text::Shared(text) => text.clone(),
            }),
            _ => return None,
        })
    }

    /// The number of characters, bytes or elements, where it has such.
    pub(crate) fn size(&self) -> Option<u64> {
        Some(match self {
            Value::String(text) => text.chars().count() as u64,
            Value::Bytes(bytes) => bytes.len() as u64,
            Value::List(list) => list.len() as u64,
            Value::Map(map) => map.len() as u64,
            // How many bytes an address has.
            Value::Library(LibraryValue::Ip(address)) => {
                if address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            Value::Library(LibraryValue::Cidr(cidr)) => {
                if cidr.address.is_ipv4() {
                    4
                } else {
                    16
                }
            }
            _ => return None,
        })
    }

    /// The name of its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Uint(_) => "uint",
            Value::Double(_) => "double",
            Value::String(_) => "string",
            Value::Bytes(_) => "bytes",
            Value::Timestamp(_) => "google.protobuf.Timestamp",
            Value::Duration(_) => "google.protobuf.Duration",
            Value::List(_) => "list",
            Value::Map(_) => "map",
            Value::Optional(_) => "optional_type",
            Value::Type(_) => "type",
            Value::Library(value) => value.kind().name(),
        }
    }

    /// Can a function that takes this type take this value? Looks at the outside only.
    pub(crate) fn may_be(&self, kind: &Type) -> bool {
        match (kind, self) {
            (Type::Dyn | Type::Open(_), _)
            | (Type::Bool, Value::Bool(_))
            | (Type::Int, Value::Int(_))
            | (Type::Uint, Value::Uint(_))
            | (Type::Double, Value::Double(_))
            | (Type::String, Value::String(_))
            | (Type::Bytes, Value::Bytes(_))
            | (Type::Timestamp, Value::Timestamp(_))
            | (Type::Duration, Value::Duration(_))
            | (Type::List(_), Value::List(_))
            | (Type::Map(..), Value::Map(_))
            | (Type::Optional(_), Value::Optional(_))
            | (Type::Type(_), Value::Type(_)) => true,
            (Type::Library(kind), Value::Library(value)) => value.kind() == *kind,
            _ => false,
        }
    }
}

impl LibraryValue {
    pub(crate) fn kind(&self) -> LibraryType {
        match self {
            Self::Url(_) => LibraryType::Url,
            Self::Ip(_) => LibraryType::Ip,
            Self::Cidr(_) => LibraryType::Cidr,
            Self::Quantity(_) => LibraryType::Quantity,
            Self::Semver(_) => LibraryType::Semver,
            Self::Format(_) => LibraryType::Format,
            Self::Authorizer(_) => LibraryType::Authorizer,
            Self::PathCheck(_) => LibraryType::PathCheck,
            Self::GroupCheck(_) => LibraryType::GroupCheck,
            Self::ResourceCheck(_) => LibraryType::ResourceCheck,
            Self::Decision(_) => LibraryType::Decision,
        }
    }
}

impl<'v> List<'v> {
    pub fn len(&self) -> usize {
        match self {
            List::Built(values) => values.len(),
            List::Json(items, _) => items.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, index: usize) -> Option<Value<'v>> {
        match self {
            List::Built(values) => values.get(index).cloned(),
            List::Json(items, kind) => items.get(index).map(|item| Value::typed(item, kind)),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = Value<'v>> {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The same list, by where it is in memory?
    pub(crate) fn is(&self, other: &List<'_>) -> bool {
        match (self, other) {
            (List::Built(a), List::Built(b)) => std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            (List::Json(a, _), List::Json(b, _)) => std::ptr::addr_eq(a.as_ptr(), b.as_ptr()) && a.len() == b.len(),
            _ => false,
        }
    }
}

impl<'v> Map<'v> {
    pub fn len(&self) -> usize {
        match self {
            Map::Built(entries) => entries.len(),
            Map::Json(fields, _) | Map::Object(fields, _) => fields.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, key: &Value<'_>) -> Option<Value<'v>> {
        match (self, key) {
            (_, Value::String(name)) => self.field(name),
            (Map::Built(entries), key) => entries.get(&key.key()?).map(|(_, value)| value.clone()),
            _ => None,
        }
    }

    /// A null in an object counts as absent where fields are declared.
    pub fn field(&self, name: &str) -> Option<Value<'v>> {
        match self {
            Map::Built(entries) => entries.get(&Key::String(name.into())).map(|(_, value)| value.clone()),
            Map::Json(fields, kind) => fields.get(name).map(|value| Value::typed(value, kind)),
            Map::Object(fields, object) => {
                let value = fields.get(name).unwrap_or(&NULL);
                let kind = object.field(name)?;
                (!value.is_null()).then(|| Value::typed(value, &kind))
            }
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = (Value<'v>, Value<'v>)> + '_> {
        let text = |name: &'v String| Value::String(Text::Borrowed(name));
        match self {
            Map::Built(entries) => Box::new(entries.values().cloned()),
            Map::Json(fields, kind) => {
                Box::new(fields.iter().map(move |(name, value)| (text(name), Value::typed(value, kind))))
            }
            Map::Object(fields, _) => {
                Box::new(fields.keys().filter_map(move |name| self.field(name).map(|value| (text(name), value))))
            }
        }
    }
}

/// The types that expressions can name.
pub(crate) fn type_named(name: &str) -> Option<(&'static str, Type)> {
    let dynamic = || Arc::new(Type::Dyn);
    Some(match name {
        "bool" => ("bool", Type::Bool),
        "bytes" => ("bytes", Type::Bytes),
        "double" => ("double", Type::Double),
        "google.protobuf.Duration" => ("google.protobuf.Duration", Type::Duration),
        "google.protobuf.Timestamp" => ("google.protobuf.Timestamp", Type::Timestamp),
        "int" => ("int", Type::Int),
        "list" => ("list", Type::List(dynamic())),
        "map" => ("map", Type::Map(dynamic(), dynamic())),
        "null_type" => ("null_type", Type::Null),
        "string" => ("string", Type::String),
        "type" => ("type", Type::Type(None)),
        "uint" => ("uint", Type::Uint),
        "optional_type" => ("optional_type", Type::Optional(dynamic())),
        "net.IP" => ("net.IP", Type::Library(LibraryType::Ip)),
        "net.CIDR" => ("net.CIDR", Type::Library(LibraryType::Cidr)),
        _ => return None,
    })
}

/// RFC 3339 with as much of a fraction as there is.
pub(crate) fn timestamp_text(time: Time) -> String {
    let whole = time.to_string();
    match time.subsecond_nanos() {
        0 => whole,
        nanos => format!("{}.{}Z", whole.trim_end_matches('Z'), format!("{nanos:09}").trim_end_matches('0')),
    }
}

/// In seconds: `90s`, `0.5s`.
pub(crate) fn duration_text(duration: Duration) -> String {
    let nanos = duration.nanos();
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    match rest {
        0 => format!("{sign}{seconds}s"),
        _ => format!("{sign}{seconds}.{}s", format!("{rest:09}").trim_end_matches('0')),
    }
}
