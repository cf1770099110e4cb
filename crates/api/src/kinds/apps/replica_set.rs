//! ReplicaSet: keeps a number of equal pods running.

use object_model::names;
use serde_json::{Value, json};

use super::{GROUP, counts, prepare_create, prepare_update, selection_of, selector, update_warnings, warnings};
use crate::defaults::{self, Defaults};
use crate::kinds::{Create, Selectable, Strategy, Update};
use crate::validation::selectors::Selection;
use crate::validation::{Field, meta, pod};

pub static STRATEGY: Strategy = Strategy {
    defaults: |set| {
        if let Some(spec) = set.child("spec") {
            spec.default_if_absent("replicas", 1);
            defaults::pod_template(spec);
        }
    },
    create: Create {
        warnings: |set| warnings(set, true),
        ..Create::new(
            |set, _| prepare_create(set, &json!({"replicas": 0})),
            |set| {
                meta::builtin_meta(&set.at("metadata"), true, names::name_is_dns_subdomain);
                spec(&set.at("spec"), None);
            },
        )
    },
    update: Update {
        warnings: update_warnings,
        ..Update::of_spec(
            |set, old, _| prepare_update(set, old, &["spec"]),
            |set, old| {
                meta::builtin_meta_update(&set.at("metadata"), &old["metadata"]);
                spec(&set.at("spec"), Some(&old["spec"]["template"]));
                set.at("spec").immutable_at("selector", &old["spec"]);
            },
        )
    },
    subresources: &[("status", Update::of_status(validate_status))],
    fields: &[Selectable {
        name: "status.replicas",
        read: |set| set["status"]["replicas"].as_i64().unwrap_or_default().to_string(),
    }],
    ..Strategy::new(GROUP, "ReplicaSet")
};

fn spec(spec: &Field, old_template: Option<&Value>) {
    spec.at("replicas").non_negative();
    spec.at("minReadySeconds").non_negative();
    selected_template(spec, old_template);
}

/// The selector and the template it selects; a Deployment has them too.
pub fn selected_template(spec: &Field, old_template: Option<&Value>) {
    selector(spec, "empty selector is invalid for deployment");
    match selection_of(spec) {
        Selection::Invalid => spec.at("selector").invalid("invalid label selector"),
        selection => pod::controller_template(
            &spec.at("template"),
            &pod::Options::of(old_template),
            selection,
            "activeDeadlineSeconds in ReplicaSet is not Supported",
        ),
    }
}

fn validate_status(set: &Field, old: &Value) {
    meta::builtin_meta_update(&set.at("metadata"), &old["metadata"]);
    counts(
        &set.at("status"),
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
        &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
        "cannot be greater than readyReplicas",
    );
}
