//! What an object looks like before anything is said about it: the live object of a create.

use serde_json::{Map, Value};

use crate::identity::GroupVersionKind;
use crate::schema::{Field, Omit, Ref, Scalar, Schema, Shape};

/// Structs of Go are not nested deeper by value.
const MAX_DEPTH: usize = 32;

/// The empty object of a kind. Built-in kinds have the fields that Go writes even when they are empty, which is why
/// nobody owns `spec` of a Deployment; custom kinds have nothing.
pub fn empty_object(schema: &Schema, kind: &GroupVersionKind) -> Value {
    let mut object = match schema.root().shape() {
        Shape::Struct(s) if !s.name.is_empty() => fields(schema.root(), MAX_DEPTH),
        _ => Map::new(),
    };
    object.insert("apiVersion".to_owned(), Value::String(kind.api_version()));
    object.insert("kind".to_owned(), Value::String(kind.kind.as_str().to_owned()));
    Value::Object(object)
}

fn fields(at: Ref<'_>, depth: usize) -> Map<String, Value> {
    let Shape::Struct(s) = at.shape() else { return Map::new() };
    let written = s.fields.iter().filter_map(|field| Some((field.name.to_string(), zero(at, field, depth)?)));
    written.collect()
}

/// The zero value of a field, if it is written.
fn zero(at: Ref<'_>, field: &Field, depth: usize) -> Option<Value> {
    let at = at.to(field.r#type);
    match (field.omit, at.shape()) {
        (Omit::Zero, _) => None,
        (_, _) if depth == 0 => None,
        (Omit::Never, _) if field.pointer => Some(Value::Null),
        (_, _) if field.pointer => None,
        (_, Shape::Struct(_)) => Some(Value::Object(fields(at, depth - 1))),
        // Structs in Go, which are never empty to it.
        (
            _,
            Shape::Scalar(
                scalar @ (Scalar::Time | Scalar::MicroTime | Scalar::Quantity | Scalar::Duration | Scalar::IntOrString),
            ),
        ) => Some(zero_of(*scalar)),
        (Omit::Empty, _) => None,
        (Omit::Never, Shape::Scalar(scalar)) => Some(zero_of(*scalar)),
        (Omit::Never, _) => Some(Value::Null),
    }
}

/// What Go writes for the zero value of a scalar.
fn zero_of(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool => Value::Bool(false),
        Scalar::Int32 | Scalar::Int64 | Scalar::Float64 | Scalar::IntOrString => Value::from(0),
        Scalar::String => Value::from(""),
        Scalar::Quantity => Value::from("0"),
        Scalar::Duration => Value::from("0s"),
        Scalar::Bytes | Scalar::Time | Scalar::MicroTime => Value::Null,
    }
}
