//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: rules in CEL about writes.

use std::collections::HashSet;

use expressions::Type;
use object_model::names;
use serde_json::Value;

use super::expressions::Scope;
use super::rules::{expression, match_conditions, match_resources, mutating_operations};
use super::{FAILURE_POLICIES, GROUP, REINVOCATION_POLICIES, match_defaults, warnings};
use crate::defaults::Defaults;
use crate::kinds::{Create, Reset, Strategy, Update, prepare};
use crate::validation::{Field, meta, same_at};

const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_AUDIT_EXPRESSION: usize = 5 * 1024;
/// Words of CEL itself, which cannot name anything either.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

pub static VALIDATING_STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    defaults,
    create: Create { warnings, ..Create::new(prepare::new_with_status, |policy| validating(policy, false)) },
    update: Update {
        warnings: |policy, _| warnings(policy),
        ..Update::of_spec(prepare::spec_only, |policy, old| validating(policy, same_conditions(policy, old)))
    },
    subresources: &[(
        "status",
        Update {
            reset: Reset::Fields(&[&["metadata"], &["spec"]]),
            ..Update::new(prepare::status_and_nothing_else, |policy, _| status(&policy.at("status")))
        },
    )],
    ..Strategy::cluster(GROUP, "ValidatingAdmissionPolicy")
};

pub static MUTATING_STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    defaults,
    create: Create {
        warnings,
        ..Create::new(|policy, _| prepare::first_generation(policy), |policy| mutating(policy, false))
    },
    update: Update {
        warnings: |policy, _| warnings(policy),
        ..Update::new(
            |policy, old, _| prepare::next_generation(policy, old, &["spec"]),
            |policy, old| mutating(policy, same_conditions(policy, old)),
        )
    },
    ..Strategy::cluster(GROUP, "MutatingAdmissionPolicy")
};

fn defaults(policy: &mut Value) {
    let Some(spec) = policy.child("spec") else { return };
    spec.default_if_absent("failurePolicy", "Fail");
    if let Some(matched) = spec.child("matchConstraints") {
        match_defaults(matched, &["resourceRules", "excludeResourceRules"]);
    }
}

/// Conditions that stay as they are are not judged again.
fn same_conditions(policy: &Field, old: &Value) -> bool {
    ["paramKind", "matchConditions"].iter().all(|name| same_at(&policy.value()["spec"], &old["spec"], name))
}

/// What all policies have. Tells what the rest of their expressions may use.
fn matching(policy: &Field, skip_conditions: bool, is_mutating: bool) -> Scope {
    meta::object_meta(&policy.at("metadata"), false, names::name_is_dns_subdomain);
    let spec = policy.at("spec");
    spec.at("failurePolicy").one_of(FAILURE_POLICIES);
    if spec.at("paramKind").is_set() {
        param_kind(&spec.at("paramKind"));
    }
    let mut scope = Scope::new(spec.at("paramKind").is_set());
    let matched = spec.at("matchConstraints");
    match_resources(&matched);
    if !matched.is_set() {
        matched.missing("");
    } else {
        matched.at("resourceRules").required();
        if is_mutating {
            mutating_operations(&matched);
        }
    }
    if !skip_conditions {
        match_conditions(&spec.at("matchConditions"), &scope);
    }
    spec.at("variables").each().for_each(|item| variable(&item, &mut scope));
    scope
}

fn validating(policy: &Field, skip_conditions: bool) {
    let scope = matching(policy, skip_conditions, false);
    let spec = policy.at("spec");
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for list in [validations, annotations] {
            list.missing("validations or auditAnnotations must contain at least one item");
        }
        return;
    }
    validations.each().for_each(|item| validation(&item, &scope));
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        annotations.invalid(format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations"));
    }
    let name = policy.value()["metadata"]["name"].as_str().unwrap_or_default();
    let mut seen = HashSet::new();
    for annotation in annotations.each() {
        audit_annotation(&annotation, name, &scope);
        let key = annotation.at("key");
        if seen.contains(&key.text()) {
            key.with_text().duplicate();
        }
        seen.insert(key.text());
    }
}

fn mutating(policy: &Field, skip_conditions: bool) {
    let scope = matching(policy, skip_conditions, true);
    let spec = policy.at("spec");
    let mutations = spec.at("mutations");
    if mutations.is_empty() {
        mutations.missing("mutations must contain at least one item");
    }
    mutations.each().for_each(|item| mutation(&item, &scope));
    spec.at("reinvocationPolicy").required_one_of(REINVOCATION_POLICIES);
}

fn param_kind(param: &Field) {
    let (version, kind) = (param.at("apiVersion"), param.at("kind"));
    let (group, part) = version.text().split_once('/').unwrap_or(("", version.text()));
    if !version.required() {
    } else if part.contains('/') {
        version.invalid(format!("unexpected GroupVersion string: {}", version.text()));
    } else {
        let wrong = names::dns_subdomain(group);
        if !group.is_empty() && !wrong.is_empty() {
            version.invalid_value(group, wrong.join(","));
        }
        let wrong = names::dns1035_label(part);
        if part.is_empty() {
            version.invalid("version must be specified");
        } else if !wrong.is_empty() {
            version.invalid_value(part, wrong.join(","));
        }
    }
    if kind.required() {
        let wrong = names::dns1035_label(&kind.text().to_lowercase());
        if !wrong.is_empty() {
            kind.invalid(format!("may have mixed case, but should otherwise match: {}", wrong.join(",")));
        }
    }
}

fn variable(variable: &Field, scope: &mut Scope) {
    let name = variable.at("name");
    let text = name.text();
    let fits =
        text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()) && !text.starts_with(|c: char| c.is_ascii_digit());
    if text.trim().is_empty() {
        name.missing("name is not specified");
    } else if !fits || WORDS.contains(&text) || expressions::RESERVED.contains(&text) {
        name.invalid("must be a valid CEL identifier");
    }
    if expression(&variable.at("expression"), "expression is not specified") {
        scope.declare(text, &variable.at("expression"));
    }
}

fn validation(validation: &Field, scope: &Scope) {
    if expression(&validation.at("expression"), "expression is not specified") {
        scope.check(&validation.at("expression"), &[Type::Bool]);
    }
    if !validation.at("messageExpression").text().trim().is_empty() {
        scope.check_message(&validation.at("messageExpression"));
    }
    let (words, message) = (validation.at("messageExpression"), validation.at("message"));
    for text in [words, message] {
        if !text.is_empty() && text.text().trim().is_empty() {
            text.invalid("must be non-empty if specified");
        }
    }
    if message.text().trim().contains(['\n', '\r']) {
        message.invalid("must not contain line breaks");
    }
    validation.at("reason").one_of_if_set(&["Forbidden", "Invalid", "RequestEntityTooLarge"]);
}

fn audit_annotation(annotation: &Field, policy: &str, scope: &Scope) {
    let (key, value) = (annotation.at("key"), annotation.at("valueExpression"));
    if policy.is_empty() {
        key.with_text().invalid("requires metadata.name be non-empty");
    } else {
        let full = format!("{policy}/{}", key.text());
        for message in names::qualified_name(&full) {
            key.invalid_value(full.as_str(), message);
        }
    }
    if value.text().trim().len() > MAX_AUDIT_EXPRESSION {
        value.missing(format!("must not exceed {MAX_AUDIT_EXPRESSION} bytes in length"));
    } else if expression(&value, "valueExpression is not specified") {
        scope.check_trimmed(&value, &[Type::String, Type::Null]);
    }
}

fn mutation(mutation: &Field, scope: &Scope) {
    let kind = mutation.at("patchType");
    let (own, other) = match kind.text() {
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        _ => return kind.required_one_of(&["ApplyConfiguration", "JSONPatch"]),
    };
    match mutation.at(own).is_set() {
        true => {
            let owned = mutation.at(own);
            let patch = owned.at("expression");
            if expression(&patch, "") {
                scope.check_patch(&patch, own == "jsonPatch");
            }
        }
        false => mutation.at(own).missing(format!("must be specified when patchType is {}", kind.text())),
    }
    if mutation.at(other).is_set() {
        let detail = format!("must not be specified when patchType is {}", kind.text());
        mutation.at(other).invalid_value(format!("{{{other}}}"), detail);
    }
}

fn status(status: &Field) {
    let checked = status.at("typeChecking");
    for warning in checked.at("expressionWarnings").each() {
        warning.at("warning").required();
        if warning.at("fieldRef").text().trim().is_empty() {
            warning.at("fieldRef").missing("");
        }
    }
    meta::conditions(&status.at("conditions"));
}
