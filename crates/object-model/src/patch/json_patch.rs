//! JSON patch (RFC 6902) as Kubernetes' API server understands it.
//!
//! Where it differs from the RFC:
//! - everything before the first `/` of a pointer is ignored; the whole document (`""`) can be tested and replaced,
//!   not added, removed, moved or copied;
//! - `replace` of a missing field of an object adds it, `copy` of a missing field gives null, and `test` for null
//!   passes when the field is missing;
//! - array indices may be negative, counting from the end.
//!
//! A patch is checked once when it is read; applying it is atomic, since the caller keeps the object it came from.

use std::io;

use serde_json::Value;
use thiserror::Error;

use super::error::PatchError;
use crate::codec::{MAX_DEPTH, json};
use crate::value::{Object, depth};

/// More operations than this are refused.
pub const MAX_OPERATIONS: usize = 10_000;
/// All `copy` operations of a patch together may add this many bytes of JSON.
pub const MAX_COPY_BYTES: usize = 3 * 1024 * 1024;

/// A checked list of operations.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPatch {
    operations: Vec<Operation>,
    unknown_fields: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operation {
    Add { path: Pointer, value: Value },
    Remove { path: Pointer },
    Replace { path: Pointer, value: Value },
    Move { from: Pointer, path: Pointer },
    Copy { from: Pointer, path: Pointer },
    Test { path: Pointer, value: Value },
}

/// A parsed JSON pointer; without tokens it means the whole document.
#[derive(Clone, Debug, PartialEq)]
struct Pointer {
    text: String,
    tokens: Vec<String>,
}

#[derive(Debug, Error, PartialEq)]
pub enum OperationError {
    #[error("unknown operation {0:?}")]
    UnknownOperation(String),
    #[error("the operation has no {0:?}")]
    MissingMember(&'static str),
    #[error("the object has nothing at {0:?}")]
    MissingPath(String),
    #[error("{0:?} is not an array index")]
    NotAnIndex(String),
    #[error("there is no index {0}")]
    InvalidIndex(i64),
    #[error("the value at {0:?} is not the expected one")]
    TestFailed(String),
    #[error("a whole document must be an object or an array")]
    ScalarDocument,
    #[error("copies add {0} bytes, more than the limit of {MAX_COPY_BYTES}")]
    CopyTooLarge(usize),
    #[error("the result is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

impl JsonPatch {
    /// Reads a patch. An operation that can never succeed is reported here with its index.
    pub fn parse(body: Value) -> Result<Self, PatchError> {
        let wrong = |what: &Value, place: &str| {
            let json_type = json::type_name(what);
            PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {json_type} into Go {place}"))
        };
        let items = match body {
            Value::Null => Vec::new(),
            Value::Array(items) => items,
            other => return Err(wrong(&other, "value of type []handlers.jsonPatchOp")),
        };
        for item in &items {
            let Some(members) = item.as_object() else {
                if item.is_null() {
                    continue;
                }
                return Err(wrong(item, "value of type handlers.jsonPatchOp"));
            };
            for name in ["op", "path", "from"] {
                if let Some(v) = members.get(name).filter(|v| !v.is_string() && !v.is_null()) {
                    return Err(wrong(v, &format!("struct field jsonPatchOp.{name} of type string")));
                }
            }
        }
        if items.len() > MAX_OPERATIONS {
            return Err(PatchError::TooManyOperations(items.len()));
        }
        let mut unknown_fields = Vec::new();
        let mut operations = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            let Value::Object(members) = item else {
                return Err(PatchError::Operation { index, source: OperationError::MissingMember("op") });
            };
            let foreign = members.keys().filter(|k| !matches!(k.as_str(), "op" | "path" | "from" | "value"));
            unknown_fields.extend(foreign.map(|k| format!("json patch unknown field \"[{index}].{k}\"")));
            let operation = Operation::parse(members);
            operations.push(operation.map_err(|source| PatchError::Operation { index, source })?);
        }
        Ok(Self { operations, unknown_fields })
    }

    /// Members that no operation has: warnings or errors, as the request's field validation says.
    pub fn unknown_fields(&self) -> &[String] {
        &self.unknown_fields
    }

    /// Applies all operations in turn.
    pub fn apply(&self, mut document: Value) -> Result<Value, PatchError> {
        let mut limits = Limits { copied: 0, depth: depth(&document) };
        for (index, operation) in self.operations.iter().enumerate() {
            operation.apply(&mut document, &mut limits).map_err(|source| PatchError::Operation { index, source })?;
        }
        Ok(document)
    }
}

impl Operation {
    fn parse(mut members: Object) -> Result<Self, OperationError> {
        let mut text = |name: &'static str| match members.get_mut(name).map(Value::take) {
            Some(Value::String(s)) => Ok(s),
            _ => Err(OperationError::MissingMember(name)),
        };
        let op = text("op")?;
        let path = Pointer::parse(text("path")?);
        Ok(match op.as_str() {
            "move" => Self::Move { from: Pointer::parse(text("from")?), path },
            "copy" => Self::Copy { from: Pointer::parse(text("from")?), path },
            "remove" => Self::Remove { path },
            "add" | "replace" | "test" => {
                let value = members.get_mut("value").map(Value::take).unwrap_or_default();
                match op.as_str() {
                    "add" => Self::Add { path, value },
                    "replace" => Self::Replace { path, value },
                    _ => Self::Test { path, value },
                }
            }
            _ => return Err(OperationError::UnknownOperation(op)),
        })
    }

    fn apply(&self, document: &mut Value, limits: &mut Limits) -> Result<(), OperationError> {
        match self {
            Self::Add { path, value } => {
                limits.place(path.tokens.len() + depth(value))?;
                path.add(document, value.clone())
            }
            Self::Remove { path } => path.remove(document).map(drop),
            Self::Replace { path, value } => {
                limits.place(path.tokens.len() + depth(value))?;
                path.replace(document, value.clone())
            }
            Self::Move { from, path } => {
                let value = from.remove(document)?;
                // Measured only when the cheap bound does not suffice.
                let bound = limits.depth + path.tokens.len().saturating_sub(from.tokens.len());
                limits.place(if bound > MAX_DEPTH { path.tokens.len() + depth(&value) } else { bound })?;
                path.add(document, value)
            }
            Self::Copy { from, path } => {
                let value = from.get(document)?.cloned().unwrap_or_default();
                limits.copy(&value)?;
                limits.place(path.tokens.len() + depth(&value))?;
                path.add(document, value)
            }
            Self::Test { path, value } => {
                let found = match path.text.as_str() {
                    "" => Some(&*document),
                    _ => path.get(document)?,
                };
                match found.unwrap_or(&Value::Null) == value {
                    true => Ok(()),
                    false => Err(OperationError::TestFailed(path.text.clone())),
                }
            }
        }
    }
}

impl Pointer {
    fn parse(text: String) -> Self {
        let tokens = text.split('/').skip(1).map(|t| t.replace("~1", "/").replace("~0", "~")).collect();
        Self { text, tokens }
    }

    fn missing(&self) -> OperationError {
        OperationError::MissingPath(self.text.clone())
    }

    /// The object or array that holds the value, and the value's name in it.
    fn parent<'v>(&self, document: &'v mut Value) -> Result<(&'v mut Value, &str), OperationError> {
        let (last, path) = self.tokens.split_last().ok_or_else(|| self.missing())?;
        let mut at = document;
        for token in path {
            at = match at {
                Value::Object(map) => map.get_mut(token),
                Value::Array(items) => existing(token, items.len()).ok().and_then(|i| items.get_mut(i)),
                _ => None,
            }
            .ok_or_else(|| self.missing())?;
        }
        match at {
            Value::Object(_) | Value::Array(_) => Ok((at, last)),
            _ => Err(self.missing()),
        }
    }

    /// The value, if its parent is there.
    fn get<'v>(&self, document: &'v mut Value) -> Result<Option<&'v Value>, OperationError> {
        match self.parent(document)? {
            (Value::Array(items), token) => {
                let index = existing(token, items.len())?;
                Ok(items.get(index))
            }
            (object, token) => Ok(object.get(token)),
        }
    }

    fn add(&self, document: &mut Value, value: Value) -> Result<(), OperationError> {
        match self.parent(document)? {
            (Value::Array(items), "-") => items.push(value),
            (Value::Array(items), token) => {
                // An addition may also go behind the last item.
                let index = existing(token, items.len() + 1)?;
                items.insert(index, value);
            }
            (Value::Object(map), token) => {
                map.insert(token.to_owned(), value);
            }
            _ => return Err(self.missing()),
        }
        Ok(())
    }

    fn replace(&self, document: &mut Value, value: Value) -> Result<(), OperationError> {
        if self.text.is_empty() {
            if !value.is_object() && !value.is_array() {
                return Err(OperationError::ScalarDocument);
            }
            *document = value;
            return Ok(());
        }
        match self.parent(document)? {
            (Value::Array(items), token) => {
                let index = existing(token, items.len())?;
                items[index] = value;
            }
            (Value::Object(map), token) => {
                map.insert(token.to_owned(), value);
            }
            _ => return Err(self.missing()),
        }
        Ok(())
    }

    fn remove(&self, document: &mut Value) -> Result<Value, OperationError> {
        match self.parent(document)? {
            (Value::Array(items), token) => {
                let index = existing(token, items.len())?;
                Ok(items.remove(index))
            }
            (Value::Object(map), token) => map.remove(token).ok_or_else(|| self.missing()),
            _ => Err(self.missing()),
        }
    }
}

/// The index that a token names among `len` items; negative ones count from the end.
fn existing(token: &str, len: usize) -> Result<usize, OperationError> {
    let index: i64 = token.parse().map_err(|_| OperationError::NotAnIndex(token.to_owned()))?;
    let from_start = if index < 0 { index + len as i64 } else { index };
    usize::try_from(from_start).ok().filter(|i| *i < len).ok_or(OperationError::InvalidIndex(index))
}

/// What keeps a small patch from making a huge object.
struct Limits {
    copied: usize,
    /// The document is at most this deep.
    depth: usize,
}

impl Limits {
    fn copy(&mut self, value: &Value) -> Result<(), OperationError> {
        self.copied += encoded_len(value);
        if self.copied > MAX_COPY_BYTES { Err(OperationError::CopyTooLarge(self.copied)) } else { Ok(()) }
    }

    /// Notes that a value reaches down to `depth` levels now.
    fn place(&mut self, depth: usize) -> Result<(), OperationError> {
        if depth > MAX_DEPTH {
            return Err(OperationError::TooDeep);
        }
        self.depth = self.depth.max(depth);
        Ok(())
    }
}

/// The length of a value's JSON, without making it.
fn encoded_len(value: &Value) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither counting nor a value can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

#[cfg(test)]
#[path = "json_patch_tests.rs"]
mod tests;
