//! PersistentVolume: a piece of storage in the cluster.

use object_model::field::ErrorKind;
use object_model::names;
use serde_json::{Value, json};

use super::persistent_volume_claim::{VOLUME_MODES, access_modes};
use crate::defaults::{self, Defaults};
use crate::kinds::{Context, Create, Strategy, Update, prepare};
use crate::validation::node_selector::{has_invalid_values, node_selector};
use crate::validation::pod::{Options, PERSISTENT_SOURCES, node_selector_term_warnings};
use crate::validation::resources::basic_amount;
use crate::validation::{Field, IMMUTABLE, go_form, meta, same, same_at};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults,
    create: Create {
        warnings,
        ..Create::new(
            |volume, context| {
                let status = json!({"phase": "Pending", "lastPhaseTransitionTime": context.now});
                prepare::put(volume, &["status"], Some(&status));
            },
            |volume| validate(volume, false),
        )
    },
    update: Update {
        warnings: |volume, _| warnings(volume),
        ..Update::of_spec(|volume, old, _| prepare::keep(volume, old, "status"), validate_update)
    },
    subresources: &[("status", Update { prepare: prepare_status, ..Update::of_status(validate_status) })],
    ..Strategy::cluster("", "PersistentVolume")
};

fn defaults(volume: &mut Value) {
    volume.default_if_absent("status", json!({}));
    if let Some(status) = volume.child("status") {
        status.default_to("phase", "Pending");
    }
    if let Some(spec) = volume.child("spec") {
        spec.default_to("persistentVolumeReclaimPolicy", "Retain");
        spec.default_if_absent("volumeMode", "Filesystem");
        defaults::resource_list(spec, "capacity");
        defaults::volume_source(spec);
    }
}

/// The time of the last change of phase follows the phase unless its writer says it.
fn prepare_status(volume: &mut Value, old: &Value, context: &Context) {
    prepare::status_only(volume, old, context);
    let time = "lastPhaseTransitionTime";
    let same_phase = same_at(&volume["status"], &old["status"], "phase");
    let given = volume["status"].get(time).is_some_and(|time| !time.is_null());
    if same_phase && !given {
        prepare::put(volume, &["status", time], old["status"].get(time));
    } else if !same_phase && (!given || same_at(&volume["status"], &old["status"], time)) {
        prepare::put(volume, &["status", time], Some(&json!(context.now)));
    }
}

fn validate(volume: &Field, allow_invalid_node_values: bool) {
    meta::builtin_meta(&volume.at("metadata"), false, names::name_is_dns_subdomain);
    let name = volume.at("metadata").at("name").text();
    spec(&volume.at("spec"), Inline::No(name), allow_invalid_node_values);
}

/// A volume of its own, of this name, or one written into a VolumeAttachment.
#[derive(Clone, Copy)]
pub enum Inline<'a> {
    No(&'a str),
    Yes,
}

pub fn spec(spec: &Field, inline: Inline, allow_invalid_node_values: bool) {
    const CONTEXT: &str = "in the context of inline volumes";
    let is_inline = matches!(inline, Inline::Yes);
    if is_inline {
        for name in ["claimRef", "capacity"] {
            if !spec.at(name).is_empty() {
                spec.at(name).forbidden(format!("may not be specified {CONTEXT}"));
            }
        }
        if !spec.at("csi").is_set() {
            spec.at("csi").missing(format!("has to be specified {CONTEXT}"));
        }
    }
    spec.at("accessModes").required();
    access_modes(&spec.at("accessModes"));
    let policy = spec.at("persistentVolumeReclaimPolicy");
    if !is_inline {
        capacity(&spec.at("capacity"));
    }
    if !policy.is_empty() {
        if !is_inline {
            policy.one_of(&["Delete", "Recycle", "Retain"]);
        } else if !policy.is("Retain") {
            policy.forbidden(format!("may only be Retain {CONTEXT}"));
        }
    }
    node_affinity(&spec.at("nodeAffinity"), is_inline, allow_invalid_node_values);
    let name = if let Inline::No(name) = inline { name } else { "" };
    PERSISTENT_SOURCES.validate(spec, name, &Options::default());
    if PERSISTENT_SOURCES.chosen(spec) == Some("local") && !spec.at("nodeAffinity").is_set() {
        spec.at("nodeAffinity").missing("Local volume requires node affinity");
    }
    let host_path = spec.at("hostPath").at("path").text();
    let is_root = !host_path.is_empty() && host_path.split('/').all(|part| part.is_empty() || part == ".");
    if is_root && host_path.starts_with('/') && policy.is("Recycle") {
        policy.forbidden("may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = spec.at("storageClassName");
    if !class.is_empty() {
        if is_inline {
            class.forbidden(format!("may not be specified {CONTEXT}"));
        } else {
            class.dns_subdomain();
        }
    }
    let mode = spec.at("volumeMode");
    if is_inline && mode.is_set() && !mode.is("Filesystem") {
        mode.forbidden(format!("may not specify volumeMode other than Filesystem {CONTEXT}"));
    } else if !is_inline {
        mode.one_of_if_set(VOLUME_MODES);
    }
    let attributes = spec.at("volumeAttributesClassName");
    if attributes.is_set() {
        if attributes.is_empty() {
            attributes.missing("an empty string is disallowed");
        } else {
            attributes.dns_subdomain();
        }
        if !spec.at("csi").is_set() {
            spec.at("csi").missing("has to be specified when using volumeAttributesClassName");
        }
    }
}

fn capacity(capacity: &Field) {
    capacity.required();
    if !capacity.key("storage").is_set() || capacity.len() > 1 {
        capacity.tell(
            ErrorKind::NotSupported,
            Some(capacity.value().clone()),
            "supported values: \"storage\"".to_owned(),
        );
    }
    for (_, entry) in capacity.entries() {
        basic_amount(&entry);
        entry.positive_quantity();
    }
}

fn node_affinity(affinity: &Field, is_inline: bool, allow_invalid_values: bool) {
    if !affinity.is_set() {
        return;
    }
    let required = affinity.at("required");
    if is_inline {
        affinity.forbidden("may not be specified in the context of inline volumes");
    } else if required.is_set() {
        node_selector(&required, allow_invalid_values);
    } else {
        required.missing("must specify required node constraints");
    }
}

fn validate_update(volume: &Field, old: &Value) {
    let old_spec = &old["spec"];
    let mut allow_invalid = false;
    let _ =
        Field::check(&old_spec["nodeAffinity"]["required"], |required| allow_invalid = has_invalid_values(required));
    validate(volume, allow_invalid);
    let spec = volume.at("spec");
    let mut sources = spec.value().clone();
    // A secret for expansion may be added later.
    if old_spec["csi"].is_object()
        && old_spec["csi"]["controllerExpandSecretRef"].is_null()
        && sources["csi"].is_object()
    {
        sources["csi"].remove("controllerExpandSecretRef");
    }
    if !PERSISTENT_SOURCES.fields().all(|field| same_at(&sources, old_spec, field)) {
        let difference = go_form::difference("PersistentVolumeSource", old_spec, &sources);
        spec.at("persistentvolumesource")
            .forbidden(format!("spec.persistentvolumesource is immutable after creation\n{difference}"));
    }
    volume.at("volumeMode").with(spec.at("volumeMode").value()).immutable(&old_spec["volumeMode"]);
    let affinity = spec.at("nodeAffinity");
    if old_spec["nodeAffinity"].is_object()
        && !same(affinity.value(), &with_stable_labels(affinity.value(), &old_spec["nodeAffinity"]))
    {
        volume
            .at("nodeAffinity")
            .with(affinity.value())
            .invalid_as("VolumeNodeAffinity", &format!("{IMMUTABLE}, except for updating from beta label to GA"));
    }
    let class = "volumeAttributesClassName";
    if old_spec[class].is_string() && !spec.at(class).is_set() {
        spec.at(class).forbidden("update from non-nil value to nil is forbidden");
    }
}

const STABLE_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// The old affinity with those beta labels renamed that the new one has renamed.
fn with_stable_labels(new: &Value, old: &Value) -> Value {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let renamed = |key: &String, value: &Value| match (key.as_str(), new.get(key)) {
                ("key", Some(new)) if STABLE_LABELS.iter().any(|(beta, stable)| value == beta && new == stable) => {
                    new.clone()
                }
                (_, Some(new)) => with_stable_labels(new, value),
                (_, None) => value.clone(),
            };
            Value::Object(old.iter().map(|(key, value)| (key.clone(), renamed(key, value))).collect())
        }
        (Value::Array(new), Value::Array(old)) if new.len() == old.len() => {
            Value::Array(new.iter().zip(old).map(|(new, old)| with_stable_labels(new, old)).collect())
        }
        _ => old.clone(),
    }
}

fn validate_status(volume: &Field, old: &Value) {
    meta::builtin_meta_update(&volume.at("metadata"), &old["metadata"]);
    if volume.at("metadata").at("resourceVersion").is_empty() {
        volume.at("resourceVersion").missing("");
    }
}

fn warnings(volume: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let annotations = &volume["metadata"]["annotations"];
    for (key, message) in [
        (
            "volume.beta.kubernetes.io/storage-class",
            "deprecated since v1.8; use \"storageClassName\" attribute instead",
        ),
        ("volume.beta.kubernetes.io/mount-options", "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if annotations.get(key).is_some() {
            warnings.push(format!("metadata.annotations[{key}]: {message}"));
        }
    }
    let spec = &volume["spec"];
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        warnings.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    let terms = spec["nodeAffinity"]["required"]["nodeSelectorTerms"].as_array();
    for (i, term) in terms.into_iter().flatten().enumerate() {
        let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{i}]");
        warnings.extend(node_selector_term_warnings(&path, term, false));
    }
    for (field, told, since) in [
        ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
        ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
        ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
        ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
        ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
        ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
    ] {
        if spec[field].is_object() {
            warnings.push(format!("spec.{told}: {since}"));
        }
    }
    warnings
}
