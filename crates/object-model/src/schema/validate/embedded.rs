//! Resources inside of custom objects (`x-kubernetes-embedded-resource`) must be resources.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::field::{Errors, Path};
use crate::identity::GroupVersion;
use crate::meta::{self, Meta};
use crate::names;
use crate::schema::Ref;

pub(super) fn check(root: Ref<'_>, object: &Value, errors: &mut Errors) {
    check_node(root, object, &Path::Root, errors);
}

/// Checks every embedded resource at and below a value.
pub(in crate::schema) fn check_node(node: Ref<'_>, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if node.is_built_in() {
        return;
    }
    match value {
        Value::Object(object) => {
            if node.is_resource() {
                check_resource(object, path, errors);
            }
            for (name, value) in object {
                if let Some(child) = node.property(name) {
                    check_node(child, value, &node.step(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(item_node) = node.element() else { return };
            for (index, item) in items.iter().enumerate() {
                check_node(item_node, item, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

/// Demands `apiVersion` and `kind`; metadata may be missing, and so may the name in it.
fn check_resource(object: &Map<String, Value>, path: &Path<'_>, errors: &mut Errors) {
    let api_version = path.child("apiVersion");
    match object.get("apiVersion") {
        None => errors.required(&api_version, ""),
        Some(Value::String(text)) if text.is_empty() => errors.invalid(&api_version, "", "must not be empty"),
        Some(Value::String(text)) => {
            if let Err(error) = GroupVersion::parse(text) {
                errors.invalid(&api_version, text.as_str(), error.to_string());
            }
        }
        Some(other) => errors.invalid(&api_version, other.clone(), "must be a string"),
    }
    let kind = path.child("kind");
    match object.get("kind") {
        None => errors.required(&kind, ""),
        Some(Value::String(text)) if text.is_empty() => errors.invalid(&kind, "", "must not be empty"),
        Some(Value::String(text)) => {
            let problems = names::dns1035_label(&text.to_lowercase());
            if !problems.is_empty() {
                let words = format!("may have mixed case, but should otherwise match: {}", problems.join(","));
                errors.invalid(&kind, text.as_str(), words);
            }
        }
        Some(other) => errors.invalid(&kind, other.clone(), "must be a string"),
    }
    if let Some(Value::Object(metadata)) = object.get("metadata") {
        check_metadata(metadata, &path.child("metadata"), errors);
    }
}

fn check_metadata(metadata: &Map<String, Value>, path: &Path<'_>, errors: &mut Errors) {
    let mut named = Cow::Borrowed(metadata);
    if Meta::from_fields(metadata).name().is_empty() {
        named.to_mut().insert("name".to_owned(), "unnamed".into());
    }
    let meta = Meta::from_fields(&named);
    meta::validate::create(meta, !meta.namespace().is_empty(), names::name_is_path_segment, path, errors);
}
