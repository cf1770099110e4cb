//! What Kubernetes demands of a schema in a definition beyond structure: list and map types, their keys, defaults where
//! they make sense, expression rules in good form, and nothing that JSON schema has and Kubernetes has not.

use crate::field::{Errors, Path};
use crate::schema::prune::is_meta_field;

use super::props::{ExpressionProps, OneOrMany, Props};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Where in a schema a check is.
#[derive(Clone, Copy, Default)]
struct Context {
    /// Why defaults are not allowed here.
    no_defaults: Option<&'static str>,
    inside_metadata: bool,
}

pub(super) fn check(root: &Props, at: &Path<'_>, errors: &mut Errors) {
    check_props(root, Context::default(), true, at, errors);
}

/// With a status subresource the status is checked alone, so the root may say nothing of it that would get lost.
pub(super) fn check_root_with_status(props: &Props, shown: &serde_json::Value, at: &Path<'_>, errors: &mut Errors) {
    if !matches!(props.type_name.as_str(), "" | "object") {
        let words =
            r#"only "object" is allowed as the type at the root of the schema if the status subresource is enabled"#;
        return errors.invalid(&at.child("type"), props.type_name.as_str(), words);
    }
    let allowed = Props {
        description: props.description.clone(),
        type_name: props.type_name.clone(),
        format: props.format.clone(),
        title: props.title.clone(),
        maximum: props.maximum,
        exclusive_maximum: props.exclusive_maximum,
        minimum: props.minimum,
        exclusive_minimum: props.exclusive_minimum,
        max_length: props.max_length,
        min_length: props.min_length,
        pattern: props.pattern.clone(),
        max_items: props.max_items,
        min_items: props.min_items,
        unique_items: props.unique_items,
        multiple_of: props.multiple_of,
        required: props.required.clone(),
        items: props.items.clone(),
        properties: props.properties.clone(),
        external_docs: props.external_docs.clone(),
        example: props.example.clone(),
        preserve_unknown: props.preserve_unknown,
        validations: props.validations.clone(),
        ..Props::default()
    };
    if allowed != *props {
        let words = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength \
            MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
            XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource \
            is enabled";
        errors.invalid(at, shown.clone(), words);
    }
}

fn check_props(props: &Props, context: Context, is_root: bool, path: &Path<'_>, errors: &mut Errors) {
    check_keywords(props, context, path, errors);
    if props.unique_items {
        let words = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.forbidden(&path.child("uniqueItems"), words);
    }
    check_children(props, context, is_root, path, errors);
    if props.preserve_unknown == Some(false) {
        errors.invalid(&path.child("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined");
    }
    check_map_type(props, path, errors);
    check_list_type(props, path, errors);
    if props.list_type.as_deref() == Some("map") {
        check_keyed_list(props, path, errors);
    }
    check_merged_items(props, path, errors);
    let rules = path.child("x-kubernetes-validations");
    for (index, rule) in props.validations.iter().enumerate() {
        check_expression(rule, props, &rules.index(index), errors);
    }
}

fn check_keywords(props: &Props, context: Context, path: &Path<'_>, errors: &mut Errors) {
    if !props.type_name.is_empty() && !TYPES.contains(&props.type_name.as_str()) {
        errors.not_supported(&path.child("type"), props.type_name.as_str(), &TYPES);
    }
    if let Some(reason) = context.no_defaults.filter(|_| props.default.is_some()) {
        errors.forbidden(&path.child("default"), format!("must not be set {reason}"));
    }
    let unsupported = [
        (!props.id.is_empty(), "id"),
        (props.additional_items.is_some(), "additionalItems"),
        (!props.pattern_properties.is_empty(), "patternProperties"),
        (!props.definitions.is_empty(), "definitions"),
        (props.dependencies.is_some(), "dependencies"),
        (props.reference.is_some(), "$ref"),
    ];
    for (_, name) in unsupported.into_iter().filter(|(given, _)| *given) {
        errors.forbidden(&path.child(name), format!("{name} is not supported"));
    }
    if props.type_name == "null" {
        errors.forbidden(&path.child("type"), "type cannot be set to null, use nullable as an alternative");
    }
    if props.has_item_list() {
        errors.forbidden(&path.child("items"), "items must be a schema object and not an array");
    }
    if context.inside_metadata && props.embedded {
        errors.forbidden(&path.child("x-kubernetes-embedded-resource"), "must not be used inside of resource meta");
    }
}

fn check_children(props: &Props, context: Context, is_root: bool, path: &Path<'_>, errors: &mut Errors) {
    let additional_at = path.child("additionalProperties");
    if !props.properties.is_empty() && (props.additional().is_some() || props.additional_flag() == Some(false)) {
        errors.forbidden(&additional_at, "additionalProperties and properties are mutual exclusive");
    }
    if let Some(additional) = props.additional() {
        let mut context = context;
        if context.inside_metadata {
            context.no_defaults = Some("inside additionalProperties applying to object metadata");
        }
        check_props(additional, context, false, &additional_at, errors);
    }
    let properties = path.child("properties");
    for (name, property) in &props.properties {
        let mut context = context;
        if (is_root || props.embedded) && is_meta_field(name) {
            context.inside_metadata = true;
            if is_root {
                context.no_defaults = Some(match name.as_str() {
                    "metadata" => "in top-level metadata",
                    "kind" => "in top-level kind",
                    _ => "in top-level apiVersion",
                });
            }
        }
        check_props(property, context, false, &properties.key(name), errors);
    }
    if let Some(not) = &props.not {
        check_props(not, context, false, &path.child("not"), errors);
    }
    for (name, branches) in [("allOf", &props.all_of), ("oneOf", &props.one_of), ("anyOf", &props.any_of)] {
        let list = path.child(name);
        for (index, branch) in branches.iter().enumerate() {
            check_props(branch, context, false, &list.index(index), errors);
        }
    }
    let definitions = path.child("definitions");
    for (name, definition) in &props.definitions {
        check_props(definition, context, false, &definitions.key(name), errors);
    }
    let items = path.child("items");
    match &props.items {
        Some(OneOrMany::One(item)) => check_props(item, context, false, &items, errors),
        Some(OneOrMany::Many(list)) => {
            for (index, item) in list.iter().enumerate() {
                check_props(item, context, false, &items.index(index), errors);
            }
        }
        None => {}
    }
}

fn check_map_type(props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let Some(map_type) = props.map_type.as_deref() else { return };
    check_type_is(props, "object", "must be object if x-kubernetes-map-type is specified", path, errors);
    if !matches!(map_type, "atomic" | "granular") {
        errors.not_supported(&path.child("x-kubernetes-map-type"), map_type, &["atomic", "granular"]);
    }
}

fn check_list_type(props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let place = path.child("x-kubernetes-list-type");
    let list_type = props.list_type.as_deref();
    if let Some(list_type) = list_type {
        let is_array =
            check_type_is(props, "array", "must be array if x-kubernetes-list-type is specified", path, errors);
        if is_array && list_type == "set" {
            check_set_items(props, path, errors);
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.not_supported(&place, list_type, &["atomic", "set", "map"]);
        }
    }
    if !props.list_map_keys.is_empty() && list_type != Some("map") {
        let words = "must be map if x-kubernetes-list-map-keys is non-empty";
        match list_type {
            None => errors.required(&place, words),
            Some(other) => errors.invalid(&place, other, words),
        }
    }
}

fn check_type_is(props: &Props, wanted: &str, words: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    match props.type_name.as_str() {
        name if name == wanted => return true,
        "" => errors.required(&path.child("type"), words),
        other => errors.invalid(&path.child("type"), other, words),
    }
    false
}

/// Items of sets are compared as wholes, so they must be merged as wholes.
fn check_set_items(props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let Some(item) = props.item() else { return };
    let items = path.child("items");
    let words = "must be atomic as item of a list with x-kubernetes-list-type=set";
    // Kubernetes shows the list type in both cases.
    let shown = item.list_type.as_deref().map_or(serde_json::Value::Null, Into::into);
    match item.type_name.as_str() {
        "array" if !matches!(item.list_type.as_deref(), None | Some("atomic")) => {
            errors.invalid(&items.child("x-kubernetes-list-type"), shown, words);
        }
        "object" if item.map_type.as_deref() != Some("atomic") => {
            errors.invalid(&items.child("x-kubernetes-map-type"), shown, words);
        }
        _ => {}
    }
}

fn check_keyed_list(props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let keys_at = path.child("x-kubernetes-list-map-keys");
    if props.list_map_keys.is_empty() {
        errors.required(&keys_at, "must not be empty if x-kubernetes-list-type is map");
    }
    let items = path.child("items");
    let Some(item) = props.item() else {
        match props.items {
            None => errors.required(&items, "must have a schema if x-kubernetes-list-type is map"),
            Some(_) => errors.invalid(&items, "", "must only have a single schema if x-kubernetes-list-type is map"),
        }
        return;
    };
    if item.type_name != "object" {
        let words = "must be object if parent array's x-kubernetes-list-type is map";
        return errors.invalid(&items.child("type"), item.type_name.as_str(), words);
    }
    let properties = items.child("properties");
    for (index, key) in props.list_map_keys.iter().enumerate() {
        match item.properties.get(key) {
            Some(property) if matches!(property.type_name.as_str(), "array" | "object") => {
                let words = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.invalid(&properties.key(key).child("type"), item.type_name.as_str(), words);
            }
            Some(_) => {}
            None => {
                let words = "entries must all be names of item properties";
                errors.invalid(&keys_at, props.list_map_keys.clone(), words);
            }
        }
        if props.list_map_keys[..index].contains(key) {
            errors.invalid(&keys_at, props.list_map_keys.clone(), "must not contain duplicate entries");
        }
    }
}

/// Items that are merged one by one must be there to be found: not null, and with all of their keys.
fn check_merged_items(props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let (Some(item), Some(list_type @ ("set" | "map"))) = (props.item(), props.list_type.as_deref()) else { return };
    let items = path.child("items");
    if item.nullable {
        let words = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.forbidden(&items.child("nullable"), words);
    }
    if list_type == "set" {
        return;
    }
    let properties = items.child("properties");
    for key in &props.list_map_keys {
        let Some(property) = item.properties.get(key) else { continue };
        let place = properties.key(key);
        let words = "this property is in x-kubernetes-list-map-keys, so it";
        if !item.required.contains(key) && property.default.is_none() {
            errors.required(&place.child("default"), format!("{words} must have a default or be a required property"));
        }
        if property.nullable {
            errors.forbidden(&place.child("nullable"), format!("{words} cannot be nullable"));
        }
    }
}

fn check_expression(rule: &ExpressionProps, props: &Props, path: &Path<'_>, errors: &mut Errors) {
    let has_newlines = |text: &str| text.contains(['\n', '\r']);
    let (trimmed_rule, trimmed_message) = (rule.rule.trim(), rule.message.trim());
    let message = path.child("message");
    if trimmed_rule.is_empty() {
        errors.required(&path.child("rule"), "rule is not specified");
    } else if !rule.message.is_empty() && trimmed_message.is_empty() {
        errors.invalid(&message, rule.message.as_str(), "must be non-empty if specified");
    } else if has_newlines(trimmed_message) {
        errors.invalid(&message, rule.message.as_str(), "must not contain line breaks");
    } else if has_newlines(trimmed_rule) && trimmed_message.is_empty() {
        errors.required(&message, "message must be specified if rule contains line breaks");
    }
    if !rule.message_expression.is_empty() && rule.message_expression.trim().is_empty() {
        errors.required(&path.child("messageExpression"), "messageExpression must be non-empty if specified");
    }
    if let Some(reason) = rule.reason.as_deref().filter(|reason| !REASONS.contains(reason)) {
        errors.not_supported(&path.child("reason"), reason, &REASONS);
    }
    let field_path = path.child("fieldPath");
    if !rule.field_path.is_empty() {
        let shown = rule.field_path.as_str();
        if rule.field_path.trim().is_empty() {
            errors.invalid(&field_path, shown, "must be non-empty if specified");
        }
        if has_newlines(shown) {
            errors.invalid(&field_path, shown, "must not contain line breaks");
        }
        if !is_field_path(props, shown) {
            errors.invalid(&field_path, shown, "must be a valid path");
        }
    }
}

/// `.name` and `['name']` steps that the schema knows.
fn is_field_path(mut props: &Props, path: &str) -> bool {
    let mut rest = path;
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix("['") {
            let mut escaped = false;
            let end = after.find(|c| {
                let ends = c == '\'' && !escaped;
                escaped = c == '\\';
                ends
            });
            let Some(end) = end else { return false };
            let Some(after_bracket) = after[end + 1..].strip_prefix(']') else { return false };
            rest = after_bracket;
            after[..end].replace("\\'", "'").replace("\\\\", "\\")
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            rest = &after[end..];
            after[..end].to_owned()
        } else {
            return false;
        };
        let next = if props.properties.is_empty() { props.additional() } else { props.properties.get(&name) };
        match next {
            Some(next) => props = next,
            None => return false,
        }
    }
    !path.is_empty()
}
