//! ValidatingAdmissionPolicyBinding and MutatingAdmissionPolicyBinding: where a policy applies, and with what.

use std::collections::HashSet;

use object_model::names;
use serde_json::Value;

use super::rules::{match_resources, mutating_operations};
use super::{GROUP, match_defaults, warnings};
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::selectors::label_selector;
use crate::validation::{Field, meta};

pub static VALIDATING_STRATEGY: Strategy = binding_of("ValidatingAdmissionPolicyBinding", validating, |object, _| {
    validating(object);
});

pub static MUTATING_STRATEGY: Strategy = binding_of("MutatingAdmissionPolicyBinding", mutating, |object, _| {
    mutating(object);
});

const fn binding_of(kind: &'static str, validate: fn(&Field), validate_update: fn(&Field, &Value)) -> Strategy {
    Strategy {
        unconditional_update: false,
        defaults: |binding| {
            if let Some(matched) = binding.child("spec").and_then(|spec| spec.child("matchResources")) {
                match_defaults(matched, &["resourceRules", "excludeResourceRules"]);
            }
        },
        create: Create { warnings, ..Create::new(|binding, _| prepare::first_generation(binding), validate) },
        update: Update {
            warnings: |binding, _| warnings(binding),
            ..Update::new(|binding, old, _| prepare::next_generation(binding, old, &["spec"]), validate_update)
        },
        ..Strategy::cluster(GROUP, kind)
    }
}

fn shared(binding: &Field) {
    meta::object_meta(&binding.at("metadata"), false, names::name_is_dns_subdomain);
    let spec = binding.at("spec");
    if spec.at("policyName").required() {
        spec.at("policyName").dns_subdomain();
    }
    if spec.at("paramRef").is_set() {
        param_ref(&spec.at("paramRef"));
    }
    match_resources(&spec.at("matchResources"));
}

fn param_ref(param: &Field) {
    const EXCLUSIVE: &str = "name and selector are mutually exclusive";
    let (name, selector, missing) = (param.at("name"), param.at("selector"), param.at("parameterNotFoundAction"));
    let both = !name.is_empty() && selector.is_set();
    name.path_segment();
    if both {
        name.forbidden(EXCLUSIVE);
    }
    label_selector(&selector);
    if both {
        selector.forbidden(EXCLUSIVE);
    }
    if name.is_empty() && !selector.is_set() {
        param.missing("one of name or selector must be specified");
    }
    missing.required_one_of(&["Deny", "Allow"]);
}

fn validating(binding: &Field) {
    shared(binding);
    let spec = binding.at("spec");
    let actions = spec.at("validationActions");
    let mut seen = HashSet::new();
    for action in actions.each() {
        action.one_of(&["Audit", "Deny", "Warn"]);
        if seen.contains(&action.text()) {
            action.duplicate();
        }
        seen.insert(action.text());
    }
    if seen.contains(&"Deny") && seen.contains(&"Warn") {
        actions.invalid(
            "must not contain both Deny and Warn (repeating the same validation failure information in the API \
             response and headers serves no purpose)",
        );
    }
    if seen.is_empty() {
        actions.missing("at least one validation action is required");
    }
}

fn mutating(binding: &Field) {
    shared(binding);
    mutating_operations(&binding.at("spec").at("matchResources"));
}
