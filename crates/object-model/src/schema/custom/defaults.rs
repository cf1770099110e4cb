//! Defaults must fit the schema that declares them.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::field::{Errors, Path};
use crate::schema::default::fields;
use crate::schema::prune::{Malformed, coerce, is_meta_field, prune_value};
use crate::schema::validate::{validate_resources, validate_value};
use crate::schema::{Ref, Schema, TypeId};

/// Checks the defaults of a whole schema.
pub(super) fn check(root: Ref<'_>, at: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    walk(root, root, true, None, at, &mut errors);
    errors
}

/// The way from a resource down to a default in its metadata.
#[derive(Clone, Copy)]
enum Way<'a> {
    Field(Option<&'a Way<'a>>, &'a str),
    Item(&'a Way<'a>),
}

impl Way<'_> {
    /// The resource that has only this value.
    fn surround(&self, value: Value) -> Value {
        match self {
            Way::Item(list) => list.surround(Value::Array(vec![value])),
            Way::Field(parent, name) => {
                let object = Value::Object(Map::from_iter([((*name).to_owned(), value)]));
                match parent {
                    Some(parent) => parent.surround(object),
                    None => object,
                }
            }
        }
    }
}

/// `resource` is the nearest resource around the node, `way` leads from there if the node is part of its metadata.
fn walk(node: Ref<'_>, resource: Ref<'_>, is_root: bool, way: Option<&Way<'_>>, at: &Path<'_>, errors: &mut Errors) {
    let is_resource = is_root || node.is_resource();
    let (resource, way) = if is_resource { (node, None) } else { (resource, way) };
    if let Some(default) = &node.node().default {
        match way {
            None => check_default(node, default, &at.child("default"), errors),
            Some(way) => check_metadata(node, resource, way, default, &at.child("default"), errors),
        }
    }
    if let Some(item) = node.element() {
        walk(item, resource, false, way.map(Way::Item).as_ref(), &at.child("items"), errors);
    }
    let properties = at.child("properties");
    for (name, property) in fields(node) {
        let here = Way::Field(way, name);
        let inside = way.is_some() || is_resource && is_meta_field(name);
        walk(property, resource, false, inside.then_some(&here), &properties.key(name), errors);
    }
}

fn check_default(node: Ref<'_>, default: &Value, at: &Path<'_>, errors: &mut Errors) {
    let mut pruned = default.clone();
    if prune_value(node, &mut pruned) {
        errors.invalid(at, default.clone(), "must not have unknown fields");
    }
    let mut coerced = default.clone();
    if let Err(mut error) = coerce(node, &mut coerced, false, Malformed::Refuse) {
        error.field = format!("{at}.{}", error.field);
        return errors.push(error);
    }
    let before = errors.len();
    validate_resources(node, &coerced, at, errors);
    if errors.len() == before {
        errors.extend(validate_value(node, &coerced, at));
    }
}

/// A default in metadata must make metadata that is valid.
fn check_metadata(
    node: Ref<'_>,
    resource: Ref<'_>,
    way: &Way<'_>,
    default: &Value,
    at: &Path<'_>,
    errors: &mut Errors,
) {
    let mut whole = way.surround(default.clone());
    if let Some(object) = whole.as_object_mut() {
        object.entry("apiVersion").or_insert_with(|| "validation/v1".into());
        object.entry("kind").or_insert_with(|| "Validation".into());
    }
    let problem = match coerce(resource, &mut whole, true, Malformed::Refuse) {
        Err(error) => Some(error.to_string()),
        Ok(_) => {
            let mut found = Errors::new();
            validate_resources(resource, &whole, &Path::Root, &mut found);
            (!found.is_empty()).then(|| found.to_string())
        }
    };
    match problem {
        Some(words) => errors.invalid(at, default.clone(), format!("must result in valid metadata: {words}")),
        None => errors.extend(validate_value(node, default, at)),
    }
}

/// The schema with every default pruned by it, as it is served.
pub(super) fn pruned(schema: Schema) -> Schema {
    let Schema { mut types, root } = schema;
    let declared: Vec<TypeId> =
        (0..types.len() as u32).map(TypeId).filter(|id| types.get(*id).default.is_some()).collect();
    for id in declared {
        let node = Ref { types: &types, id };
        let Some(mut default) = node.node().default.clone() else { continue };
        prune_value(node, &mut default);
        // What cannot be coerced was refused when the definition was checked.
        let _ = coerce(node, &mut default, false, Malformed::Drop);
        if let Some(types) = Arc::get_mut(&mut types) {
            types.nodes[id.0 as usize].default = Some(default);
        }
    }
    Schema { types, root }
}
