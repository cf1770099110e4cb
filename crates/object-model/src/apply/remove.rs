//! Taking fields out of a value, or keeping only them.

use serde_json::{Map, Value};

use super::element::Element;
use super::set::{Set, Step};
use super::view::{Form, View, entries, items};
use crate::schema::Schema;

/// The value without these fields. Where all of a list or map goes, null stays.
pub fn remove_items(schema: &Schema, value: &Value, fields: &Set) -> Value {
    remove(View::Typed(schema.root()), value, fields)
}

fn remove(view: View<'_>, value: &Value, fields: &Set) -> Value {
    match view.form(Some(value)) {
        Form::Leaf(_) => value.clone(),
        Form::List(list) if !list.is_atomic() => {
            let keep = |item: &Value| match list.element(item).ok().and_then(|e| fields.get(Step::Item(&e))) {
                Some(node) if node.member => None,
                Some(node) => Some(remove(list.item, item, &node.children)),
                None => Some(item.clone()),
            };
            let kept: Vec<Value> = items(Some(value)).iter().filter_map(keep).collect();
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        Form::Map(map) if !map.atomic => {
            let keep = |(name, value): (&String, &Value)| match fields.get(Step::Field(name)) {
                Some(node) if node.member => None,
                Some(node) => Some((name.clone(), remove(map.entry(name).view, value, &node.children))),
                None => Some((name.clone(), value.clone())),
            };
            let kept: Map<String, Value> = entries(Some(value)).into_iter().flatten().filter_map(keep).collect();
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        Form::List(_) | Form::Map(_) => Value::Null,
    }
}

/// Only these fields of the value, with the keys of the list items they are in. A list or map that is itself among the
/// fields stays, if only as an empty one.
pub fn extract_items(schema: &Schema, value: &Value, fields: &Set) -> Value {
    extract(View::Typed(schema.root()), value, fields)
}

fn extract(view: View<'_>, value: &Value, fields: &Set) -> Value {
    match (view.form(Some(value)), value) {
        (Form::List(list), Value::Array(items)) if !list.is_atomic() => {
            let keep = |item: &Value| {
                let element = list.element(item).ok()?;
                let node = fields.get(Step::Item(&element))?;
                let mut kept = extract(list.item, item, &node.children);
                if let (Element::Key(keys), Value::Object(map)) = (&element, &mut kept) {
                    let present = keys.iter().filter(|(key, _)| item.get(&**key).is_some());
                    map.extend(present.map(|(key, value)| (key.to_string(), value.clone())));
                }
                Some(kept)
            };
            Value::Array(items.iter().filter_map(keep).collect())
        }
        (Form::Map(map), Value::Object(entries)) if !map.atomic => {
            let keep = |(name, value): (&String, &Value)| {
                let node = fields.get(Step::Field(name))?;
                Some((name.clone(), extract(map.entry(name).view, value, &node.children)))
            };
            Value::Object(entries.iter().filter_map(keep).collect())
        }
        _ => value.clone(),
    }
}
