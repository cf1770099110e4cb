//! Deployment: rolls out ReplicaSets.

use object_model::names;
use serde_json::{Value, json};

use super::replica_set::selected_template;
use super::{GROUP, collisions_only_grow, counts, prepare_create, prepare_update, update_warnings, warnings};
use crate::defaults::{self, Defaults};
use crate::kinds::{Create, Reset, Strategy, Update, prepare};
use crate::validation::{Field, meta, same_at};

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings: |deployment| warnings(deployment, true),
        ..Create::new(
            |deployment, _| prepare_create(deployment, &json!({})),
            |deployment| {
                meta::builtin_meta(&deployment.at("metadata"), true, names::name_is_dns_subdomain);
                spec(&deployment.at("spec"), None);
            },
        )
    },
    update: Update {
        warnings: update_warnings,
        ..Update::of_spec(prepare_changes, |deployment, old| {
            meta::builtin_meta_update(&deployment.at("metadata"), &old["metadata"]);
            spec(&deployment.at("spec"), Some(&old["spec"]["template"]));
            deployment.at("spec").immutable_at("selector", &old["spec"]);
        })
    },
    subresources: &[(
        "status",
        Update {
            reset: Reset::Fields(&[&["spec"], &["metadata", "labels"]]),
            ..Update::new(
                |deployment, old, context| {
                    prepare::status_only(deployment, old, context);
                    prepare::put(deployment, &["metadata", "labels"], old["metadata"].get("labels"));
                },
                validate_status,
            )
        },
    )],
    ..Strategy::new(GROUP, "Deployment")
};

fn defaults(deployment: &mut Value) {
    let Some(spec) = deployment.child("spec") else { return };
    spec.default_if_absent("replicas", 1);
    spec.default_if_absent("strategy", json!({}));
    if let Some(strategy) = spec.child("strategy") {
        strategy.default_to("type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            strategy.default_if_absent("rollingUpdate", json!({}));
            strategy["rollingUpdate"].default_if_absent("maxUnavailable", "25%");
            strategy["rollingUpdate"].default_if_absent("maxSurge", "25%");
        }
    }
    spec.default_if_absent("revisionHistoryLimit", 10);
    spec.default_if_absent("progressDeadlineSeconds", 600);
    defaults::pod_template(spec);
}

/// Annotations count as well: they say which revision is meant.
fn prepare_changes(deployment: &mut Value, old: &Value, _: &crate::kinds::Context) {
    let annotated = !same_at(&deployment["metadata"], &old["metadata"], "annotations");
    let counted: &[&str] = if annotated { &["spec", "metadata"] } else { &["spec"] };
    prepare_update(deployment, old, counted);
}

fn spec(spec: &Field, old_template: Option<&Value>) {
    spec.at("replicas").non_negative();
    selected_template(spec, old_template);
    strategy(&spec.at("strategy"));
    spec.at("minReadySeconds").non_negative();
    spec.at("revisionHistoryLimit").non_negative();
    let deadline = spec.at("progressDeadlineSeconds");
    if deadline.is_set() {
        deadline.non_negative();
        if deadline.number() <= spec.at("minReadySeconds").number() {
            deadline.invalid("must be greater than minReadySeconds");
        }
    }
}

fn strategy(strategy: &Field) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if rolling.is_set() => rolling.forbidden("may not be specified when strategy `type` is 'Recreate'"),
        "Recreate" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.missing("this should be defaulted and never be nil"),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            unavailable.positive_int_or_percent();
            surge.positive_int_or_percent();
            if unavailable.int_or_percent() == 0 && surge.int_or_percent() == 0 {
                unavailable.invalid("may not be 0 when `maxSurge` is 0");
            }
            unavailable.at_most_100_percent();
        }
        _ => strategy.not_supported_as("DeploymentStrategy", &["Recreate", "RollingUpdate"]),
    }
}

fn validate_status(deployment: &Field, old: &Value) {
    meta::builtin_meta_update(&deployment.at("metadata"), &old["metadata"]);
    let status = deployment.at("status");
    counts(
        &status,
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
        &["updatedReplicas", "readyReplicas", "availableReplicas"],
        "cannot be greater than readyReplicas",
    );
    collisions_only_grow(&status, old);
}
