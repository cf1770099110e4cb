//! Object metadata: the rules of the object model, and what built-in kinds add to them.

use std::collections::HashSet;

use object_model::meta::{Meta, TextMap, validate};
use object_model::names;
use serde_json::Value;

use super::{Field, selectors};

pub use object_model::names::NameRule;

/// The metadata of an object of a kind: its name by the kind's rule, and everything that all kinds share.
pub fn object_meta(meta: &Field, namespaced: bool, name_rule: NameRule) {
    meta.judge(|meta, path, errors| validate::create(Meta::from_value(meta), namespaced, name_rule, path, errors));
}

/// As [`object_meta`] for a built-in kind, whose finalizers must be known or fully qualified.
pub fn builtin_meta(meta: &Field, namespaced: bool, name_rule: NameRule) {
    object_meta(meta, namespaced, name_rule);
    builtin_finalizers(meta);
}

/// As [`builtin_meta`] for the kinds whose rule for names is declared with the type, and so not applied to
/// `generateName`.
pub fn declared_meta(meta: &Field, namespaced: bool, name_rule: NameRule) {
    meta.judge(|meta, path, errors| {
        validate::create_by_name(Meta::from_value(meta), namespaced, name_rule, path, errors)
    });
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

pub fn annotations(annotations: &Field) {
    annotations.judge(|value, path, errors| validate::annotations(TextMap::of(Some(value)), path, errors));
}

/// What must not change in metadata, and what a change must still hold to.
pub fn meta_update(meta: &Field, old: &Value) {
    meta.judge(|meta, path, errors| validate::update(Meta::from_value(meta), Meta::from_value(old), path, errors));
}

/// As [`meta_update`] for a built-in kind.
pub fn builtin_meta_update(meta: &Field, old: &Value) {
    meta_update(meta, old);
    builtin_finalizers(meta);
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
    let mut seen = HashSet::new();
    for condition in conditions.each() {
        let kind = condition.at("type").text();
        if seen.contains(&kind) {
            condition.at("type").duplicate();
        }
        seen.insert(kind);
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
