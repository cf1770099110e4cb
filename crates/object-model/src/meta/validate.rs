//! The rules every object's metadata follows, whatever its kind.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN, Meta, OwnerReference, TextMap};
use crate::codec::json;
use crate::field::{Errors, Path};
use crate::go_text;
use crate::identity::GroupVersionKind;
use crate::names::{self, NameRule};
use crate::value::Fields;

pub const IMMUTABLE: &str = "field is immutable";
pub const NEGATIVE: &str = "must be greater than or equal to 0";
/// All keys and values of an object's annotations together.
pub const ANNOTATIONS_MAX: usize = 256 << 10;
const FIELD_MANAGER_MAX: usize = 128;
const SUBRESOURCE_MAX: usize = 256;

/// Metadata of a new object, after its name has been generated.
pub fn create(meta: Meta<'_>, namespaced: bool, rule: NameRule, path: &Path<'_>, errors: &mut Errors) {
    if !meta.generate_name().is_empty() {
        let problems = rule(meta.generate_name(), true);
        errors.invalid_each(&path.child("generateName"), meta.generate_name(), problems);
    }
    create_by_name(meta, namespaced, rule, path, errors);
}

/// The same for kinds whose rule for names is declared with the type, and so not applied to `generateName`.
pub fn create_by_name(meta: Meta<'_>, namespaced: bool, rule: NameRule, path: &Path<'_>, errors: &mut Errors) {
    if meta.name().is_empty() {
        errors.required(&path.child("name"), "name or generateName is required");
    } else {
        errors.invalid_each(&path.child("name"), meta.name(), rule(meta.name(), false));
    }
    let namespace = path.child("namespace");
    match (namespaced, meta.namespace()) {
        (true, "") => errors.required(&namespace, ""),
        (true, name) => errors.invalid_each(&namespace, name, names::dns_label(name)),
        (false, "") => {}
        (false, _) => errors.forbidden(&namespace, "not allowed on this type"),
    }
    non_negative(meta.generation(), &path.child("generation"), errors);
    labels(meta.labels(), &path.child("labels"), errors);
    annotations(meta.annotations(), &path.child("annotations"), errors);
    owner_references(meta, &path.child("ownerReferences"), errors);
    finalizers(meta, &path.child("finalizers"), errors);
    managed_fields(meta, &path.child("managedFields"), errors);
}

/// Metadata of a changed object.
pub fn update(new: Meta<'_>, old: Meta<'_>, path: &Path<'_>, errors: &mut Errors) {
    if old.is_deleting() {
        let kept: BTreeSet<&str> = old.finalizers().collect();
        let added: BTreeSet<&str> = new.finalizers().filter(|f| !kept.contains(f)).collect();
        if !added.is_empty() {
            let added = go_text::string_slice(&added.into_iter().collect::<Vec<_>>());
            let words = "no new finalizers can be added if the object is being deleted, found new finalizers";
            errors.forbidden(&path.child("finalizers"), format!("{words} {added}"));
        }
    }
    if new.resource_version().is_empty() {
        errors.invalid(&path.child("resourceVersion"), "", "must be specified for an update");
    }
    if new.generation() < old.generation() {
        errors.invalid(&path.child("generation"), new.generation(), "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        if new.text(field) != old.text(field) {
            errors.invalid(&path.child(field), new.text(field), IMMUTABLE);
        }
    }
    for field in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        immutable(new.get(field), old.get(field), &path.child(field), errors);
    }
    labels(new.labels(), &path.child("labels"), errors);
    annotations(new.annotations(), &path.child("annotations"), errors);
    owner_references(new, &path.child("ownerReferences"), errors);
    managed_fields(new, &path.child("managedFields"), errors);
}

/// A value that must not change. Absent and null are the same.
pub fn immutable(new: Option<&Value>, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let (new, old) = (new.unwrap_or(&Value::Null), old.unwrap_or(&Value::Null));
    if new != old {
        errors.invalid(path, new.clone(), IMMUTABLE);
    }
}

pub fn non_negative(number: i64, path: &Path<'_>, errors: &mut Errors) {
    if number < 0 {
        errors.invalid(path, number, NEGATIVE);
    }
}

pub fn label_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    errors.invalid_each(path, name, names::qualified_name(name));
}

pub fn labels(labels: TextMap<'_>, path: &Path<'_>, errors: &mut Errors) {
    for (key, value) in labels.iter() {
        label_name(key, path, errors);
        errors.invalid_each(path, value, names::label_value(value));
    }
}

pub fn annotations(annotations: TextMap<'_>, path: &Path<'_>, errors: &mut Errors) {
    for (key, _) in annotations.iter() {
        errors.invalid_each(path, key, names::qualified_name(&key.to_lowercase()));
    }
    if annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() > ANNOTATIONS_MAX {
        errors.too_long(path, ANNOTATIONS_MAX);
    }
}

fn owner_references(meta: Meta<'_>, path: &Path<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for (owner, raw) in meta.owner_references().zip(meta.items("ownerReferences")) {
        owner_reference(&owner, raw, path, errors);
        if !owner.controller {
            continue;
        }
        let name = format!("{}/{}", owner.kind, owner.name);
        match &controller {
            None => controller = Some(name),
            // The message shows all owners.
            Some(_) if errors.is_full() => return,
            Some(first) => {
                let shown: Vec<String> = meta.items("ownerReferences").iter().map(shown_owner).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"
                );
                errors.invalid_shown(path, &format!("[{}]", shown.join(",")), &detail);
            }
        }
    }
}

fn owner_reference(owner: &OwnerReference<'_>, raw: &Value, path: &Path<'_>, errors: &mut Errors) {
    // An apiVersion that cannot be read counts as empty, and the kind with it.
    let gvk = GroupVersionKind::parse(owner.api_version, owner.kind)
        .unwrap_or_else(|_| GroupVersionKind::new("", "", owner.kind));
    if gvk.version.is_empty() {
        errors.invalid(&path.child("apiVersion"), owner.api_version, "version must not be empty");
    }
    for (field, text) in [("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)] {
        if text.is_empty() {
            errors.invalid(&path.child(field), text, "must not be empty");
        }
    }
    if gvk == GroupVersionKind::fixed("", "v1", "Event") {
        errors.invalid_shown(path, &shown_owner(raw), &format!("{gvk} is disallowed from being an owner"));
    }
}

/// An owner reference in the order Kubernetes prints its fields in.
fn shown_owner(raw: &Value) -> String {
    let always = ["apiVersion", "kind", "name", "uid"].map(|field| {
        let text = json::to_string(raw.text(field));
        format!("\"{field}\":{text}")
    });
    let optional = ["controller", "blockOwnerDeletion"];
    let optional = optional.iter().filter_map(|field| raw.flag(field).map(|flag| format!("\"{field}\":{flag}")));
    format!("{{{}}}", always.into_iter().chain(optional).collect::<Vec<_>>().join(","))
}

fn finalizers(meta: Meta<'_>, path: &Path<'_>, errors: &mut Errors) {
    for finalizer in meta.finalizers() {
        label_name(finalizer, path, errors);
    }
    if meta.has_finalizer(FINALIZER_ORPHAN) && meta.has_finalizer(FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        errors.invalid(path, meta.items("finalizers").to_vec(), detail);
    }
}

fn managed_fields(meta: Meta<'_>, path: &Path<'_>, errors: &mut Errors) {
    for (i, entry) in meta.managed_fields().iter().enumerate() {
        let path = path.index(i);
        let (operation, fields_type) = (entry.text("operation"), entry.text("fieldsType"));
        if !matches!(operation, "Apply" | "Update") {
            errors.invalid(&path.child("operation"), operation, "must be `Apply` or `Update`");
        }
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.invalid(&path.child("fieldsType"), fields_type, "must be `FieldsV1`");
        }
        field_manager(entry.text("manager"), &path.child("manager"), errors);
        if entry.text("subresource").len() > SUBRESOURCE_MAX {
            errors.too_long(&path.child("subresource"), SUBRESOURCE_MAX);
        }
    }
}

/// The name of a manager: short and printable.
pub fn field_manager(manager: &str, path: &Path<'_>, errors: &mut Errors) {
    if manager.len() > FIELD_MANAGER_MAX {
        errors.too_long(path, FIELD_MANAGER_MAX);
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !go_text::is_print(*c)) {
        errors.invalid(path, manager, format!("invalid character U+{:04X} (at position {at})", c as u32));
    }
}

#[cfg(test)]
mod tests;
