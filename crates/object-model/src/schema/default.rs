//! Filling in declared defaults.
//!
//! A field that is missing, or null where null is not allowed, gets the default of its type. So do null items of lists
//! and null entries of maps, but never missing ones. Idempotent: a default is complete only after the defaults inside it
//! have been filled in too.

use serde_json::Value;

use super::{Ref, Schema, Shape};

/// Fills in the defaults of a whole object.
pub fn fill(schema: &Schema, object: &mut Value) {
    fill_value(schema.root(), object);
}

fn fill_value(node: Ref<'_>, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, field) in fields(node) {
                let Some(default) = &field.node().default else { continue };
                let current = object.get(name);
                if current.is_none() || current.is_some_and(Value::is_null) && !field.node().nullable {
                    object.insert(name.to_owned(), Value::clone(default));
                }
            }
            for (name, value) in object.iter_mut() {
                if let Some(child) = node.property(name) {
                    fill_child(child, value);
                }
            }
        }
        Value::Array(items) => {
            let Some(item_node) = node.element() else { return };
            items.iter_mut().for_each(|item| fill_child(item_node, item));
        }
        _ => {}
    }
}

fn fill_child(node: Ref<'_>, value: &mut Value) {
    if value.is_null()
        && !node.node().nullable
        && let Some(default) = &node.node().default
    {
        *value = Value::clone(default);
    }
    fill_value(node, value);
}

/// Drops null fields and map entries that may not be null and have no default, as decoding into a struct would.
/// Null items of lists stay, for validation to see.
pub fn drop_nulls(schema: &Schema, object: &mut Value) {
    drop_nulls_in(schema.root(), object);
}

fn drop_nulls_in(node: Ref<'_>, value: &mut Value) {
    match value {
        Value::Object(object) => object.retain(|name, value| {
            let Some(child) = node.property(name).filter(|child| !child.is_built_in()) else { return true };
            let dropped = value.is_null() && !child.node().nullable && child.node().default.is_none();
            if !dropped {
                drop_nulls_in(child, value);
            }
            !dropped
        }),
        Value::Array(items) => {
            let Some(item_node) = node.element() else { return };
            items.iter_mut().for_each(|item| drop_nulls_in(item_node, item));
        }
        _ => {}
    }
}

/// The named fields of an object here.
pub(super) fn fields(node: Ref<'_>) -> impl Iterator<Item = (&str, Ref<'_>)> {
    let of_struct = match node.shape() {
        Shape::Struct(s) => &*s.fields,
        _ => &[],
    };
    let untyped =
        node.rules().and_then(|rules| rules.untyped.as_deref()).map_or(&[][..], |untyped| &untyped.properties);
    let of_struct = of_struct.iter().map(move |field| (&*field.name, node.to(field.r#type)));
    of_struct.chain(untyped.iter().map(move |(name, id)| (&**name, node.to(*id))))
}

#[cfg(test)]
mod tests;
