//! `apiVersion`, `kind` and `metadata` as Kubernetes' own types would hold them.
//!
//! Metadata of custom objects and of resources embedded in them is decoded by its type, not by the custom schema: fields
//! of other types are refused (or dropped, when reading what was stored long ago), unknown ones dropped and told, and the
//! rest takes its canonical form.

use serde_json::{Map, Value};

use crate::codec::canonical::canonicalise_at;
use crate::codec::{StrictError, StrictErrors};
use crate::field::{ErrorKind, FieldError, Path};
use crate::schema::Ref;

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
                if node.is_resource() {
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
        match (object.get_mut("metadata"), node.child("metadata")) {
            (Some(value), Some(meta)) => self.metadata(meta, value, &path.child("metadata")),
            _ => Ok(()),
        }
    }

    fn metadata(&mut self, meta: Ref<'_>, value: &mut Value, path: &Path<'_>) -> Result<(), FieldError> {
        match (self.malformed, &mut *value) {
            (Malformed::Refuse, _) | (_, Value::Null) => match canonicalise_at(meta, value) {
                Ok(unknown) => self.tell(&unknown, path),
                Err(error) => return Err(invalid(path, value, error.to_string())),
            },
            (Malformed::Drop, Value::Object(fields)) => {
                for (name, value) in std::mem::take(fields) {
                    let mut alone = Value::Object(Map::from_iter([(name, value)]));
                    if let (Ok(unknown), Value::Object(good)) = (canonicalise_at(meta, &mut alone), alone) {
                        self.tell(&unknown, path);
                        fields.extend(good);
                    }
                }
            }
            (Malformed::Drop, _) => {}
        }
        Ok(())
    }

    fn tell(&mut self, unknown: &StrictErrors, path: &Path<'_>) {
        for error in unknown.iter() {
            if let StrictError::Unknown(field) = error
                && self.unknown.len() < StrictErrors::MOST
            {
                self.unknown.push(format!("{path}.{field}"));
            }
        }
    }
}

fn invalid(path: &Path<'_>, value: &Value, detail: String) -> FieldError {
    FieldError { kind: ErrorKind::Invalid, field: path.to_string(), value: Some(value.clone()), detail }
}
