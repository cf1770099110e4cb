//! Is a schema structural?
//!
//! The rules: every node has a type; logical combinations say nothing of types, defaults and extensions, and speak only
//! of fields that the schema has outside of them; metadata is restricted to names. Errors come sorted.

use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::schema::validate::Pattern;

use super::props::Props;

/// A keyword of JSON schema that Kubernetes does not have, anywhere in the schema.
pub(super) fn unsupported(props: &Props) -> Option<String> {
    let here = [
        (!props.id.is_empty(), "OpenAPIV3Schema 'id' is not supported"),
        (!props.schema.is_empty(), "OpenAPIV3Schema 'schema' is not supported"),
        (props.reference.as_ref().is_some_and(|r| !r.is_empty()), "OpenAPIV3Schema '$ref' is not supported"),
        (!props.pattern_properties.is_empty(), "OpenAPIV3Schema 'patternProperties' is not supported"),
        (
            props.dependencies.as_ref().is_some_and(|d| d.as_object().is_some_and(|d| !d.is_empty())),
            "OpenAPIV3Schema 'dependencies' is not supported",
        ),
        (props.additional_items.is_some(), "OpenAPIV3Schema 'additionalItems' is not supported"),
        (!props.definitions.is_empty(), "OpenAPIV3Schema 'definitions' is not supported"),
        (
            props.preserve_unknown == Some(false),
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined",
        ),
        (props.has_item_list(), "OpenAPIV3Schema 'items' must be a schema, but is an array"),
    ];
    let here = here.into_iter().find(|(found, _)| *found).map(|(_, words)| words.to_owned());
    here.or_else(|| props.children().find_map(unsupported))
}

pub(super) fn check(root: &Props, at: &Path<'_>) -> Errors {
    let mut errors = Errors::new();
    check_node(root, Level::Root, at, &mut errors);
    check_complete(root, root, at, at, &mut errors);
    let mut sorted: Vec<(String, FieldError)> = errors.into_iter().map(|error| (error.to_string(), error)).collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    let mut errors = Errors::new();
    sorted.into_iter().for_each(|(_, error)| errors.push(error));
    errors
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

fn check_node(props: &Props, level: Level, path: &Path<'_>, errors: &mut Errors) {
    if props.type_name == "array" && props.item().is_none() {
        errors.required(&path.child("items"), "must be specified");
    }
    if let Some(item) = props.item() {
        check_node(item, Level::Item, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &props.properties {
        check_node(property, Level::Field, &properties.key(name), errors);
    }
    let additional = path.child("additionalProperties");
    if props.additional_properties.is_some() && level == Level::Root {
        errors.forbidden(&additional, "must not be used at the root");
    }
    if let Some(schema) = props.additional() {
        check_node(schema, Level::Field, &additional, errors);
    }
    if props.int_or_string {
        let words = "must be false if x-kubernetes-int-or-string is true";
        if props.preserves_unknown() {
            errors.invalid(&path.child("x-kubernetes-preserve-unknown-fields"), true, words);
        }
        if props.embedded {
            errors.invalid(&path.child("x-kubernetes-embedded-resource"), true, words);
        }
    }
    check_values(props, Exempt::at(props), path, errors);
    check_type(props, level, path, errors);
    check_resource(props, level, path, errors);
}

fn check_type(props: &Props, level: Level, path: &Path<'_>, errors: &mut Errors) {
    let place = path.child("type");
    let words = "must be object if x-kubernetes-embedded-resource is true";
    match props.type_name.as_str() {
        "" if props.embedded => errors.required(&place, words),
        name if props.embedded && name != "object" => errors.invalid(&place, name, words),
        "" if !props.int_or_string && !props.preserves_unknown() => errors.required(
            &place,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ),
        _ => {}
    }
    if level == Level::Root && !matches!(props.type_name.as_str(), "" | "object") {
        errors.invalid(&place, props.type_name.as_str(), "must be object at the root");
    }
}

/// What is demanded of the object itself and of embedded resources.
fn check_resource(props: &Props, level: Level, path: &Path<'_>, errors: &mut Errors) {
    if props.embedded && props.additional_properties.is_some() {
        let words = "must not be used if x-kubernetes-embedded-resource is set";
        errors.forbidden(&path.child("additionalProperties"), words);
    }
    let is_resource = level == Level::Root || props.embedded;
    let properties = path.child("properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = props.properties.get(name).filter(|p| is_resource && p.type_name != "string") {
            errors.invalid(&properties.key(name).child("type"), property.type_name.as_str(), "must be string");
        }
    }
    if let Some(metadata) = props.properties.get("metadata") {
        let place = properties.key("metadata");
        if is_resource && metadata.type_name != "object" {
            errors.invalid(&place.child("type"), metadata.type_name.as_str(), "must be object");
        }
        if level == Level::Root && !only_names(metadata) {
            errors.forbidden(
                &place,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            );
        }
    }
    if props.embedded && !props.preserves_unknown() && props.properties.is_empty() {
        errors.required(
            &properties,
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        );
    }
}

fn only_names(metadata: &Props) -> bool {
    let mut rest = metadata.clone();
    if rest.properties.keys().all(|name| name == "name" || name == "generateName") {
        rest.properties.clear();
    }
    rest.type_name.clear();
    rest.default = None;
    rest == Props::default()
}

/// The two ways in which an int-or-string may name its types once more.
#[derive(Clone, Copy, PartialEq)]
enum Exempt {
    Nothing,
    AnyOf,
    FirstAllOf,
}

impl Exempt {
    fn at(props: &Props) -> Self {
        if is_int_or_string(&props.any_of) {
            Exempt::AnyOf
        } else if props.all_of.first().is_some_and(|first| is_int_or_string(&first.any_of)) {
            Exempt::FirstAllOf
        } else {
            Exempt::Nothing
        }
    }
}

fn is_int_or_string(any_of: &[Props]) -> bool {
    let only = |props: &Props, name: &str| *props == Props { type_name: name.to_owned(), ..Props::default() };
    matches!(any_of, [first, second] if only(first, "integer") && only(second, "string"))
}

/// Value rules of a node or of a branch of a combination.
fn check_values(props: &Props, exempt: Exempt, path: &Path<'_>, errors: &mut Errors) {
    if exempt != Exempt::AnyOf {
        let any_of = path.child("anyOf");
        for (index, branch) in props.any_of.iter().enumerate() {
            check_branch(branch, Exempt::Nothing, &any_of.index(index), errors);
        }
    }
    let all_of = path.child("allOf");
    for (index, branch) in props.all_of.iter().enumerate() {
        let first = exempt == Exempt::FirstAllOf && index == 0;
        check_branch(branch, if first { Exempt::AnyOf } else { Exempt::Nothing }, &all_of.index(index), errors);
    }
    let one_of = path.child("oneOf");
    for (index, branch) in props.one_of.iter().enumerate() {
        check_branch(branch, Exempt::Nothing, &one_of.index(index), errors);
    }
    if let Some(not) = &props.not {
        check_branch(not, Exempt::Nothing, &path.child("not"), errors);
    }
    if !props.pattern.is_empty()
        && let Err(error) = Pattern::check(&props.pattern)
    {
        let words = format!("must be a valid regular expression, but isn't: {error}");
        errors.invalid(&path.child("pattern"), props.pattern.as_str(), words);
    }
}

fn check_branch(props: &Props, exempt: Exempt, path: &Path<'_>, errors: &mut Errors) {
    check_values(props, exempt, path, errors);
    if let Some(item) = props.item() {
        check_branch(item, Exempt::Nothing, &path.child("items"), errors);
    }
    let properties = path.child("properties");
    for (name, property) in &props.properties {
        check_branch(property, Exempt::Nothing, &properties.key(name), errors);
    }
    let given = [
        (!props.type_name.is_empty(), "type", "must be empty to be structural"),
        (
            props.additional().is_some() || props.additional_flag() == Some(true),
            "additionalProperties",
            "must be undefined to be structural",
        ),
        (props.default.is_some(), "default", "must be undefined to be structural"),
        (!props.title.is_empty(), "title", "must be empty to be structural"),
        (!props.description.is_empty(), "description", "must be empty to be structural"),
        (props.nullable, "nullable", "must be false to be structural"),
        (props.preserves_unknown(), "x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        (props.embedded, "x-kubernetes-embedded-resource", "must be false to be structural"),
        (props.int_or_string, "x-kubernetes-int-or-string", "must be false to be structural"),
        (!props.list_map_keys.is_empty(), "x-kubernetes-list-map-keys", "must be empty to be structural"),
        (props.list_type.is_some(), "x-kubernetes-list-type", "must be undefined to be structural"),
        (props.map_type.is_some(), "x-kubernetes-map-type", "must be undefined to be structural"),
        (!props.validations.is_empty(), "x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (_, name, words) in given.into_iter().filter(|(given, ..)| *given) {
        errors.forbidden(&path.child(name), words);
    }
    if props.properties.contains_key("metadata") {
        errors.forbidden(&properties.key("metadata"), "must not be specified in a nested context");
    }
}

/// Whatever a combination speaks of must be specified outside of it.
fn check_complete(values: &Props, node: &Props, node_at: &Path<'_>, at: &Path<'_>, errors: &mut Errors) {
    if let Some(not) = &values.not {
        check_branch_complete(not, node, node_at, &at.child("not"), errors);
    }
    for (name, branches) in [("allOf", &values.all_of), ("anyOf", &values.any_of), ("oneOf", &values.one_of)] {
        let list = at.child(name);
        for (index, branch) in branches.iter().enumerate() {
            check_branch_complete(branch, node, node_at, &list.index(index), errors);
        }
    }
}

fn check_branch_complete(branch: &Props, node: &Props, node_at: &Path<'_>, at: &Path<'_>, errors: &mut Errors) {
    check_complete(branch, node, node_at, at, errors);
    if let Some(item) = branch.item() {
        let (node_items, items) = (node_at.child("items"), at.child("items"));
        match node.item() {
            Some(node) => check_branch_complete(item, node, &node_items, &items, errors),
            None => errors.push(missing(&node_items, &items)),
        }
    }
    let (node_properties, properties) = (node_at.child("properties"), at.child("properties"));
    for (name, property) in &branch.properties {
        let (node_at, at) = (node_properties.key(name), properties.key(name));
        match node.properties.get(name) {
            Some(node) => check_branch_complete(property, node, &node_at, &at, errors),
            None => errors.push(missing(&node_at, &at)),
        }
    }
}

fn missing(node_at: &Path<'_>, at: &Path<'_>) -> FieldError {
    let detail = format!("because it is defined in {at}");
    FieldError { kind: ErrorKind::Required, field: node_at.to_string(), value: None, detail }
}
