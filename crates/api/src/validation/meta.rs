//! Object metadata.

use object_model::names;
use serde_json::{Value, json};

use super::{Field, selectors};

/// A rule for names: the name, and whether something will be appended to it (`generateName`), to what is wrong.
pub type NameRule = fn(&str, bool) -> Vec<String>;

const MAX_ANNOTATIONS: usize = 256 * 1024;

/// The metadata of an object of a kind: its name by the kind's rule, and everything that all kinds share.
pub fn object_meta(meta: &Field, namespaced: bool, name_rule: NameRule) {
    let generate = meta.at("generateName");
    if !generate.is_empty() {
        generate.invalid_for(name_rule(generate.text(), true));
    }
    let name = meta.at("name");
    if name.is_empty() {
        name.missing("name or generateName is required");
    } else {
        name.invalid_for(name_rule(name.text(), false));
    }
    shared(meta, namespaced);
}

/// As [`object_meta`] for a built-in kind, whose finalizers must be known or fully qualified.
pub fn builtin_meta(meta: &Field, namespaced: bool, name_rule: NameRule) {
    object_meta(meta, namespaced, name_rule);
    builtin_finalizers(meta);
}

/// As [`builtin_meta`] for the kinds whose rule for names is declared with the type, and so not applied to
/// `generateName`.
pub fn declared_meta(meta: &Field, namespaced: bool, name_rule: NameRule) {
    let name = meta.at("name");
    if name.is_empty() {
        name.missing("name or generateName is required");
    } else {
        name.invalid_for(name_rule(name.text(), false));
    }
    shared(meta, namespaced);
    builtin_finalizers(meta);
}

fn builtin_finalizers(meta: &Field) {
    for finalizer in meta.at("finalizers").each() {
        known_finalizer(&finalizer);
    }
}

/// A finalizer of a built-in kind without a prefix must be one of Kubernetes' own.
pub fn known_finalizer(finalizer: &Field) {
    let text = finalizer.text();
    if !text.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&text) {
        finalizer.invalid("name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn shared(meta: &Field, namespaced: bool) {
    let namespace = meta.at("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => namespace.missing(""),
        (true, false) => namespace.invalid_for(names::dns_label(namespace.text())),
        (false, false) => namespace.forbidden("not allowed on this type"),
        (false, true) => {}
    }
    meta.at("generation").non_negative();
    selectors::labels(&meta.at("labels"));
    annotations(&meta.at("annotations"));
    owner_references(&meta.at("ownerReferences"));
    finalizers(&meta.at("finalizers"));
    managed_fields(&meta.at("managedFields"));
}

pub fn annotations(annotations: &Field) {
    let mut size = 0;
    for (key, value) in annotations.entries() {
        for message in names::qualified_name(&key.to_lowercase()) {
            annotations.invalid_value(key, message);
        }
        size += key.len() + value.text().len();
    }
    if size > MAX_ANNOTATIONS {
        annotations.too_long(MAX_ANNOTATIONS);
    }
}

fn owner_references(references: &Field) {
    let mut controller: Option<String> = None;
    for item in references.each() {
        // Kubernetes tells the list's path, not the item's.
        let reference = references.with(item.value());
        let (api_version, kind) = (item.at("apiVersion").text(), item.at("kind").text());
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if version.is_empty() || api_version.matches('/').count() > 1 {
            reference.at("apiVersion").invalid_value(api_version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            let part = reference.at(name);
            if part.is_empty() {
                part.invalid_value("", "must not be empty");
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            reference.invalid("/v1, Kind=Event is disallowed from being an owner");
        }
        if item.at("controller").is_true() {
            let this = format!("{kind}/{}", item.at("name").text());
            match &controller {
                None => controller = Some(this),
                Some(first) => references.invalid(format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"
                )),
            }
        }
    }
}

fn finalizers(finalizers: &Field) {
    for finalizer in finalizers.texts() {
        for message in names::qualified_name(finalizer) {
            finalizers.invalid_value(finalizer, message);
        }
    }
    if ["orphan", "foregroundDeletion"].iter().all(|both| finalizers.texts().any(|f| f == *both)) {
        finalizers.invalid("finalizer orphan and foregroundDeletion cannot be both set");
    }
}

fn managed_fields(entries: &Field) {
    for entry in entries.each() {
        let operation = entry.at("operation");
        if !operation.is_one_of(&["Apply", "Update"]) {
            operation.invalid_value(operation.text(), "must be `Apply` or `Update`");
        }
        let fields_type = entry.at("fieldsType");
        if !fields_type.is_empty() && !fields_type.is("FieldsV1") {
            fields_type.invalid("must be `FieldsV1`");
        }
        field_manager(&entry.at("manager"));
        if entry.at("subresource").text().len() > 256 {
            entry.at("subresource").too_long(256);
        }
    }
}

/// The name of a writer.
pub fn field_manager(manager: &Field) {
    if manager.text().len() > 128 {
        manager.too_long(128);
    }
    for (position, c) in manager.text().char_indices().filter(|(_, c)| c.is_control()) {
        manager.invalid(format!("invalid character U+{:04X} (at position {position})", c as u32));
    }
}

/// What must not change in metadata, and what a change must still hold to.
pub fn meta_update(meta: &Field, old: &Value) {
    let was = |name: &str| old.get(name).unwrap_or(&Value::Null);
    if !was("deletionTimestamp").is_null() {
        no_new_finalizers(&meta.at("finalizers"), was("finalizers"));
    }
    let version = meta.at("resourceVersion");
    if version.is_empty() {
        version.invalid_value("", "must be specified for an update");
    }
    let generation = meta.at("generation");
    if generation.number() < was("generation").as_i64().unwrap_or_default() {
        generation.invalid_value(generation.number(), "must not be decremented");
    }
    for name in ["name", "namespace", "uid"] {
        let part = meta.at(name);
        if part.text() != was(name).as_str().unwrap_or_default() {
            part.invalid_value(part.text(), super::rules::IMMUTABLE);
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        meta.immutable_at(name, old);
    }
    selectors::labels(&meta.at("labels"));
    annotations(&meta.at("annotations"));
    owner_references(&meta.at("ownerReferences"));
    managed_fields(&meta.at("managedFields"));
}

/// As [`meta_update`] for a built-in kind.
pub fn builtin_meta_update(meta: &Field, old: &Value) {
    meta_update(meta, old);
    builtin_finalizers(meta);
}

fn no_new_finalizers(finalizers: &Field, old: &Value) {
    let old: Vec<&str> = old.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut extra: Vec<&str> = finalizers.texts().filter(|f| !old.contains(f)).collect();
    extra.sort_unstable();
    extra.dedup();
    if !extra.is_empty() {
        let list: Vec<String> = extra.iter().map(|f| json!(f).to_string()).collect();
        finalizers.forbidden(format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            list.join(", ")
        ));
    }
}

/// The metadata of a template: labels and annotations only.
pub fn template_meta(meta: &Field) {
    annotations(&meta.at("annotations"));
    selectors::labels(&meta.at("labels"));
    for name in [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ] {
        let part = meta.at(name);
        let unset = part.is_empty() || part.int() == Some(0);
        if !unset {
            part.forbidden("cannot be set");
        }
    }
}

/// `metav1.Condition`s of a status.
pub fn conditions(conditions: &Field) {
    let mut seen = Vec::new();
    for condition in conditions.each() {
        let kind = condition.at("type").text();
        if seen.contains(&kind) {
            condition.at("type").duplicate();
        }
        seen.push(kind);
        condition.at("type").qualified_name();
        condition.at("status").one_of(&["False", "True", "Unknown"]);
        if condition.at("observedGeneration").number() < 0 {
            condition.at("observedGeneration").invalid("must be greater than or equal to zero");
        }
        condition.at("lastTransitionTime").required();
        let reason = condition.at("reason");
        if reason.required() {
            condition_reason(&reason);
            if reason.text().len() > 1024 {
                reason.too_long(1024);
            }
        }
        if condition.at("message").text().len() > 32 * 1024 {
            condition.at("message").too_long(32 * 1024);
        }
    }
}

fn condition_reason(reason: &Field) {
    let text = reason.text().as_bytes();
    let fits = text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.last().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_')
        && text.iter().all(|b| b.is_ascii_alphanumeric() || b"_,:".contains(b));
    if !fits {
        reason.invalid(names::not_matching(
            "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric \
             characters or '_,:', and must end with an alphanumeric character or '_'",
            "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
            &["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"],
        ));
    }
}
