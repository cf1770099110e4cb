//! Where something is wrong in an object, and what: field paths and field errors.
//!
//! Validators collect every problem of an object into one [`Errors`]; the server answers with all of them at once.
//! A [`Path`] lives on the stack and costs nothing until an error is written down.

use std::fmt;

use serde_json::Value;

/// A path into an object, such as `spec.containers[0].ports[1].name` or `metadata.labels[app]`.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub fn root() -> Path<'static> {
        Path::Root
    }

    pub fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    /// An entry of a map, written in brackets.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => f.write_str(name),
            Path::Field(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

/// What kind of problem a field has. Kubernetes' `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    Internal,
}

impl ErrorKind {
    /// The word used as `reason` in a cause of a `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "FieldValueNotFound",
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::Invalid => "FieldValueInvalid",
            ErrorKind::NotSupported => "FieldValueNotSupported",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
            ErrorKind::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            ErrorKind::NotFound => "Not found",
            ErrorKind::Required => "Required value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::NotSupported => "Unsupported value",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
            ErrorKind::Internal => "Internal error",
        }
    }
}

/// One problem of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    pub kind: ErrorKind,
    pub field: String,
    /// `None` where the value is not shown (required, forbidden, too long, internal).
    pub value: Option<Value>,
    pub detail: String,
}

impl FieldError {
    /// The message without the field, as it stands in a cause.
    pub fn body(&self) -> String {
        let words = self.kind.words();
        match (&self.value, self.detail.is_empty()) {
            (None, true) => words.to_owned(),
            (None, false) => format!("{words}: {}", self.detail),
            (Some(value), true) => format!("{words}: {}", shown(value)),
            (Some(value), false) => format!("{words}: {}: {}", shown(value), self.detail),
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A bad value as Kubernetes prints it: text in quotes, the rest as JSON.
fn shown(value: &Value) -> String {
    value.to_string()
}

/// All problems found so far, in the order they were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    list: Vec<FieldError>,
}

impl Errors {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, FieldError> {
        self.list.iter()
    }

    pub fn push(&mut self, error: FieldError) {
        self.list.push(error);
    }

    pub fn extend(&mut self, other: Errors) {
        self.list.extend(other.list);
    }

    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Required, path, None, detail.into());
    }

    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(ErrorKind::Invalid, path, Some(value.into()), detail.into());
    }

    pub fn type_invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(ErrorKind::TypeInvalid, path, Some(value.into()), detail.into());
    }

    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorKind::Duplicate, path, Some(value.into()), String::new());
    }

    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorKind::NotFound, path, Some(value.into()), String::new());
    }

    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Forbidden, path, None, detail.into());
    }

    /// `supported` is printed in the order given.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        self.add(ErrorKind::NotSupported, path, Some(value.into()), detail);
    }

    pub fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        self.add(ErrorKind::TooLong, path, None, format!("may not be more than {max_bytes} bytes"));
    }

    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        self.add(ErrorKind::TooMany, path, Some(actual.into()), format!("must have at most {max} items"));
    }

    pub fn internal(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Internal, path, None, detail.into());
    }

    fn add(&mut self, kind: ErrorKind, path: &Path<'_>, value: Option<Value>, detail: String) {
        self.list.push(FieldError { kind, field: path.to_string(), value, detail });
    }
}

impl IntoIterator for Errors {
    type Item = FieldError;
    type IntoIter = std::vec::IntoIter<FieldError>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl<'a> IntoIterator for &'a Errors {
    type Item = &'a FieldError;
    type IntoIter = std::slice::Iter<'a, FieldError>;
    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}
