//! Where something is wrong in an object, and what: field paths and field errors.
//!
//! Validators collect every problem of an object into one [`Errors`]; the server answers with all of them at once.
//! A [`Path`] lives on the stack and costs nothing until an error is written down.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use crate::codec::json;
use crate::go_text;
use crate::value;

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
    TooShort,
    TooMany,
    TooFew,
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
            ErrorKind::TooShort => "FieldValueTooShort",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::TooFew => "FieldValueTooFew",
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
            ErrorKind::TooShort => "Too short",
            ErrorKind::TooMany => "Too many",
            ErrorKind::TooFew => "Too few",
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

    fn weight(&self) -> usize {
        self.field.len() + self.detail.len() + self.value.as_ref().map_or(0, value::weight)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A bad value as Kubernetes prints it: text in Go's quotes, floats as Go prints them, the rest as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => go_text::quote(text),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => go_text::float(float),
            _ => number.to_string(),
        },
        other => json::to_string(other),
    }
}

/// All problems found so far, in the order they were found.
///
/// Beyond [`Errors::MOST_BYTES`] further problems are dropped: a few megabytes of input can hold a hundred thousand
/// mistakes below one long key, and an answer that repeats the key for each would not fit in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Errors {
    list: Vec<FieldError>,
    /// About how long the answer is by now.
    bytes: usize,
}

impl Errors {
    /// More than anybody reads.
    pub const MOST_BYTES: usize = 1 << 20;

    pub fn new() -> Self {
        Self::default()
    }

    /// Will the next problem be dropped?
    pub fn is_full(&self) -> bool {
        self.bytes >= Self::MOST_BYTES
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
        if !self.is_full() {
            self.bytes += error.weight();
            self.list.push(error);
        }
    }

    /// Takes back all but the first so many.
    pub fn truncate(&mut self, len: usize) {
        self.bytes -= self.list.drain(len.min(self.list.len())..).map(|error| error.weight()).sum::<usize>();
    }

    pub fn extend(&mut self, other: Errors) {
        other.list.into_iter().for_each(|error| self.push(error));
    }

    pub fn required(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Required, path, || None, detail.into());
    }

    pub fn invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(ErrorKind::Invalid, path, || Some(value.into()), detail.into());
    }

    /// `shown` stands in the message as it is: for values that Kubernetes prints in an order or form of its own.
    pub fn invalid_shown(&mut self, path: &Path<'_>, shown: &str, detail: &str) {
        let detail = if detail.is_empty() { shown.to_owned() } else { format!("{shown}: {detail}") };
        self.add(ErrorKind::Invalid, path, || None, detail);
    }

    /// One `invalid` for each message about the value.
    pub fn invalid_each(&mut self, path: &Path<'_>, value: &str, messages: impl IntoIterator<Item = String>) {
        for message in messages {
            self.invalid(path, value, message);
        }
    }

    pub fn type_invalid(&mut self, path: &Path<'_>, value: impl Into<Value>, detail: impl Into<String>) {
        self.add(ErrorKind::TypeInvalid, path, || Some(value.into()), detail.into());
    }

    pub fn duplicate(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorKind::Duplicate, path, || Some(value.into()), String::new());
    }

    pub fn not_found(&mut self, path: &Path<'_>, value: impl Into<Value>) {
        self.add(ErrorKind::NotFound, path, || Some(value.into()), String::new());
    }

    pub fn forbidden(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Forbidden, path, || None, detail.into());
    }

    /// `supported` is printed in the order given.
    pub fn not_supported(&mut self, path: &Path<'_>, value: impl Into<Value>, supported: &[&str]) {
        let quoted: Vec<String> = supported.iter().map(|s| go_text::quote(s)).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        self.add(ErrorKind::NotSupported, path, || Some(value.into()), detail);
    }

    pub fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        self.add(ErrorKind::TooLong, path, || None, format!("may not be more than {}", counted(max_bytes, "byte")));
    }

    /// For limits that count characters instead of bytes.
    pub fn too_long_characters(&mut self, path: &Path<'_>, max: usize) {
        self.add(ErrorKind::TooLong, path, || None, format!("may not be more than {}", counted(max, "character")));
    }

    pub fn too_short(&mut self, path: &Path<'_>, min: usize) {
        self.add(ErrorKind::TooShort, path, || None, format!("must be at least {}", counted(min, "character")));
    }

    pub fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        self.add(
            ErrorKind::TooMany,
            path,
            || Some(actual.into()),
            format!("must have at most {}", counted(max, "item")),
        );
    }

    pub fn too_few(&mut self, path: &Path<'_>, actual: usize, min: usize) {
        self.add(
            ErrorKind::TooFew,
            path,
            || Some(actual.into()),
            format!("must have at least {}", counted(min, "item")),
        );
    }

    pub fn internal(&mut self, path: &Path<'_>, detail: impl Into<String>) {
        self.add(ErrorKind::Internal, path, || None, detail.into());
    }

    fn add(&mut self, kind: ErrorKind, path: &Path<'_>, value: impl FnOnce() -> Option<Value>, detail: String) {
        if !self.is_full() {
            self.push(FieldError { kind, field: path.to_string(), value: value(), detail });
        }
    }
}

fn counted(count: usize, thing: &str) -> String {
    if count == 1 { format!("{count} {thing}") } else { format!("{count} {thing}s") }
}

/// All problems in one line, each once: alone as it is, several as `[a, b]`.
impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<String> = self.list.iter().map(FieldError::to_string).collect();
        let mut seen = HashSet::with_capacity(messages.len());
        let distinct: Vec<&str> = messages.iter().map(String::as_str).filter(|message| seen.insert(*message)).collect();
        match distinct.as_slice() {
            [] => Ok(()),
            [only] => f.write_str(only),
            several => write!(f, "[{}]", several.join(", ")),
        }
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
