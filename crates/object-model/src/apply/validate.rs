//! Does a value fit its schema as far as server-side apply cares: types, declared fields, keys of lists.

use std::collections::BTreeSet;

use serde_json::Value;

use super::problems::{Problems, go_type, literal, shown};
use super::set::Trail;
use super::view::{Form, ListView, View};
use crate::schema::{Scalar, Schema};

/// Are items of a list that cannot be told apart all right? They are in stored objects, not in applied ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    Allowed,
    Refused,
}

/// Everything that does not fit.
pub fn validate(schema: &Schema, value: &Value, duplicates: Duplicates) -> Result<(), Problems> {
    let mut check = Check { problems: Problems::default(), duplicates };
    check.visit(View::Typed(schema.root()), &Trail::root(), value);
    check.problems.or(())
}

struct Check {
    problems: Problems,
    duplicates: Duplicates,
}

impl Check {
    fn visit(&mut self, view: View<'_>, at: &Trail<'_>, value: &Value) {
        match (view.form(Some(value)), value) {
            (_, Value::Null) => {}
            (Form::Leaf(scalar), value) => {
                if let Some(why) = scalar.and_then(|scalar| misfit(scalar, value)) {
                    self.problems.add(at, why);
                }
            }
            (Form::List(list), Value::Array(items)) => self.list(list, at, items),
            (Form::List(_), other) => self.problems.add(at, format!("expected list, got &{{{}}}", shown(other))),
            (Form::Map(map), Value::Object(entries)) => {
                for (name, value) in entries {
                    let entry = map.entry(name);
                    let at = at.field(name);
                    if !entry.known {
                        return self.problems.add(&at, "field not declared in schema");
                    }
                    self.visit(entry.view, &at, value);
                }
            }
            (Form::Map(_), other) => self.problems.add(at, format!("expected map, got &{{{}}}", shown(other))),
        }
    }

    fn list(&mut self, list: ListView<'_>, at: &Trail<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (place, item) in items.iter().enumerate() {
            if list.is_atomic() {
                self.visit(list.item, &at.item(&super::Element::Index(place as i64)), item);
                continue;
            }
            let element = match list.element(item) {
                Ok(element) => element,
                Err(why) => return self.problems.add(at, format!("element {place}: {why}")),
            };
            if self.duplicates == Duplicates::Refused && seen.contains(&element) {
                self.problems.add(at, format!("duplicate entries for key {element}"));
            }
            self.visit(list.item, &at.item(&element), item);
            seen.insert(element);
        }
    }
}

fn misfit(scalar: Scalar, value: &Value) -> Option<String> {
    match scalar {
        Scalar::Int32 | Scalar::Int64 | Scalar::Float64 => {
            (!value.is_number()).then(|| format!("expected numeric (int or float), got {}", go_type(value)))
        }
        Scalar::String | Scalar::Bytes | Scalar::Duration => (!value.is_string())
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", literal(value))),
        Scalar::Bool => (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", shown(value))),
        Scalar::Quantity | Scalar::Time | Scalar::MicroTime | Scalar::IntOrString => {
            (value.is_array() || value.is_object()).then(|| format!("expected any scalar, got &{{{}}}", shown(value)))
        }
    }
}
