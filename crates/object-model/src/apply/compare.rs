//! The fields of a value, and the fields in which two values differ.

use serde_json::Value;

use super::element::{Element, same};
use super::problems::Problems;
use super::set::{Set, Trail};
use super::view::{self, Form, ListView, View, entries, items};
use crate::schema::Schema;

/// The fields that a value sets: every leaf, every item of an associative list, every entry of a map.
pub fn field_set(schema: &Schema, value: &Value) -> Set {
    let mut set = Set::new();
    add_fields(&mut set, View::Typed(schema.root()), &Trail::root(), value);
    set
}

fn add_fields(set: &mut Set, view: View<'_>, at: &Trail<'_>, value: &Value) {
    match view.form(Some(value)) {
        Form::Leaf(_) => set.insert_trail(at),
        Form::List(list) if list.is_atomic() => set.insert_trail(at),
        Form::List(list) => {
            // An item that has no element was refused before; here it is nobody's.
            let found = view::index(list, items(Some(value)), drop);
            for run in found.chunk_by(|a, b| a.0 == b.0) {
                let [(element, item), more @ ..] = run else { continue };
                let at = at.item(element);
                // Items that cannot be told apart are owned as one.
                if more.is_empty() {
                    add_fields(set, list.item, &at, item);
                }
                set.insert_trail(&at);
            }
        }
        Form::Map(map) if map.atomic => set.insert_trail(at),
        Form::Map(map) => {
            for (name, value) in entries(Some(value)).into_iter().flatten() {
                let entry = map.entry(name);
                let at = at.field(name);
                add_fields(set, entry.view, &at, value);
                if !entry.named || value.is_null() || value.as_object().is_some_and(|map| map.is_empty()) {
                    set.insert_trail(&at);
                }
            }
        }
    }
}

/// In which fields a new value differs from an old one. A field is in one of the sets only, but for list items that
/// stop or start to be duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// The fields that the new value sets otherwise than the old one.
    pub fn changed(&self) -> Set {
        match (self.added.is_empty(), self.modified.is_empty()) {
            (true, _) => self.modified.clone(),
            (_, true) => self.added.clone(),
            _ => self.modified.union(&self.added),
        }
    }

    pub(super) fn map(self, keep: impl Fn(Set) -> Set) -> Self {
        Self { added: keep(self.added), modified: keep(self.modified), removed: keep(self.removed) }
    }
}

/// Compares two values of one kind.
pub fn compare(schema: &Schema, old: &Value, new: &Value) -> Result<Comparison, Problems> {
    let mut walk = Walk { found: Comparison::default(), problems: Problems::default() };
    walk.visit(View::Typed(schema.root()), &Trail::root(), Some(old), Some(new));
    walk.problems.or(walk.found)
}

struct Walk {
    found: Comparison,
    problems: Problems,
}

/// Whether null, scalar, list or map.
fn sort_of(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(_) => 2,
        Value::Object(_) => 3,
    }
}

impl Walk {
    fn visit(&mut self, view: View<'_>, at: &Trail<'_>, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, None) => return,
            (None, Some(_)) => self.found.added.insert_trail(at),
            (Some(_), None) => self.found.removed.insert_trail(at),
            // Without a schema a value may turn into something else: what was there goes, what is there comes.
            (Some(a), Some(b)) if view.is_open() && sort_of(a) != sort_of(b) => {
                self.inside(view.form(old), at, old, new);
            }
            (Some(_), Some(_)) => {}
        }
        self.inside(view.form(new.or(old)), at, old, new);
    }

    fn inside(&mut self, form: Form<'_>, at: &Trail<'_>, old: Option<&Value>, new: Option<&Value>) {
        match form {
            Form::Leaf(_) => self.leaf(at, old, new),
            Form::List(list) => {
                let (a, b) = (items(old), items(new));
                if list.is_atomic() || (a.is_empty() && b.is_empty()) {
                    self.leaf(at, old, new);
                } else if a.len() != b.len() || a.iter().zip(b).any(|(a, b)| !same(a, b)) {
                    self.list(list, at, a, b);
                }
            }
            Form::Map(map) => {
                let (a, b) = (entries(old), entries(new));
                if map.atomic || (a.is_none_or(|m| m.is_empty()) && b.is_none_or(|m| m.is_empty())) {
                    self.leaf(at, old, new);
                } else {
                    view::zip(a, b, |name, a, b| self.visit(map.entry(name).view, &at.field(name), a, b));
                }
            }
        }
    }

    fn leaf(&mut self, at: &Trail<'_>, old: Option<&Value>, new: Option<&Value>) {
        if let (Some(old), Some(new)) = (old, new)
            && !same(old, new)
        {
            self.found.modified.insert_trail(at);
        }
    }

    fn list(&mut self, list: ListView<'_>, at: &Trail<'_>, old: &[Value], new: &[Value]) {
        let mut fail = |why: String| self.problems.add(at, why);
        let old = view::index(list, old, &mut fail);
        let new = view::index(list, new, &mut fail);
        let (mut old, mut new) = (old.as_slice(), new.as_slice());
        while let Some(element) = [old.first(), new.first()].into_iter().flatten().map(|(e, _)| e).min() {
            let (a, b) = (take_run(&mut old, element), take_run(&mut new, element));
            self.item(list, &at.item(element), a, b);
        }
    }

    /// Compares the items of one element. Duplicates are owned as one, so what was owned inside of them goes.
    fn item(&mut self, list: ListView<'_>, at: &Trail<'_>, old: &[(Element, &Value)], new: &[(Element, &Value)]) {
        match (old, new) {
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || old.iter().zip(new).any(|(a, b)| !same(a.1, b.1)) {
                    self.found.modified.insert_trail(at);
                }
            }
            ([_, _, ..], rest) => {
                self.visit(list.item, at, None, rest.first().map(|i| i.1));
                self.found.removed.insert_trail(at);
            }
            (rest, [_, _, ..]) => {
                self.visit(list.item, at, rest.first().map(|i| i.1), None);
                self.found.added.insert_trail(at);
            }
            (old, new) => self.visit(list.item, at, old.first().map(|i| i.1), new.first().map(|i| i.1)),
        }
    }
}

/// Splits the items of one element off a sorted list.
fn take_run<'s, 'v>(list: &mut &'s [(Element, &'v Value)], element: &Element) -> &'s [(Element, &'v Value)] {
    let end = list.iter().take_while(|(e, _)| e == element).count();
    let (run, rest) = list.split_at(end);
    *list = rest;
    run
}
