//! PersistentVolumeClaim: a request for storage.

use object_model::names;
use serde_json::{Value, json};

use crate::defaults::{self, Defaults};
use crate::kinds::{Context, Create, Strategy, Update, prepare};
use crate::validation::resources::{amount, basic_amount, is_native};
use crate::validation::selectors::{SelectorOptions, label_selector, label_selector_with};
use crate::validation::{Field, go_form, meta, quantity, same, same_at};

const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
pub const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: |claim| {
        claim.default_if_absent("status", json!({}));
        if let Some(status) = claim.child("status") {
            status.default_to("phase", "Pending");
            defaults::resource_list(status, "capacity");
            defaults::resource_list(status, "allocatedResources");
        }
        if let Some(spec) = claim.child("spec") {
            defaults::claim_spec(spec);
        }
    },
    create: Create {
        warnings,
        ..Create::new(prepare_create, |claim| {
            meta::builtin_meta(&claim.at("metadata"), true, names::name_is_dns_subdomain);
            spec(&claim.at("spec"), &Options::default());
        })
    },
    update: Update { warnings: |claim, _| warnings(claim), ..Update::of_spec(prepare_update, validate_update) },
    subresources: &[("status", Update::of_status(validate_status))],
    ..Strategy::new("", "PersistentVolumeClaim")
};

/// What an old claim may keep.
#[derive(Clone, Copy, Default)]
pub struct Options {
    pub invalid_selector_values: bool,
    pub invalid_source_group: bool,
}

fn prepare_create(claim: &mut Value, _: &Context) {
    prepare::put(claim, &["status"], Some(&json!({"phase": "Pending"})));
    if let Some(spec) = claim.child("spec") {
        drop_foreign_sources(spec, None);
        mirror_sources(spec);
    }
}

fn prepare_update(claim: &mut Value, old: &Value, _: &Context) {
    prepare::keep(claim, old, "status");
    if let Some(spec) = claim.child("spec") {
        drop_foreign_sources(spec, Some(&old["spec"]));
        mirror_sources(spec);
    }
}

/// A source in another namespace belongs to a feature that is off; `dataSource` takes claims and snapshots only.
fn drop_foreign_sources(spec: &mut Value, old: Option<&Value>) {
    let used = |name: &str| old.is_some_and(|old| old.get(name).is_some_and(|source| !source.is_null()));
    if spec["dataSourceRef"]["namespace"].as_str().is_some_and(|ns| !ns.is_empty()) && !used("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    if used("dataSource") || used("dataSourceRef") || spec["dataSourceRef"].is_object() {
        return;
    }
    let source = &spec["dataSource"];
    let known = match source["kind"].as_str() {
        Some("PersistentVolumeClaim") => source["apiGroup"].as_str().unwrap_or_default().is_empty(),
        Some("VolumeSnapshot") => source["apiGroup"] == "snapshot.storage.k8s.io",
        _ => false,
    };
    if !known {
        spec.remove("dataSource");
    }
}

/// `dataSource` and `dataSourceRef` say the same, whichever was given.
fn mirror_sources(spec: &mut Value) {
    let local = spec["dataSourceRef"]["namespace"].as_str().unwrap_or_default().is_empty();
    let (from, to) = match (spec["dataSource"].is_object(), spec["dataSourceRef"].is_object()) {
        (true, false) => ("dataSource", "dataSourceRef"),
        (false, true) if local => ("dataSourceRef", "dataSource"),
        _ => return,
    };
    let mut copy = spec[from].clone();
    copy.remove("namespace");
    copy.default_if_absent("apiGroup", Value::Null);
    spec[to] = copy;
}

/// The specification of a claim, in an object or in a template.
pub fn spec(spec: &Field, options: &Options) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        modes.missing("at least 1 access mode is required");
    }
    let selector = SelectorOptions { allow_invalid_values: options.invalid_selector_values, ..Default::default() };
    label_selector_with(&spec.at("selector"), selector);
    access_modes(&modes);
    let resources = spec.at("resources");
    let storage = resources.key("storage").with(resources.at("requests").at("storage").value());
    if !storage.is_set() {
        storage.missing("");
    } else {
        let before = spec.problem_count();
        storage.positive_quantity();
        if spec.problem_count() == before {
            amount("storage", &storage);
        }
    }
    spec.at("storageClassName").dns_subdomain_if_any();
    spec.at("volumeMode").one_of_if_set(VOLUME_MODES);
    for name in ["dataSource", "dataSourceRef"] {
        data_source(&spec.at(name), options);
    }
    let (source, reference) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    let both = source.is_set() && reference.is_set();
    if !reference.at("namespace").is_empty() {
        reference.at("namespace").dns_label();
        if both {
            spec.invalid_value("spec.dataSource", "may not be specified when dataSourceRef.namespace is specified");
        }
    } else if both && ["apiGroup", "kind", "name"].iter().any(|f| !same_at(source.value(), reference.value(), f)) {
        spec.invalid_value(source.path().to_string(), "must match dataSourceRef");
    }
    spec.at("volumeAttributesClassName").dns_subdomain_if_any();
}

/// Known modes, and the exclusive one alone.
pub fn access_modes(modes: &Field) {
    for mode in modes.each() {
        modes.with(mode.value()).one_of(ACCESS_MODES);
    }
    let exclusive = modes.texts().any(|mode| mode == "ReadWriteOncePod");
    if exclusive && modes.texts().any(|mode| mode != "ReadWriteOncePod" && ACCESS_MODES.contains(&mode)) {
        modes.forbidden("may not use ReadWriteOncePod with other access modes");
    }
}

fn data_source(source: &Field, options: &Options) {
    if !source.is_set() {
        return;
    }
    source.at("name").required();
    source.at("kind").required();
    let (group, kind) = (source.at("apiGroup"), source.at("kind"));
    if group.is_empty() {
        if !kind.is("PersistentVolumeClaim") {
            source.invalid_value(kind.text(), "must be 'PersistentVolumeClaim' when referencing the default apiGroup");
        }
    } else if !options.invalid_source_group {
        group.dns_subdomain();
    }
}

fn validate_update(claim: &Field, old: &Value) {
    let old_spec = &old["spec"];
    meta::builtin_meta_update(&claim.at("metadata"), &old["metadata"]);
    let options = Options {
        invalid_selector_values: !Field::check(&old_spec["selector"], label_selector).is_empty(),
        invalid_source_group: ["dataSource", "dataSourceRef"].iter().any(|s| old_spec[*s]["apiGroup"].is_string()),
    };
    meta::builtin_meta(&claim.at("metadata"), true, names::name_is_dns_subdomain);
    let spec_field = claim.at("spec");
    spec(&spec_field, &options);
    let before = spec_to_compare(claim, old);
    if !same(&before.0, &before.1) {
        let difference = go_form::difference("PersistentVolumeClaimSpec", &before.1, &before.0);
        spec_field.forbidden(format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{difference}"
        ));
    }
    let size = |spec: &Value| quantity(&spec["resources"]["requests"]["storage"]);
    if size(spec_field.value()) < size(old_spec)
        && size(spec_field.value()) <= quantity(&old["status"]["capacity"]["storage"])
    {
        let (resources, requests);
        resources = spec_field.at("resources");
        requests = resources.at("requests");
        requests.at("storage").forbidden("field can not be less than status.capacity");
    }
    claim.at("volumeMode").with(spec_field.at("volumeMode").value()).immutable(&old_spec["volumeMode"]);
    let class = spec_field.at("volumeAttributesClassName");
    let changed = !same_at(spec_field.value(), old_spec, "volumeAttributesClassName");
    if changed && !old["status"]["currentVolumeAttributesClassName"].is_null() {
        if !class.is_set() {
            class.forbidden("update to nil is forbidden when status.currentVolumeAttributesClassName is not nil");
        } else if class.is_empty() {
            class.forbidden(
                "update to empty string is forbidden when status.currentVolumeAttributesClassName is not nil",
            );
        }
    }
}

/// The new and the old specification with everything that may change made equal.
fn spec_to_compare(claim: &Field, old: &Value) -> (Value, Value) {
    let (mut new, mut before) = (claim.value()["spec"].clone(), old["spec"].clone());
    mirror_sources(&mut before);
    if before["volumeName"].as_str().unwrap_or_default().is_empty() {
        prepare::keep(&mut before, &new, "volumeName");
    }
    let annotation = |claim: &Value| claim["metadata"]["annotations"][CLASS_ANNOTATION].as_str().map(str::to_owned);
    let (was, is) = (annotation(old), annotation(claim.value()));
    let (old_class, new_class) = (before["storageClassName"].as_str(), new["storageClassName"].as_str());
    let from_annotation =
        was.is_some() && old_class.is_none() && new_class == was.as_deref() && (is.is_none() || is == was);
    if !from_annotation && was != is {
        let metadata = claim.at("metadata");
        let annotations = metadata.at("annotations");
        annotations.at(CLASS_ANNOTATION).invalid_value(is.unwrap_or_default(), crate::validation::IMMUTABLE);
    }
    let from_nil = new_class.is_some() && old_class.is_none() && (was.is_none() || new_class == was.as_deref());
    if from_annotation || from_nil {
        prepare::keep(&mut new, &before, "storageClassName");
    }
    if claim.value()["status"]["phase"] == "Bound" {
        if new["resources"]["requests"].is_object() {
            prepare::put(
                &mut new,
                &["resources", "requests", "storage"],
                before["resources"]["requests"].get("storage"),
            );
        }
        prepare::keep(&mut new, &before, "volumeAttributesClassName");
    }
    (new, before)
}

const RESIZE_STATUSES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn validate_status(claim: &Field, old: &Value) {
    meta::builtin_meta_update(&claim.at("metadata"), &old["metadata"]);
    if claim.at("metadata").at("resourceVersion").is_empty() {
        claim.at("resourceVersion").missing("");
    }
    if claim.at("spec").at("accessModes").is_empty() {
        claim.at("Spec").at("accessModes").missing("");
    }
    let status = claim.at("status");
    for (_, entry) in status.at("capacity").entries() {
        basic_amount(&entry);
    }
    let statuses = status.at("allocatedResourceStatuses");
    for (name, value) in statuses.entries() {
        allocated_name(name, &statuses);
        if !value.is_one_of(RESIZE_STATUSES) {
            statuses.with(&Value::from(name)).not_supported(RESIZE_STATUSES);
        }
    }
    let allocated = status.at("allocatedResources");
    for (name, entry) in allocated.entries() {
        let before = entry.problem_count();
        allocated_name(name, &allocated);
        if entry.problem_count() == before {
            basic_amount(&entry);
        }
        if entry.problem_count() == before {
            amount("storage", &entry);
        }
    }
}

fn allocated_name(name: &str, told: &Field) {
    let wrong = names::qualified_name(name);
    if wrong.is_empty() && is_native(name) && name != "storage" {
        told.with(&Value::from(name)).not_supported(&["storage"]);
    }
    wrong.into_iter().for_each(|message| told.invalid_value(name, message));
}

fn warnings(claim: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if claim["metadata"]["annotations"].get(CLASS_ANNOTATION).is_some() {
        warnings.push(format!(
            "metadata.annotations[{CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    warnings.extend(spec_warnings("spec", &claim["spec"]));
    warnings
}

/// Storage is counted in whole bytes.
pub fn spec_warnings(path: &str, spec: &Value) -> Vec<String> {
    ["requests", "limits"]
        .iter()
        .filter(|which| quantity(&spec["resources"][**which]["storage"]).milli_value() % 1000 != 0)
        .map(|which| {
            let value = quantity(&spec["resources"][*which]["storage"]);
            format!(
                "{path}.resources.{which}[storage]: fractional byte value \"{value}\" is invalid, must be an integer"
            )
        })
        .collect()
}
