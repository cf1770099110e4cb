//! A value under validation: what it is, where it stands, and where its problems are written down.

use std::cell::RefCell;

use object_model::field::{ErrorKind, Errors, FieldError, Path};
use object_model::quantity::Quantity;
use serde_json::Value;

static ABSENT: Value = Value::Null;
static EMPTY_TEXT: Value = Value::String(String::new());

/// The problems found so far. Validators share it through their [`Field`]s.
#[derive(Default)]
pub struct Problems(RefCell<Errors>);

impl Problems {
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Will the next one be dropped?
    pub fn is_full(&self) -> bool {
        self.0.borrow().is_full()
    }

    pub fn into_errors(self) -> Errors {
        self.0.into_inner()
    }
}

/// A value at a path. Absent and null read alike, as the zero value of what is asked for.
///
/// `'v` is the object's lifetime, `'p` that of the path on the stack.
#[derive(Clone, Copy)]
pub struct Field<'v, 'p> {
    value: &'v Value,
    path: Path<'p>,
    problems: &'p Problems,
}

impl<'v, 'p> Field<'v, 'p> {
    pub fn root(value: &'v Value, problems: &'p Problems) -> Self {
        Self { value, path: Path::Root, problems }
    }

    /// Runs a validator on its own and tells what it found.
    pub fn check(value: &'v Value, validator: impl FnOnce(&Field<'v, '_>)) -> Errors {
        let problems = Problems::default();
        validator(&Field::root(value, &problems));
        problems.into_errors()
    }

    /// A field of this object.
    pub fn at<'q>(&'q self, name: &'q str) -> Field<'v, 'q> {
        self.step(self.value.get(name), Path::Field(&self.path, name))
    }

    /// The same value told at a deeper path, where Kubernetes names a field otherwise than the object does.
    pub fn told_at<'q>(&'q self, name: &'q str) -> Field<'v, 'q> {
        self.step(Some(self.value), Path::Field(&self.path, name))
    }

    /// An entry of this map.
    pub fn key<'q>(&'q self, key: &'q str) -> Field<'v, 'q> {
        self.step(self.value.get(key), Path::Key(&self.path, key))
    }

    /// An item of this list.
    pub fn index<'q>(&'q self, index: usize) -> Field<'v, 'q> {
        self.step(self.value.get(index), Path::Index(&self.path, index))
    }

    /// Another value at this path, such as the one this field would have had.
    pub fn with(&self, value: &'v Value) -> Field<'v, 'p> {
        Field { value, ..*self }
    }

    /// The same field with an absent value read as empty text, the way Kubernetes tells it.
    pub fn with_text(&self) -> Field<'v, 'p> {
        if self.is_set() { *self } else { self.with(&EMPTY_TEXT) }
    }

    fn step<'q>(&'q self, value: Option<&'v Value>, path: Path<'q>) -> Field<'v, 'q> {
        Field { value: value.unwrap_or(&ABSENT), path, problems: self.problems }
    }

    /// The items of this list.
    pub fn each(&self) -> impl Iterator<Item = Field<'v, '_>> {
        (0..self.len()).map(|i| self.index(i))
    }

    /// The entries of this map, in key order.
    pub fn entries(&self) -> impl Iterator<Item = (&'v str, Field<'v, '_>)> {
        self.value
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), self.step(Some(value), Path::Key(&self.path, key))))
    }

    pub fn value(&self) -> &'v Value {
        self.value
    }

    pub fn path(&self) -> &Path<'p> {
        &self.path
    }

    /// Is it there and not null?
    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Absent, or an empty text, list or map.
    pub fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            _ => false,
        }
    }

    /// How many items a list or entries a map has.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(entries) => entries.len(),
            _ => 0,
        }
    }

    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    pub fn is(&self, text: &str) -> bool {
        self.text() == text
    }

    pub fn is_one_of(&self, texts: &[&str]) -> bool {
        texts.contains(&self.text())
    }

    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The number, or 0.
    pub fn number(&self) -> i64 {
        self.int().unwrap_or_default()
    }

    pub fn flag(&self) -> Option<bool> {
        self.value.as_bool()
    }

    pub fn is_true(&self) -> bool {
        self.flag() == Some(true)
    }

    /// The quantity, or zero; decoding has refused what is none.
    pub fn quantity(&self) -> Quantity {
        quantity(self.value)
    }

    /// The texts of a list of text.
    pub fn texts(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        self.value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default())
    }

    /// Lets a rule of the object model judge the value at its path.
    pub fn judge(&self, rule: impl FnOnce(&'v Value, &Path<'_>, &mut Errors)) {
        rule(self.value, &self.path, &mut self.problems.0.borrow_mut());
    }

    /// How many problems there are by now, to tell whether a validator added any.
    pub fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// Is nothing told any more, so that a validator with much to tell may stop?
    pub fn is_full(&self) -> bool {
        self.problems.is_full()
    }

    pub fn missing(&self, detail: impl Into<String>) {
        self.tell(ErrorKind::Required, None, detail.into());
    }

    pub fn invalid(&self, detail: impl Into<String>) {
        self.tell(ErrorKind::Invalid, Some(self.value.clone()), detail.into());
    }

    /// Invalid here because of another value.
    pub fn invalid_value(&self, value: impl Into<Value>, detail: impl Into<String>) {
        self.tell(ErrorKind::Invalid, Some(value.into()), detail.into());
    }

    /// Holds the text to a rule that says itself what is wrong with it.
    pub fn held_to(&self, rule: fn(&Path<'_>, &str, &mut Errors)) {
        rule(&self.path, self.text(), &mut self.problems.0.borrow_mut());
    }

    /// The text is invalid in each of these ways.
    pub fn invalid_for(&self, messages: Vec<String>) {
        messages.into_iter().for_each(|message| self.invalid_value(self.text(), message));
    }

    pub fn forbidden(&self, detail: impl Into<String>) {
        self.tell(ErrorKind::Forbidden, None, detail.into());
    }

    pub fn not_found(&self) {
        self.tell(ErrorKind::NotFound, Some(self.value.clone()), String::new());
    }

    pub fn duplicate(&self) {
        self.duplicate_value(self.value.clone());
    }

    pub fn duplicate_value(&self, value: impl Into<Value>) {
        self.tell(ErrorKind::Duplicate, Some(value.into()), String::new());
    }

    /// One of the other errors, with the value and words given.
    pub fn tell(&self, kind: ErrorKind, value: Option<Value>, detail: String) {
        self.push(FieldError { kind, field: self.path.to_string(), value, detail });
    }

    pub fn not_supported(&self, supported: &[&str]) {
        self.problems.0.borrow_mut().not_supported(&self.path, self.with_text().value.clone(), supported);
    }

    pub fn too_long(&self, max_bytes: usize) {
        self.problems.0.borrow_mut().too_long(&self.path, max_bytes);
    }

    pub fn too_many(&self, max: usize) {
        self.problems.0.borrow_mut().too_many(&self.path, self.len(), max);
    }

    pub fn push(&self, error: FieldError) {
        self.problems.0.borrow_mut().push(error);
    }
}

/// A quantity in a decoded object, or zero.
pub fn quantity(value: &Value) -> Quantity {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Quantity::ZERO)
}
