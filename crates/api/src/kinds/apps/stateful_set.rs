//! StatefulSet: pods with stable names and storage of their own.

use object_model::names;
use serde_json::{Value, json};

use super::{GROUP, collisions_only_grow, counts, prepare_create, prepare_update, selection_of, selector};
use crate::defaults::{self, Defaults};
use crate::kinds::core::persistent_volume_claim;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::selectors::Selection;
use crate::validation::{Field, meta, pod, same};

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings: |set| warnings(set, ""),
        ..Create::new(
            |set, _| {
                prepare_create(set, &json!({"replicas": 0, "availableReplicas": 0}));
                drop_max_unavailable(set, None);
            },
            |set| {
                meta::builtin_meta(&set.at("metadata"), true, names::name_is_dns_label);
                spec(&set.at("spec"), None);
            },
        )
    },
    update: Update {
        warnings: |set, old| match set["metadata"]["generation"] != old["metadata"]["generation"] {
            true => warnings(set, ".Spec"),
            false => Vec::new(),
        },
        ..Update::of_spec(
            |set, old, _| {
                drop_max_unavailable(set, Some(old));
                prepare_update(set, old, &["spec"]);
            },
            validate_update,
        )
    },
    subresources: &[("status", Update::of_status(validate_status))],
    ..Strategy::new(GROUP, "StatefulSet")
};

fn defaults(set: &mut Value) {
    let Some(spec) = set.child("spec") else { return };
    spec.default_to("podManagementPolicy", "OrderedReady");
    spec.default_if_absent("updateStrategy", json!({}));
    if let Some(strategy) = spec.child("updateStrategy") {
        if strategy["type"].as_str().unwrap_or_default().is_empty() {
            strategy.default_to("type", "RollingUpdate");
            strategy.default_if_absent("rollingUpdate", json!({}));
        }
        if strategy["type"] == "RollingUpdate"
            && let Some(rolling) = strategy.child("rollingUpdate")
        {
            rolling.default_if_absent("partition", 0);
        }
    }
    spec.default_if_absent("persistentVolumeClaimRetentionPolicy", json!({}));
    for when in ["whenDeleted", "whenScaled"] {
        spec["persistentVolumeClaimRetentionPolicy"].default_to(when, "Retain");
    }
    spec.default_if_absent("replicas", 1);
    spec.default_if_absent("revisionHistoryLimit", 10);
    defaults::pod_template(spec);
    for claim in spec.each("volumeClaimTemplates") {
        // The claims are whole objects: they are told with their kind and a status.
        claim.default_to("apiVersion", "v1");
        claim.default_to("kind", "PersistentVolumeClaim");
        (persistent_volume_claim::STRATEGY.defaults)(claim);
    }
}

/// `maxUnavailable` belongs to a feature that is off.
fn drop_max_unavailable(set: &mut Value, old: Option<&Value>) {
    let path = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
    if old.is_none_or(|old| old["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].is_null()) {
        prepare::put(set, &path, None);
    }
}

/// `old` is the old specification of a set that is updated.
fn spec(spec: &Field, old: Option<&Value>) {
    let policy = spec.at("podManagementPolicy");
    if policy.required() && !policy.is_one_of(&["OrderedReady", "Parallel"]) {
        policy.invalid("must be 'OrderedReady' or 'Parallel'");
    }
    update_strategy(&spec.at("updateStrategy"));
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    if retention.is_set() {
        for when in ["whenDeleted", "whenScaled"] {
            retention.at(when).one_of(&["Retain", "Delete"]);
        }
    }
    if old.is_none() {
        for claim in spec.at("volumeClaimTemplates").each() {
            persistent_volume_claim::spec(&claim.at("spec"), &Default::default());
        }
    }
    spec.at("replicas").non_negative();
    spec.at("minReadySeconds").non_negative();
    let ordinals = spec.at("ordinals");
    spec.at("ordinals.start").with(ordinals.at("start").value()).non_negative();
    if old.is_none() {
        spec.at("serviceName").dns_label_if_any();
    }
    selector(spec, "empty selector is invalid for statefulset");
    template(spec, old);
}

fn update_strategy(strategy: &Field) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "" => strategy.missing(""),
        "OnDelete" if rolling.is_set() => {
            rolling.invalid_as("RollingUpdateStatefulSet", "only allowed for updateStrategy 'RollingUpdate'")
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            rolling.at("partition").non_negative();
            let unavailable = rolling.at("maxUnavailable");
            if unavailable.is_set() {
                unavailable.positive_int_or_percent();
                if unavailable.int_or_percent() == 0 {
                    unavailable.invalid("cannot be 0");
                }
                unavailable.at_most_100_percent();
            }
        }
        _ => strategy.invalid_as("StatefulSetUpdateStrategy", "must be 'RollingUpdate' or 'OnDelete'"),
    }
}

/// The template as its pods will have it: with a volume for each claim, and a hostname of the set's making.
fn template(spec: &Field, old: Option<&Value>) {
    let selection = selection_of(spec);
    let template = spec.at("template");
    if selection == Selection::Invalid {
        spec.at("selector").invalid("");
    } else {
        pod::matches_selector(&template, selection);
        let completed = with_claim_volumes(spec.value());
        let prefix = template.path().to_string();
        let skip = old.is_some_and(|old| !template_is_valid(old));
        let found = Field::check(&completed, |template| {
            let options = pod::Options::of(old.map(|old| &old["template"]));
            if !skip {
                pod::pod_template(template, &options);
            }
            pod::template_metadata(template, &options);
        });
        for mut error in found {
            error.field = format!("{prefix}.{}", error.field);
            template.push(error);
        }
    }
    pod::runs_forever(&template, "activeDeadlineSeconds in StatefulSet is not Supported");
}

fn template_is_valid(spec: &Value) -> bool {
    Field::check(&with_claim_volumes(spec), |template| pod::pod_template(template, &pod::Options::of(None))).is_empty()
}

fn with_claim_volumes(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims: Vec<&str> = spec["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|claim| claim["metadata"]["name"].as_str().unwrap_or_default())
        .collect();
    if let Some(pod) = template.child("spec") {
        pod.remove("hostname");
        pod.remove("subdomain");
        if !claims.is_empty() {
            let own = pod["volumes"].as_array().cloned().unwrap_or_default();
            let mut sorted = claims.clone();
            sorted.sort_unstable();
            sorted.dedup();
            let of_claims =
                sorted.into_iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
            let others = own.into_iter().filter(|volume| !claims.iter().any(|name| volume["name"] == *name));
            pod["volumes"] = of_claims.chain(others).collect();
        }
    }
    template
}

fn validate_update(set: &Field, old: &Value) {
    meta::builtin_meta_update(&set.at("metadata"), &old["metadata"]);
    let field = set.at("spec");
    spec(&field, Some(&old["spec"]));
    let mut rest = field.value().clone();
    for name in [
        "replicas",
        "template",
        "updateStrategy",
        "minReadySeconds",
        "ordinals",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
    ] {
        prepare::keep(&mut rest, &old["spec"], name);
    }
    if !same(&rest, &old["spec"]) {
        field.forbidden(
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

fn validate_status(set: &Field, old: &Value) {
    let status = set.at("status");
    counts(
        &status,
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
        &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
        "cannot be greater than status.readyReplicas",
    );
    meta::builtin_meta_update(&set.at("metadata"), &old["metadata"]);
    collisions_only_grow(&status, old);
}

fn warnings(set: &Value, inner: &str) -> Vec<String> {
    let spec = &set["spec"];
    let mut warnings = super::warnings(set, false);
    for (i, claim) in spec["volumeClaimTemplates"].as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.volumeClaimTemplates[{i}]{inner}");
        warnings.extend(persistent_volume_claim::spec_warnings(&path, &claim["spec"]));
    }
    if spec["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    warnings
}
