//! ValidatingWebhookConfiguration and MutatingWebhookConfiguration: servers that are asked about writes.

use std::collections::HashSet;

use object_model::names;
use serde_json::Value;

use super::expressions::Scope;
use super::rules::{match_conditions, rule};
use super::{FAILURE_POLICIES, GROUP, MATCH_POLICIES, REINVOCATION_POLICIES, match_defaults, warnings};
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::selectors::{SelectorOptions, label_selector_with, tolerating};
use crate::validation::{Field, meta, same_at, webhooks};

const NO_SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun", "Some", "Unknown"];
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// What an old configuration had wrong and may keep.
#[derive(Default)]
struct Tolerated {
    conditions: bool,
    side_effects: bool,
    review_versions: bool,
    repeated_names: bool,
    selectors: SelectorOptions,
}

pub static VALIDATING_STRATEGY: Strategy = Strategy {
    defaults: |configuration| configuration.each("webhooks").for_each(webhook_defaults),
    ..webhooks_of("ValidatingWebhookConfiguration")
};

pub static MUTATING_STRATEGY: Strategy = Strategy {
    defaults: |configuration| {
        for webhook in configuration.each("webhooks") {
            webhook_defaults(webhook);
            webhook.default_if_absent("reinvocationPolicy", "Never");
        }
    },
    ..webhooks_of("MutatingWebhookConfiguration")
};

const fn webhooks_of(kind: &'static str) -> Strategy {
    Strategy {
        unconditional_update: false,
        create: Create {
            warnings,
            ..Create::new(
                |configuration, _| prepare::first_generation(configuration),
                |configuration| validate(configuration, &Tolerated::default()),
            )
        },
        update: Update {
            warnings: |configuration, _| warnings(configuration),
            ..Update::new(
                |configuration, old, _| prepare::next_generation(configuration, old, &["webhooks"]),
                |configuration, old| validate(configuration, &tolerated(configuration.value(), old)),
            )
        },
        ..Strategy::cluster(GROUP, kind)
    }
}

fn webhook_defaults(webhook: &mut Value) {
    webhook.default_if_absent("failurePolicy", "Fail");
    match_defaults(webhook, &["rules"]);
    webhook.default_if_absent("timeoutSeconds", 10);
    if let Some(service) = webhook.child("clientConfig").and_then(|config| config.child("service")) {
        service.default_if_absent("port", 443);
    }
}

fn tolerated(new: &Value, old: &Value) -> Tolerated {
    let hooks = |configuration: &Value| configuration["webhooks"].as_array().cloned().unwrap_or_default();
    let (new, old) = (hooks(new), hooks(old));
    let recognized = |hook: &Value| {
        let versions = hook["admissionReviewVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
        versions.is_empty() || versions.iter().any(|version| REVIEW_VERSIONS.iter().any(|known| version == known))
    };
    let selectors = old.iter().flat_map(|hook| [&hook["namespaceSelector"], &hook["objectSelector"]]);
    Tolerated {
        conditions: new.len() == old.len() && new.iter().zip(&old).all(|(a, b)| same_at(a, b, "matchConditions")),
        side_effects: !old.iter().all(|hook| NO_SIDE_EFFECTS.iter().any(|class| hook["sideEffects"] == *class)),
        review_versions: !old.iter().all(recognized),
        repeated_names: (0..old.len()).any(|i| old[..i].iter().any(|earlier| earlier["name"] == old[i]["name"])),
        selectors: selectors.map(tolerating).find(|options| options.allow_invalid_values).unwrap_or_default(),
    }
}

fn validate(configuration: &Field, tolerated: &Tolerated) {
    meta::object_meta(&configuration.at("metadata"), false, names::name_is_dns_subdomain);
    let mut seen = HashSet::new();
    for hook in configuration.at("webhooks").each() {
        webhook(&hook, tolerated);
        let versions = hook.at("admissionReviewVersions");
        match versions.is_empty() {
            true => versions.missing(format!("must specify one of {}", REVIEW_VERSIONS.join(", "))),
            false => webhooks::review_versions(&versions, REVIEW_VERSIONS, tolerated.review_versions),
        }
        let name = hook.at("name");
        if !name.is_empty() && !tolerated.repeated_names {
            if seen.contains(&name.text()) {
                name.duplicate();
            }
            seen.insert(name.text());
        }
    }
}

fn webhook(hook: &Field, tolerated: &Tolerated) {
    hook.at("name").held_to(names::fully_qualified_name);
    hook.at("rules").each().for_each(|item| rule(&item));
    hook.at("failurePolicy").one_of_if_set(FAILURE_POLICIES);
    hook.at("matchPolicy").one_of_if_set(MATCH_POLICIES);
    let classes = if tolerated.side_effects { SIDE_EFFECTS } else { NO_SIDE_EFFECTS };
    let effects = hook.at("sideEffects");
    match effects.is_set() {
        true => effects.one_of(classes),
        false => effects.missing(format!("must specify one of {}", classes.join(", "))),
    }
    let timeout = hook.at("timeoutSeconds");
    if timeout.int().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        timeout.invalid("the timeout value must be between 1 and 30 seconds");
    }
    label_selector_with(&hook.at("namespaceSelector"), tolerated.selectors);
    label_selector_with(&hook.at("objectSelector"), tolerated.selectors);
    hook.at("reinvocationPolicy").one_of_if_set(REINVOCATION_POLICIES);
    webhooks::client_config(&hook.at("clientConfig"));
    if !tolerated.conditions {
        match_conditions(&hook.at("matchConditions"), &Scope::new(false));
    }
}
