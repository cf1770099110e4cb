//! DaemonSet: a pod on every node.

use object_model::names;
use serde_json::{Value, json};

use super::{GROUP, TEMPLATE, collisions_only_grow, prepare_create, selection_of, update_warnings, warnings};
use crate::defaults::{self, Defaults};
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::selectors::{self, Selection, SelectorOptions};
use crate::validation::{Field, meta, pod, same_at};

/// The count of changes of the template, which was a field once.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings: |set| warnings(set, false),
        ..Create::new(
            |set, _| {
                let status = json!({
                    "currentNumberScheduled": 0,
                    "numberMisscheduled": 0,
                    "desiredNumberScheduled": 0,
                    "numberReady": 0,
                });
                prepare_create(set, &status);
                let generation = template_generation(set).max(1);
                set_template_generation(set, generation);
            },
            |set| {
                meta::builtin_meta(&set.at("metadata"), true, names::name_is_dns_subdomain);
                spec(&set.at("spec"), None, false);
            },
        )
    },
    update: Update {
        warnings: update_warnings,
        ..Update::of_spec(prepare_changes, |set, old| {
            meta::builtin_meta_update(&set.at("metadata"), &old["metadata"]);
            set.at("spec").immutable_at("selector", &old["spec"]);
            let options = SelectorOptions::default();
            let old_selector = Field::check(&old["spec"]["selector"], |s| selectors::label_selector_with(s, options));
            spec(&set.at("spec"), Some(&old["spec"]["template"]), !old_selector.is_empty());
        })
    },
    subresources: &[("status", Update::of_status(validate_status))],
    ..Strategy::new(GROUP, "DaemonSet")
};

fn defaults(set: &mut Value) {
    // The count is there before the server counts, so that whoever writes the object owns it.
    if set["metadata"]["annotations"][TEMPLATE_GENERATION].is_null() {
        set_template_generation(set, 0);
    }
    let Some(spec) = set.child("spec") else { return };
    spec.default_if_absent("updateStrategy", json!({}));
    if let Some(strategy) = spec.child("updateStrategy") {
        strategy.default_to("type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate" {
            strategy.default_if_absent("rollingUpdate", json!({}));
            strategy["rollingUpdate"].default_if_absent("maxUnavailable", 1);
            strategy["rollingUpdate"].default_if_absent("maxSurge", 0);
        }
    }
    spec.default_if_absent("revisionHistoryLimit", 10);
    defaults::pod_template(spec);
}

fn template_generation(set: &Value) -> i64 {
    set["metadata"]["annotations"][TEMPLATE_GENERATION].as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(set: &mut Value, generation: i64) {
    prepare::put(set, &["metadata", "annotations", TEMPLATE_GENERATION], Some(&json!(generation.to_string())));
}

/// Each change of the template counts, and only the server counts.
fn prepare_changes(set: &mut Value, old: &Value, _: &crate::kinds::Context) {
    pod::drop_disabled(set, TEMPLATE, Some(old));
    prepare::keep(set, old, "status");
    let changed = !same_at(&set["spec"], &old["spec"], "template");
    set_template_generation(set, template_generation(old) + i64::from(changed));
    prepare::next_generation(set, old, &["spec"]);
}

fn spec(spec: &Field, old_template: Option<&Value>, allow_invalid_values: bool) {
    let selector = spec.at("selector");
    selectors::label_selector_with(&selector, SelectorOptions { allow_invalid_values, ..Default::default() });
    let template = spec.at("template");
    // An empty selector selects everything, and is refused below for that.
    match selection_of(spec) {
        Selection::Invalid => {}
        selection => pod::matches_selector(&template, selection),
    }
    if selector.is_set() && selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
        selector.invalid("empty selector is invalid for daemonset");
    }
    pod::pod_template(&template, &pod::Options::of(old_template));
    pod::runs_forever(&template, "activeDeadlineSeconds in DaemonSet is not Supported");
    spec.at("minReadySeconds").non_negative();
    update_strategy(&spec.at("updateStrategy"));
    spec.at("revisionHistoryLimit").non_negative();
}

fn update_strategy(strategy: &Field) {
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => rolling.missing(""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            unavailable.positive_int_or_percent();
            surge.positive_int_or_percent();
            unavailable.at_most_100_percent();
            surge.at_most_100_percent();
            match (unavailable.int_or_percent() != 0, surge.int_or_percent() != 0) {
                (true, true) => surge.invalid("may not be set when maxUnavailable is non-zero"),
                (false, false) => unavailable.missing("cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => strategy.not_supported_as("DaemonSetUpdateStrategy", &["RollingUpdate", "OnDelete"]),
    }
}

fn validate_status(set: &Field, old: &Value) {
    meta::builtin_meta_update(&set.at("metadata"), &old["metadata"]);
    let status = set.at("status");
    for name in [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ] {
        status.at(name).non_negative();
    }
    collisions_only_grow(&status, old);
}
