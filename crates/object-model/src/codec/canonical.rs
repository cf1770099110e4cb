//! The canonical form of a built-in object: what is left of it after Kubernetes has read it into a Go struct, stored it
//! and written it again.
//!
//! Decoding is one pass over the value, in place. Nulls and empty values that Go omits go, values that it always writes
//! come (`status: {}`, `resources: {}`, `eventTime: null`), unknown fields go and are reported, times, quantities and
//! base64 are rewritten as Kubernetes writes them. An empty list that is always written becomes null: the store keeps
//! no difference. What cannot be read is refused in Go's words. The canonical form of a canonical value is itself.
//!
//! Of several values of a wrong type, the first in the order of the field names is named (Go names the first in the
//! text); a malformed quantity, time or duration is named before any of them, as in Go.

mod go;

use serde_json::{Map, Value};
use thiserror::Error;

use super::{StrictError, StrictErrors};
use crate::quantity::{self, BadQuantity};
use crate::schema::{Field, List, Omit, Ref, Scalar, Schema, Shape, Struct, Wire};
use crate::time::{BadDuration, BadTime, Duration, Time};

use go::Path;
pub(super) use go::{type_name as go_type_name, whole_number};

/// Why a value cannot be read as its kind, in Go's words.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum DecodeError {
    #[error("json: cannot unmarshal {value} into Go {place} of type {go}")]
    Type { value: String, place: String, go: String },
    #[error("illegal base64 data at input byte {0}")]
    Base64(usize),
    #[error(transparent)]
    Quantity(#[from] BadQuantity),
    #[error(transparent)]
    Time(#[from] BadTime),
    #[error(transparent)]
    Duration(#[from] BadDuration),
    #[error("boolean or JSON schema expected")]
    SchemaOrBool,
}

/// Makes a value of a built-in kind canonical and reports the unknown fields that it dropped, by paths such as
/// `spec.containers[0].foo`. After an error the value is of no use.
pub fn canonicalise(schema: &Schema, value: &mut Value) -> Result<StrictErrors, DecodeError> {
    canonicalise_at(schema.root(), value)
}

/// The same for a value of any built-in type.
pub fn canonicalise_at(at: Ref<'_>, value: &mut Value) -> Result<StrictErrors, DecodeError> {
    let mut walk = Walk { unknown: StrictErrors::default(), first: None, silent: false };
    walk.value(at, value, &Path::Root)?;
    match walk.first {
        Some(error) => Err(error),
        None => Ok(walk.unknown),
    }
}

struct Walk {
    unknown: StrictErrors,
    /// The first value of a wrong type. The walk goes on, since others are worth more.
    first: Option<DecodeError>,
    /// Inside of a union, whose decoder reports no unknown fields.
    silent: bool,
}

type Outcome = Result<(), DecodeError>;

impl Walk {
    /// Any value but the null of a field.
    fn value(&mut self, at: Ref<'_>, value: &mut Value, path: &Path<'_>) -> Outcome {
        match at.shape() {
            _ if value.is_null() => *value = zero_item(at),
            Shape::Struct(s) => match value {
                Value::Object(object) => return self.object(at, s, object, path),
                _ => self.wrong(value, go::type_name(at), path),
            },
            Shape::List(List { item, .. }) => match value {
                Value::Array(items) => {
                    let item = at.to(*item);
                    for (index, value) in items.iter_mut().enumerate() {
                        self.value(item, value, &path.index(index))?;
                    }
                }
                _ => self.wrong(value, go::type_name(at), path),
            },
            Shape::Map(map) => match value {
                Value::Object(entries) => {
                    let item = at.to(map.value);
                    for (key, value) in entries.iter_mut() {
                        self.value(item, value, &path.key(key))?;
                        if value.as_array().is_some_and(Vec::is_empty) {
                            *value = zero_item(item);
                        }
                    }
                }
                _ => self.wrong(value, go::type_name(at), path),
            },
            Shape::Scalar(scalar) => return self.scalar(at, *scalar, value, path),
            Shape::Any => return self.union(at, value, path),
        }
        Ok(())
    }

    fn object(&mut self, at: Ref<'_>, s: &Struct, object: &mut Map<String, Value>, path: &Path<'_>) -> Outcome {
        let mut outcome = Ok(());
        object.retain(|key, value| {
            let Some(index) = s.fields.binary_search_by(|f| (*f.name).cmp(key)).ok() else {
                self.unknown(path, key);
                return false;
            };
            let field = &s.fields[index];
            if value.is_null() || outcome.is_err() {
                return false;
            }
            let child = at.to(field.r#type);
            if let Err(error) = self.value(child, value, &path.field(at, index)) {
                outcome = Err(error);
                return false;
            }
            keeps(child, field, value)
        });
        outcome?;
        complete(at, s, object);
        Ok(())
    }

    fn scalar(&mut self, at: Ref<'_>, scalar: Scalar, value: &mut Value, path: &Path<'_>) -> Outcome {
        match (scalar, &mut *value) {
            (Scalar::Bool, Value::Bool(_)) | (Scalar::String, Value::String(_)) => {}
            (Scalar::Int32 | Scalar::Int64, Value::Number(number)) => {
                let fits = |n: i64| scalar == Scalar::Int64 || i32::try_from(n).is_ok();
                if !number.as_i64().is_some_and(fits) {
                    self.wrong_number(value, go::type_name(at), path);
                }
            }
            (Scalar::Float64, Value::Number(number)) => {
                if let Some(whole) = number.as_f64().and_then(whole_number) {
                    *value = whole.into();
                }
            }
            (Scalar::Bytes, Value::String(text)) => match go::canonical_base64(text) {
                Ok(None) => {}
                Ok(Some(better)) => *text = better,
                Err(at) => self.fail(DecodeError::Base64(at)),
            },
            (Scalar::Quantity, Value::String(text)) => {
                if let std::borrow::Cow::Owned(better) = quantity::canonical(text.trim())? {
                    *text = better;
                } else if text.trim().len() != text.len() {
                    *text = text.trim().to_owned();
                }
            }
            (Scalar::Quantity, Value::Number(number)) => {
                *value = quantity::canonical(&number.to_string())?.into_owned().into();
            }
            (Scalar::Quantity, _) => return Err(BadQuantity::Format.into()),
            (Scalar::Time, Value::String(text)) => {
                let time = Time::parse(text)?;
                *value = if time.is_zero() { Value::Null } else { time.to_string().into() };
            }
            (Scalar::MicroTime, Value::String(text)) => {
                let time = Time::parse_micro(text)?;
                *value = if time.is_zero() { Value::Null } else { time.micro().into() };
            }
            (Scalar::Duration, Value::String(text)) => *value = Duration::parse(text)?.to_string().into(),
            (Scalar::Time | Scalar::MicroTime | Scalar::Duration, _) => {
                return Err(go::type_error(value, "string".to_owned(), path));
            }
            (Scalar::IntOrString, Value::String(_)) => {}
            (Scalar::IntOrString, Value::Number(number)) => {
                if number.as_i64().is_none_or(|n| i32::try_from(n).is_err()) {
                    return Err(go::number_error(value, "int32".to_owned(), path));
                }
            }
            (Scalar::IntOrString, _) => return Err(go::type_error(value, "int32".to_owned(), path)),
            _ => self.wrong(value, go::type_name(at), path),
        }
        Ok(())
    }

    /// Free-form values stay as they are. The unions in the schema of a custom resource definition have decoders of
    /// their own, which take a schema where they find an object.
    fn union(&mut self, at: Ref<'_>, value: &mut Value, path: &Path<'_>) -> Outcome {
        let (silent, first) = (self.silent, self.first.take());
        self.silent = true;
        match (at.facts().map(|f| &f.wire), &mut *value) {
            (Some(Wire::SchemaOrBool(schema) | Wire::SchemaOrList(schema) | Wire::SchemaOrStrings(schema)), value)
                if value.is_object() =>
            {
                self.value(at.to(*schema), value, path)?;
            }
            (Some(Wire::SchemaOrBool(_)), Value::Bool(_)) => {}
            (Some(Wire::SchemaOrBool(_)), _) => return Err(DecodeError::SchemaOrBool),
            (Some(Wire::SchemaOrList(schema)), Value::Array(items)) if !items.is_empty() => {
                for item in items {
                    self.value(at.to(*schema), item, path)?;
                }
            }
            (Some(Wire::SchemaOrStrings(_)), Value::Array(items)) if !items.is_empty() => {
                for item in items.iter_mut() {
                    match item {
                        Value::String(_) => {}
                        Value::Null => *item = "".into(),
                        _ => self.wrong(item, "string".to_owned(), path),
                    }
                }
            }
            (Some(Wire::SchemaOrList(_) | Wire::SchemaOrStrings(_)), value) => *value = Value::Null,
            _ => {}
        }
        self.silent = silent;
        match std::mem::replace(&mut self.first, first) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn unknown(&mut self, path: &Path<'_>, key: &str) {
        if !self.silent && !self.unknown.is_full() {
            self.unknown.push(StrictError::Unknown(path.key(key).to_string()));
        }
    }

    fn wrong(&mut self, value: &Value, go: String, path: &Path<'_>) {
        self.fail(go::type_error(value, go, path));
    }

    fn wrong_number(&mut self, value: &Value, go: String, path: &Path<'_>) {
        self.fail(go::number_error(value, go, path));
    }

    fn fail(&mut self, error: DecodeError) {
        self.first.get_or_insert(error);
    }
}

/// Does Go write this canonical value of a field that was given? Where it is always written although it is empty, it
/// becomes null.
pub(super) fn keeps(at: Ref<'_>, field: &Field, value: &mut Value) -> bool {
    if field.pointer {
        // to a zero time or an empty union, which Go writes as null and reads as nothing
        return !value.is_null();
    }
    let empty = match (at.shape(), &*value) {
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(entries)) => entries.is_empty(),
        (Shape::Scalar(Scalar::Bool), Value::Bool(flag)) => !flag,
        (Shape::Scalar(Scalar::String | Scalar::Bytes), Value::String(text)) => text.is_empty(),
        (Shape::Scalar(Scalar::Int32 | Scalar::Int64 | Scalar::Float64), Value::Number(number)) => {
            number.as_i64() == Some(0)
        }
        (_, Value::Null) => field.omit == Omit::Zero,
        _ => false,
    };
    if empty && field.omit == Omit::Never && matches!(at.shape(), Shape::List(_) | Shape::Map(_)) {
        *value = Value::Null;
    }
    !empty || field.omit == Omit::Never
}

/// Adds the fields that Go writes although they were not given.
pub(super) fn complete(at: Ref<'_>, s: &Struct, object: &mut Map<String, Value>) {
    for field in &s.fields {
        let child = at.to(field.r#type);
        if is_always_written(child, field) && !object.contains_key(&*field.name) {
            let zero = if field.pointer { Value::Null } else { zero(child) };
            object.insert((*field.name).to_owned(), zero);
        }
    }
}

fn is_always_written(at: Ref<'_>, field: &Field) -> bool {
    match field.omit {
        Omit::Never => true,
        Omit::Zero => false,
        // `omitempty` means nothing to Go's structs, and some of the scalars are structs
        Omit::Empty if field.pointer => false,
        Omit::Empty => match at.shape() {
            Shape::Struct(_) | Shape::Any => true,
            Shape::Scalar(scalar) => matches!(
                scalar,
                Scalar::Quantity | Scalar::Time | Scalar::MicroTime | Scalar::Duration | Scalar::IntOrString
            ),
            Shape::List(_) | Shape::Map(_) => false,
        },
    }
}

/// What Go writes for a field that nobody set.
fn zero(at: Ref<'_>) -> Value {
    match at.shape() {
        Shape::Struct(s) => {
            let mut object = Map::new();
            complete(at, s, &mut object);
            Value::Object(object)
        }
        Shape::Scalar(scalar) => match scalar {
            Scalar::Bool => false.into(),
            Scalar::Int32 | Scalar::Int64 | Scalar::Float64 | Scalar::IntOrString => 0.into(),
            Scalar::String => "".into(),
            Scalar::Quantity => "0".into(),
            Scalar::Duration => "0s".into(),
            Scalar::Bytes | Scalar::Time | Scalar::MicroTime => Value::Null,
        },
        Shape::List(_) | Shape::Map(_) | Shape::Any => Value::Null,
    }
}

/// What a null among the items of a list or the entries of a map becomes.
pub(super) fn zero_item(at: Ref<'_>) -> Value {
    match at.shape() {
        // the store keeps no difference between no bytes and none at all
        Shape::Scalar(Scalar::Bytes) => "".into(),
        _ => zero(at),
    }
}

#[cfg(test)]
mod tests;
