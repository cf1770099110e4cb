//! Namespace: a scope for names. Deleting it deletes what is in it first, which its own finalizer stands for.

use object_model::names;
use serde_json::{Value, json};

use crate::defaults::Defaults;
use crate::kinds::{Create, Deletion, Reset, Selectable, Strategy, Update, prepare};
use crate::validation::{Field, meta};

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    deletion: Some(Deletion {
        mark: |namespace| prepare::put(namespace, &["status", "phase"], Some(&json!("Terminating"))),
        waits: |namespace| namespace["spec"]["finalizers"].as_array().is_some_and(|names| !names.is_empty()),
    }),
    defaults,
    create: Create::new(prepare_create, validate),
    update: Update::of_spec(
        |namespace, old, _| {
            prepare::put(namespace, &["spec", "finalizers"], old["spec"].get("finalizers"));
            prepare::keep(namespace, old, "status");
        },
        |namespace, old| meta::builtin_meta_update(&namespace.at("metadata"), &old["metadata"]),
    ),
    subresources: &[
        ("status", Update::of_status(validate_status)),
        (
            "finalize",
            Update {
                reset: Reset::Fields(&[&["status"]]),
                ..Update::new(|namespace, old, _| prepare::keep(namespace, old, "status"), validate_finalize)
            },
        ),
    ],
    fields: &[
        Selectable { name: "name", read: |namespace| text(namespace, "/metadata/name") },
        Selectable { name: "status.phase", read: |namespace| text(namespace, "/status/phase") },
    ],
    ..Strategy::cluster("", "Namespace")
};

fn text(object: &Value, pointer: &str) -> String {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Every namespace is labelled with its name, so that policies can select it by name.
fn defaults(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        prepare::put(namespace, &["metadata", "labels", NAME_LABEL], Some(&name));
    }
    namespace.default_if_absent("status", json!({}));
    if let Some(status) = namespace.child("status") {
        status.default_to("phase", "Active");
    }
}

fn prepare_create(namespace: &mut Value, _: &crate::kinds::Context) {
    prepare::put(namespace, &["status"], Some(&json!({"phase": "Active"})));
    let mut finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.contains(&json!("kubernetes")) {
        finalizers.push(json!("kubernetes"));
    }
    prepare::put(namespace, &["spec", "finalizers"], Some(&Value::Array(finalizers)));
    // The name may have been generated since defaulting.
    defaults(namespace);
}

fn validate(namespace: &Field) {
    meta::builtin_meta(&namespace.at("metadata"), false, names::name_is_dns_label);
    let spec = namespace.at("spec");
    let finalizers = spec.at("finalizers");
    for finalizer in finalizers.each() {
        finalizer_name(&finalizers.with(finalizer.value()));
    }
}

fn finalizer_name(finalizer: &Field) {
    finalizer.qualified_name();
    meta::known_finalizer(finalizer);
}

fn validate_status(namespace: &Field, old: &Value) {
    meta::builtin_meta_update(&namespace.at("metadata"), &old["metadata"]);
    let status = namespace.at("status");
    let (told, phase) = (status.at("Phase"), status.at("phase").text());
    let deleting = namespace.at("metadata").at("deletionTimestamp").is_set();
    if !deleting && phase != "Active" {
        told.invalid_value(phase, "may only be 'Active' if `deletionTimestamp` is empty");
    }
    if deleting && phase != "Terminating" {
        told.invalid_value(phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
    }
}

fn validate_finalize(namespace: &Field, old: &Value) {
    meta::builtin_meta_update(&namespace.at("metadata"), &old["metadata"]);
    let spec = namespace.at("spec");
    for finalizer in spec.at("finalizers").each() {
        finalizer_name(&finalizer);
    }
}
