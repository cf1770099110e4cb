//! ReplicationController: keeps a number of pods running (ReplicaSet is its successor).

use object_model::names;
use serde_json::{Value, json};

use crate::defaults::{self, Defaults};
use crate::kinds::{Create, GarbageCollection, Selectable, Strategy, Update, prepare};
use crate::validation::selectors::Selection;
use crate::validation::{Field, meta, pod, selectors};

pub static STRATEGY: Strategy = Strategy {
    garbage_collection: GarbageCollection::Orphan,
    defaults,
    create: Create {
        warnings: |rc| {
            let mut warnings = pod::hostname_warning("Pod names and hostnames", &rc["metadata"]);
            warnings.extend(pod::template_warnings("spec.template", &rc["spec"]["template"]));
            warnings
        },
        ..Create::new(
            |rc, _| {
                prepare::put(rc, &["status"], Some(&json!({"replicas": 0})));
                prepare::first_generation(rc);
                pod::drop_disabled(rc, &["spec", "template"], None);
            },
            |rc| {
                meta::declared_meta(&rc.at("metadata"), true, names::name_is_declared_long_name);
                spec(&rc.at("spec"), None);
            },
        )
    },
    update: Update {
        warnings: |rc, old| match rc["metadata"]["generation"] != old["metadata"]["generation"] {
            true => pod::template_warnings("spec.template", &old["spec"]["template"]),
            false => Vec::new(),
        },
        ..Update::of_spec(
            |rc, old, _| {
                prepare::keep(rc, old, "status");
                pod::drop_disabled(rc, &["spec", "template"], Some(old));
                prepare::next_generation(rc, old, &["spec"]);
            },
            |rc, old| {
                meta::builtin_meta_update(&rc.at("metadata"), &old["metadata"]);
                spec(&rc.at("spec"), Some(&old["spec"]["template"]));
            },
        )
    },
    subresources: &[("status", Update::of_status(validate_status))],
    fields: &[Selectable {
        name: "status.replicas",
        read: |rc| rc["status"]["replicas"].as_i64().unwrap_or_default().to_string(),
    }],
    ..Strategy::new("", "ReplicationController")
};

/// The selector and the controller's own labels follow from the template's labels.
fn defaults(rc: &mut Value) {
    let labels = rc["spec"]["template"]["metadata"]["labels"].clone();
    let empty = |value: &Value| value.as_object().is_none_or(|map| map.is_empty());
    if !empty(&labels) {
        if empty(&rc["spec"]["selector"]) {
            prepare::put(rc, &["spec", "selector"], Some(&labels));
        }
        if empty(&rc["metadata"]["labels"]) {
            prepare::put(rc, &["metadata", "labels"], Some(&labels));
        }
    }
    if let Some(spec) = rc.child("spec") {
        spec.default_if_absent("replicas", 1);
        defaults::pod_template(spec);
    }
}

fn spec(spec: &Field, old_template: Option<&Value>) {
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    spec.at("minReadySeconds").non_negative();
    selector.required();
    if spec.at("replicas").is_set() {
        spec.at("replicas").non_negative();
    } else {
        spec.at("replicas").missing("");
    }
    if !template.is_set() {
        return template.missing("");
    }
    let labels = &template.value()["metadata"]["labels"];
    let selection = match selector.is_empty() || selectors::selects(&selector, labels) {
        true => Selection::Selected,
        false => Selection::NotSelected,
    };
    pod::controller_template(
        &template,
        &pod::Options::of(old_template),
        selection,
        "activeDeadlineSeconds in ReplicationController is not Supported",
    );
}

fn validate_status(rc: &Field, old: &Value) {
    meta::builtin_meta_update(&rc.at("metadata"), &old["metadata"]);
    let status = rc.at("status");
    replica_counts(&status, "cannot be greater than readyReplicas");
}

/// Counts in a status: not negative, and none above the whole.
pub fn replica_counts(status: &Field, above_ready: &str) {
    for name in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"] {
        status.at(name).non_negative();
    }
    let replicas = status.at("replicas").number();
    for name in ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if status.at(name).number() > replicas {
            status.at(name).invalid("cannot be greater than status.replicas");
        }
    }
    if status.at("availableReplicas").number() > status.at("readyReplicas").number() {
        status.at("availableReplicas").invalid(above_ready);
    }
}
