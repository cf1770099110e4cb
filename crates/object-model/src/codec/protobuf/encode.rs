//! From values to the wire.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::wire::{WireType, append_bytes, append_double, append_varint, put_message, put_tag, put_varint};
use super::{CLOSE, EncodeError, NoMessage, PREFIX};
use crate::codec::json;
use crate::schema::{Field, Member, MemberTarget, Ref, Scalar, Shape, Struct, Wire};
use crate::time::{Duration, Time};

type Outcome = Result<(), EncodeError>;

pub fn envelope<E>(
    out: &mut Vec<u8>,
    api_version: &str,
    kind: &str,
    object: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    type_meta(out, api_version, kind);
    put_message(out, 2, object)?;
    out.extend_from_slice(CLOSE);
    Ok(())
}

pub fn envelope_start(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(api_version.len() + kind.len() + 24);
    type_meta(&mut out, api_version, kind);
    put_tag(&mut out, 2, WireType::Bytes);
    put_varint(&mut out, length as u64);
    out
}

fn type_meta(out: &mut Vec<u8>, api_version: &str, kind: &str) {
    let mut names = Vec::with_capacity(api_version.len() + kind.len() + 4);
    append_bytes(&mut names, 1, api_version.as_bytes());
    append_bytes(&mut names, 2, kind.as_bytes());
    out.extend_from_slice(PREFIX);
    append_bytes(out, 1, &names);
}

/// The message of a struct, without tag and length.
pub fn message(at: Ref<'_>, value: &Value, out: &mut Vec<u8>) -> Outcome {
    let Shape::Struct(s) = at.shape() else { return Err(wrong(at, value, "type with a message")) };
    let Some(Wire::Members(all)) = at.facts().map(|f| &f.wire) else { return Err(no_message(s).into()) };
    if all.is_empty() && !s.fields.is_empty() {
        return Err(no_message(s).into());
    }
    let nothing = Map::new();
    let object = match value {
        Value::Object(object) => object,
        Value::Null => &nothing,
        _ => return Err(wrong(at, value, "object")),
    };
    members(at, s, all, object, out)
}

pub(super) fn no_message(s: &Struct) -> NoMessage {
    let mut words = s.name.rsplit('.');
    let name = words.next().unwrap_or_default();
    NoMessage(format!("*{}.{name}", words.next().unwrap_or_default()))
}

fn members(at: Ref<'_>, s: &Struct, members: &[Member], object: &Map<String, Value>, out: &mut Vec<u8>) -> Outcome {
    for member in members {
        match &member.target {
            MemberTarget::Field(index) => {
                let field = &s.fields[usize::from(*index)];
                let value = object.get(&*field.name).unwrap_or(&Value::Null);
                self::field(at.to(field.r#type), field, value, out)?;
            }
            MemberTarget::Embedded(_, inner) => {
                put_message(out, member.number, |out| self::members(at, s, inner, object, out))?;
            }
        }
    }
    Ok(())
}

/// A field with everything it repeats; nothing where Go has a nil.
fn field(at: Ref<'_>, field: &Field, value: &Value, out: &mut Vec<u8>) -> Outcome {
    let number = field.number;
    match at.shape() {
        Shape::List(_) if at.facts().is_some_and(|f| f.wire == Wire::Items) => match value {
            Value::Null => Ok(()),
            value => item(at, number, value, out),
        },
        Shape::List(list) => match value {
            Value::Null => Ok(()),
            Value::Array(items) => items.iter().try_for_each(|value| item(at.to(list.item), number, value, out)),
            _ => Err(wrong(at, value, "list")),
        },
        Shape::Map(map) => match value {
            Value::Null => Ok(()),
            Value::Object(entries) => entries.iter().try_for_each(|(key, value)| {
                put_message(out, number, |out| {
                    append_bytes(out, 1, key.as_bytes());
                    item(at.to(map.value), 2, value, out)
                })
            }),
            _ => Err(wrong(at, value, "map")),
        },
        _ if value.is_null() && (field.pointer || matches!(at.shape(), Shape::Scalar(Scalar::Bytes))) => Ok(()),
        _ => item(at, number, value, out),
    }
}

/// One value that is there; null stands for the zero value.
fn item(at: Ref<'_>, number: u32, value: &Value, out: &mut Vec<u8>) -> Outcome {
    match at.shape() {
        Shape::Scalar(scalar) => self::scalar(at, *scalar, number, value, out),
        Shape::Struct(_) => put_message(out, number, |out| message(at, value, out)),
        // a named list is a message of its own; others never stand here
        Shape::List(list) => put_message(out, number, |out| match value {
            Value::Null => Ok(()),
            Value::Array(items) => items.iter().try_for_each(|value| item(at.to(list.item), 1, value, out)),
            _ => Err(wrong(at, value, "list")),
        }),
        Shape::Map(_) => Err(wrong(at, value, "type with a message")),
        Shape::Any => put_message(out, number, |out| union(at, value, out)),
    }
}

fn scalar(at: Ref<'_>, scalar: Scalar, number: u32, value: &Value, out: &mut Vec<u8>) -> Outcome {
    match scalar {
        Scalar::Bool => put_int(out, number, i64::from(boolean(at, value)?)),
        Scalar::Int32 | Scalar::Int64 => put_int(out, number, integer(at, value)?),
        Scalar::Float64 => {
            let float = if value.is_null() { Some(0.0) } else { value.as_f64() };
            let float = float.ok_or_else(|| wrong(at, value, "number"))?;
            append_double(out, number, float);
        }
        Scalar::String => append_bytes(out, number, text(at, value)?.as_bytes()),
        Scalar::Bytes => {
            let bytes = STANDARD.decode(text(at, value)?).map_err(|_| wrong(at, value, "base64"))?;
            append_bytes(out, number, &bytes);
        }
        Scalar::Quantity => {
            return put_message(out, number, |out| {
                let text = if value.is_null() { "0" } else { text(at, value)? };
                append_bytes(out, 1, text.as_bytes());
                Ok(())
            });
        }
        Scalar::Time | Scalar::MicroTime => {
            return put_message(out, number, |out| time(at, scalar, value, out));
        }
        Scalar::Duration => {
            return put_message(out, number, |out| {
                let text = if value.is_null() { "0s" } else { text(at, value)? };
                let duration = Duration::parse(text).map_err(|_| wrong(at, value, "duration"))?;
                put_int(out, 1, duration.nanos());
                Ok(())
            });
        }
        Scalar::IntOrString => {
            return put_message(out, number, |out| {
                let (kind, number, text) = match value {
                    Value::String(text) => (1, 0, &**text),
                    value => (0, integer(at, value)?, ""),
                };
                put_int(out, 1, kind);
                put_int(out, 2, number);
                append_bytes(out, 3, text.as_bytes());
                Ok(())
            });
        }
    }
    Ok(())
}

/// Seconds and nanoseconds; nothing for the zero of Go.
fn time(at: Ref<'_>, scalar: Scalar, value: &Value, out: &mut Vec<u8>) -> Outcome {
    if value.is_null() {
        return Ok(());
    }
    let text = text(at, value)?;
    let (time, nanos) = match scalar {
        Scalar::MicroTime => Time::parse_micro(text).map(|t| (t, t.subsecond_nanos() / 1000 * 1000)),
        _ => Time::parse(text).map(|t| (t, 0)),
    }
    .map_err(|_| wrong(at, value, "time"))?;
    if !time.is_zero() {
        put_int(out, 1, time.unix_seconds());
        put_int(out, 2, i64::from(nanos));
    }
    Ok(())
}

/// Free-form values as their JSON, and the unions in the schema of a custom resource definition.
fn union(at: Ref<'_>, value: &Value, out: &mut Vec<u8>) -> Outcome {
    let wire = at.facts().map(|f| &f.wire);
    match (wire, value) {
        (Some(Wire::SchemaOrBool(schema)), Value::Object(_)) => {
            put_int(out, 1, 1);
            put_message(out, 2, |out| message(at.to(*schema), value, out))
        }
        (Some(Wire::SchemaOrBool(_)), value) => {
            put_int(out, 1, i64::from(boolean(at, value)?));
            Ok(())
        }
        (Some(Wire::SchemaOrList(schema) | Wire::SchemaOrStrings(schema)), Value::Object(_)) => {
            put_message(out, 1, |out| message(at.to(*schema), value, out))
        }
        (Some(Wire::SchemaOrList(schema)), Value::Array(items)) => {
            items.iter().try_for_each(|value| put_message(out, 2, |out| message(at.to(*schema), value, out)))
        }
        (Some(Wire::SchemaOrStrings(_)), Value::Array(items)) => items.iter().try_for_each(|value| {
            append_bytes(out, 2, text(at, value)?.as_bytes());
            Ok(())
        }),
        (_, Value::Null) => Ok(()),
        (Some(Wire::SchemaOrList(_) | Wire::SchemaOrStrings(_)), _) => Err(wrong(at, value, "schema")),
        _ => {
            append_bytes(out, 1, &json::to_vec(value));
            Ok(())
        }
    }
}

fn put_int(out: &mut Vec<u8>, number: u32, value: i64) {
    append_varint(out, number, value as u64);
}

fn boolean(at: Ref<'_>, value: &Value) -> Result<bool, EncodeError> {
    if value.is_null() { Ok(false) } else { value.as_bool().ok_or_else(|| wrong(at, value, "boolean")) }
}

fn integer(at: Ref<'_>, value: &Value) -> Result<i64, EncodeError> {
    if value.is_null() { Ok(0) } else { value.as_i64().ok_or_else(|| wrong(at, value, "integer")) }
}

fn text<'a>(at: Ref<'_>, value: &'a Value) -> Result<&'a str, EncodeError> {
    if value.is_null() { Ok("") } else { value.as_str().ok_or_else(|| wrong(at, value, "text")) }
}

fn wrong(at: Ref<'_>, value: &Value, expected: &'static str) -> EncodeError {
    let place = crate::codec::canonical::go_type_name(at);
    EncodeError::Value { place, expected, value: value.to_string().chars().take(80).collect() }
}
