//! `apiVersion`, `kind` and `metadata` as Kubernetes' own types would hold them.
//!
//! Metadata of custom objects and of resources embedded in them is decoded by its type, not by the custom schema: fields
//! of other types are refused (or dropped, when reading what was stored long ago), unknown ones dropped and told, null
//! and empty ones left out.

use serde_json::{Map, Value};

use crate::field::{ErrorKind, FieldError, Path};
use crate::schema::{Field, Omit, Ref, Scalar, Shape, Struct};
use crate::time::Time;

/// What to do with metadata of the wrong type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    Refuse,
    Drop,
}

/// Coerces the object itself (`root`), or every resource embedded in it. Says what unknown fields were dropped.
pub(in crate::schema) fn coerce(
    node: Ref<'_>,
    object: &mut Value,
    root: bool,
    malformed: Malformed,
) -> Result<Vec<String>, FieldError> {
    let mut coercer = Coercer { malformed, unknown: Vec::new() };
    match (object, root) {
        (Value::Object(object), true) => coercer.resource(node, object, &Path::Root)?,
        (object, _) => coercer.walk(node, object, &Path::Root)?,
    }
    Ok(coercer.unknown)
}

struct Coercer {
    malformed: Malformed,
    unknown: Vec<String>,
}

impl Coercer {
    fn walk(&mut self, node: Ref<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), FieldError> {
        match value {
            Value::Object(object) => {
                let is_resource = node.is_resource();
                if is_resource {
                    self.resource(node, object, path)?;
                }
                for (name, value) in object.iter_mut() {
                    let Some(child) = node.property(name).filter(|child| !child.is_built_in()) else { continue };
                    self.walk(child, value, &node.step(path, name))?;
                }
            }
            Value::Array(items) => {
                let Some(item_node) = node.element() else { return Ok(()) };
                for (index, item) in items.iter_mut().enumerate() {
                    self.walk(item_node, item, &path.index(index))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn resource(&mut self, node: Ref<'_>, object: &mut Map<String, Value>, path: &Path<'_>) -> Result<(), FieldError> {
        for name in ["apiVersion", "kind"] {
            match (object.get(name), self.malformed) {
                (None | Some(Value::String(_)), _) => {}
                (Some(_), Malformed::Drop) => drop(object.remove(name)),
                (Some(value), Malformed::Refuse) => {
                    return Err(invalid(&path.child(name), value, "must be a string".to_owned()));
                }
            }
        }
        let (Some(value), Some(meta)) = (object.get_mut("metadata"), node.child("metadata")) else { return Ok(()) };
        let Shape::Struct(shape) = meta.shape() else { return Ok(()) };
        let path = path.child("metadata");
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        match value {
            Value::Object(fields) => {
                let fits = self.fields(meta, shape, fields, &path, &mut vec![]);
                fits.map_err(|words| invalid(&path, &fields.clone().into(), words))
            }
            _ if self.malformed == Malformed::Drop => Ok(()),
            other => {
                let words = format!("json: cannot unmarshal {} into Go value of type v1.ObjectMeta", go_kind(other));
                Err(invalid(&path, other, words))
            }
        }
    }

    /// The fields of a struct. `stack` holds the names from the metadata down, for messages.
    fn fields<'v>(
        &mut self,
        node: Ref<'v>,
        shape: &'v Struct,
        object: &mut Map<String, Value>,
        path: &Path<'_>,
        stack: &mut Vec<&'v str>,
    ) -> Result<(), String> {
        let mut wrong = None;
        object.retain(|name, value| {
            let Some(field) = shape.field(name) else {
                self.unknown.push(path.child(name).to_string());
                return false;
            };
            stack.push(&field.name);
            let fits = self.value(node.to(field.r#type), value, &path.child(name), shape, stack);
            stack.pop();
            match fits {
                Ok(()) => !is_omitted(node, field, value),
                Err(_) if self.malformed == Malformed::Drop && stack.is_empty() => false,
                Err(words) => {
                    wrong.get_or_insert(words);
                    true
                }
            }
        });
        wrong.map_or(Ok(()), Err)
    }

    fn value<'v>(
        &mut self,
        node: Ref<'v>,
        value: &mut Value,
        path: &Path<'_>,
        holder: &'v Struct,
        stack: &mut Vec<&'v str>,
    ) -> Result<(), String> {
        match (node.shape(), &mut *value) {
            // Null leaves the zero value.
            (_, Value::Null) => {
                if let Shape::Scalar(Scalar::String) = node.shape() {
                    *value = "".into();
                }
                Ok(())
            }
            (Shape::Scalar(Scalar::Time), Value::String(text)) => {
                Time::parse(text).map(drop).map_err(|e| e.to_string())
            }
            (Shape::Scalar(Scalar::String), Value::String(_))
            | (Shape::Scalar(Scalar::Bool), Value::Bool(_))
            | (Shape::Any, _) => Ok(()),
            (Shape::Scalar(Scalar::Int64 | Scalar::Int32), Value::Number(n)) if n.is_i64() => Ok(()),
            (Shape::Struct(shape), Value::Object(object)) => self.fields(node, shape, object, path, stack),
            (Shape::Map(map), Value::Object(object)) => {
                for (name, value) in object.iter_mut() {
                    self.value(node.to(map.value), value, &path.child(name), holder, stack)?;
                }
                Ok(())
            }
            (Shape::List(list), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(node.to(list.item), item, &path.index(index), holder, stack)?;
                }
                Ok(())
            }
            (_, found) => {
                let holder = holder.name.rsplit('.').next().unwrap_or_default();
                Err(format!(
                    "json: cannot unmarshal {} into Go struct field {holder}.{} of type {}",
                    go_kind(found),
                    stack.join("."),
                    go_type(node)
                ))
            }
        }
    }
}

fn invalid(path: &Path<'_>, value: &Value, detail: String) -> FieldError {
    FieldError { kind: ErrorKind::Invalid, field: path.to_string(), value: Some(value.clone()), detail }
}

/// Does Kubernetes leave it out when it writes the struct?
fn is_omitted(node: Ref<'_>, field: &Field, value: &Value) -> bool {
    let empty = match value {
        Value::Null => return true,
        Value::Bool(flag) => !flag && !field.pointer,
        Value::Number(n) => n.as_i64() == Some(0) && !field.pointer,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && !matches!(node.to(field.r#type).shape(), Shape::Struct(_)),
    };
    empty && field.omit != Omit::Never
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The name of the Go type that metadata has there.
fn go_type(node: Ref<'_>) -> String {
    match node.shape() {
        Shape::Scalar(Scalar::String) => "string".to_owned(),
        Shape::Scalar(Scalar::Bool) => "bool".to_owned(),
        Shape::Scalar(Scalar::Int64) => "int64".to_owned(),
        Shape::Scalar(Scalar::Int32) => "int32".to_owned(),
        Shape::Scalar(Scalar::Time) => "v1.Time".to_owned(),
        Shape::List(list) => format!("[]{}", go_type(node.to(list.item))),
        Shape::Map(map) => format!("map[string]{}", go_type(node.to(map.value))),
        Shape::Struct(shape) => format!("v1.{}", shape.name.rsplit('.').next().unwrap_or_default()),
        _ => "v1.FieldsV1".to_owned(),
    }
}
