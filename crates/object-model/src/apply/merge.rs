//! Laying an applied configuration over a live object.
//!
//! Nothing is removed here: leaves come from the configuration where it has them, everything else stays as it is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::element::Element;
use super::problems::Problems;
use super::set::Trail;
use super::view::{self, Form, ListView, MapView, View, entries, items};
use crate::schema::Schema;

/// The live object with the configuration laid over it.
pub fn merge(schema: &Schema, live: &Value, applied: &Value) -> Result<Value, Problems> {
    let mut problems = Problems::default();
    let merged = value(&mut problems, View::Typed(schema.root()), &Trail::root(), live, applied);
    problems.or(merged)
}

fn value(problems: &mut Problems, view: View<'_>, at: &Trail<'_>, live: &Value, applied: &Value) -> Value {
    match view.form(Some(applied)) {
        Form::Map(map) if !map.atomic => {
            let (a, b) = (entries(Some(live)), entries(Some(applied)));
            let empty = a.is_none_or(|m| m.is_empty()) && b.is_none_or(|m| m.is_empty());
            if empty { applied.clone() } else { object(problems, map, at, live, applied) }
        }
        Form::List(list) if !list.is_atomic() => {
            let (a, b) = (items(Some(live)), items(Some(applied)));
            if a.is_empty() && b.is_empty() { applied.clone() } else { items_in_order(problems, list, at, a, b) }
        }
        _ => applied.clone(),
    }
}

fn object(problems: &mut Problems, map: MapView<'_>, at: &Trail<'_>, live: &Value, applied: &Value) -> Value {
    let mut out = Map::new();
    view::zip(entries(Some(live)), entries(Some(applied)), |name, live, applied| {
        let merged = match (live, applied) {
            (Some(live), Some(applied)) => value(problems, map.entry(name).view, &at.field(name), live, applied),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => return,
        };
        out.insert(name.to_owned(), merged);
    });
    Value::Object(out)
}

/// The elements of a list in its order, and the item of each. Duplicates have none: they are not merged with.
type Items<'v> = (Vec<Element>, BTreeMap<Element, Option<&'v Value>>);

fn index<'v>(
    problems: &mut Problems,
    list: ListView<'_>,
    at: &Trail<'_>,
    items: &'v [Value],
    duplicates: bool,
) -> Items<'v> {
    let (mut order, mut found) = (Vec::with_capacity(items.len()), BTreeMap::new());
    for (place, item) in items.iter().enumerate() {
        match list.element(item) {
            Err(why) => problems.add(at, format!("element {place}: {why}")),
            Ok(element) if !duplicates && found.contains_key(&element) => {
                problems.add(at, format!("duplicate entries for key {element}"));
            }
            Ok(element) => {
                found.entry(element.clone()).and_modify(|item| *item = None).or_insert(Some(item));
                order.push(element);
            }
        }
    }
    (order, found)
}

/// Merges associative lists. Items of both keep the order of the configuration; items of the live list alone stay
/// behind the item they stood behind, as far as that is possible.
fn items_in_order(
    problems: &mut Problems,
    list: ListView<'_>,
    at: &Trail<'_>,
    live: &[Value],
    applied: &[Value],
) -> Value {
    let (theirs, applied_items) = index(problems, list, at, applied, false);
    let (ours, live_items) = index(problems, list, at, live, true);
    if ours.len() != live.len() || theirs.len() != applied.len() {
        return Value::Null; // A problem was told; the result is not used.
    }
    let mut merge_item = |element: &Element| match (live_items.get(element), applied_items.get(element)) {
        (Some(Some(live)), Some(Some(applied))) => value(problems, list.item, &at.item(element), live, applied),
        (_, Some(Some(applied))) => (*applied).clone(),
        _ => Value::Null,
    };
    let mut shared = theirs.iter().filter(|e| live_items.contains_key(e)).peekable();
    let mut merged = BTreeSet::new();
    let mut out = Vec::with_capacity(ours.len().max(theirs.len()));
    let (mut o, mut t) = (0, 0);
    loop {
        match (ours.get(o), theirs.get(t)) {
            (None, None) => return Value::Array(out),
            (Some(our), Some(their)) if our == their => {
                out.push(merge_item(our));
                merged.insert(our);
                shared.next();
                (o, t) = (o + 1, t + 1);
            }
            // An item of both whose turn, in the order of the configuration, has not come.
            (Some(our), Some(_))
                if applied_items.contains_key(our) && shared.peek().is_some_and(|next| *next != our) =>
            {
                o += 1;
            }
            (Some(our), _) if !applied_items.contains_key(our) => {
                out.extend(live.get(o).cloned());
                o += 1;
            }
            (our, their) => {
                if their.is_none() || our.is_some_and(|our| merged.contains(our)) {
                    o += 1;
                }
                if let Some(their) = their {
                    out.push(merge_item(their));
                    merged.insert(their);
                    t += 1;
                    shared.next_if(|next| *next == their);
                }
            }
        }
    }
}
