//! ResourceQuota: how much of each resource a namespace may use.

use object_model::names;
use serde_json::Value;

use crate::defaults::{Defaults, resource_list};
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::resources::{amount, is_standard_quota, quota_resource_name};
use crate::validation::{Field, IMMUTABLE, meta, quantity};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const COMPUTE: &[&str] = &["cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"];

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: |quota| {
        for (part, list) in [("spec", "hard"), ("status", "hard"), ("status", "used")] {
            if let Some(part) = quota.child(part) {
                resource_list(part, list);
            }
        }
    },
    create: Create {
        warnings,
        ..Create::new(
            |quota, _| prepare::put(quota, &["status"], Some(&serde_json::json!({}))),
            |quota| {
                meta::builtin_meta(&quota.at("metadata"), true, names::name_is_dns_subdomain);
                spec(&quota.at("spec"));
            },
        )
    },
    update: Update::of_spec(
        |quota, old, _| prepare::keep(quota, old, "status"),
        |quota, old| {
            meta::builtin_meta_update(&quota.at("metadata"), &old["metadata"]);
            spec(&quota.at("spec"));
            same_scopes(&quota.at("spec"), &old["spec"]["scopes"]);
        },
    ),
    subresources: &[("status", Update::of_status(validate_status))],
    ..Strategy::new("", "ResourceQuota")
};

fn spec(spec: &Field) {
    amounts(&spec.at("hard"));
    let hard: Vec<&str> =
        spec.at("hard").value().as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    scopes(&spec.at("scopes"), &hard);
    scope_selector(spec, &hard);
}

fn amounts(list: &Field) {
    for (name, entry) in list.entries() {
        quota_resource_name(name, &entry);
        amount(name, &entry);
    }
}

fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating" | "NotTerminating" | "NotBestEffort" | "PriorityClass" | "CrossNamespacePodAffinity" => {
            resource == "pods" || COMPUTE.contains(&resource)
        }
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => ["persistentvolumeclaims", "requests.storage"].contains(&resource),
        _ => true,
    }
}

fn scopes(scopes: &Field, hard: &[&str]) {
    for scope in scopes.texts() {
        if !SCOPES.contains(&scope) {
            scopes.invalid("unsupported scope");
        }
        for _ in hard.iter().filter(|name| is_standard_quota(name) && !fits(scope, name)) {
            scopes.invalid("unsupported scope applied to resource");
        }
    }
    conflicting(scopes, scopes.value(), &scopes.texts().collect::<Vec<_>>());
}

fn conflicting(told: &Field, scopes: &Value, names: &[&str]) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| names.contains(scope)) {
            told.invalid_value(scopes.clone(), "conflicting scopes");
        }
    }
}

fn scope_selector(spec: &Field, hard: &[&str]) {
    let selector = spec.at("scopeSelector");
    let told = selector.at("matchExpressions");
    let mut names = Vec::new();
    for requirement in told.each() {
        let (scope, operator, values) =
            (requirement.at("scopeName"), requirement.at("operator"), requirement.at("values"));
        names.push(scope.text());
        if !scope.is_one_of(SCOPES) {
            told.at("scopeName").invalid_value(scope.text(), "unsupported scope");
        }
        for _ in hard.iter().filter(|name| is_standard_quota(name) && !fits(scope.text(), name)) {
            told.invalid_value(selector.value().clone(), "unsupported scope applied to resource");
        }
        let by_existence = !scope.is_one_of(&["PriorityClass", "VolumeAttributesClass"]) && scope.is_one_of(SCOPES);
        if by_existence && !operator.is("Exists") {
            told.at("operator").invalid_value(
                operator.text(),
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, \
                 ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or \
                 ResourceQuotaScopeCrossNamespacePodAffinity",
            );
        }
        match operator.text() {
            "In" | "NotIn" if values.is_empty() => told
                .at("values")
                .missing("must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"),
            "Exists" | "DoesNotExist" if !values.is_empty() => told.at("values").invalid_value(
                values.value().clone(),
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
            ),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => told.at("operator").invalid_value(other, "not a valid selector operator"),
        }
    }
    conflicting(&told, spec.at("scopes").value(), &names);
}

fn same_scopes(spec: &Field, old: &Value) {
    let sorted = |scopes: &Value| {
        let mut scopes: Vec<String> =
            scopes.as_array().into_iter().flatten().filter_map(|s| s.as_str().map(str::to_owned)).collect();
        scopes.sort();
        scopes.dedup();
        scopes
    };
    let scopes = spec.at("scopes");
    if sorted(scopes.value()) != sorted(old) {
        scopes.invalid(IMMUTABLE);
    }
}

fn validate_status(quota: &Field, old: &Value) {
    meta::builtin_meta_update(&quota.at("metadata"), &old["metadata"]);
    if quota.at("metadata").at("resourceVersion").is_empty() {
        quota.at("resourceVersion").missing("");
    }
    let status = quota.at("status");
    amounts(&status.at("hard"));
    amounts(&status.at("used"));
}

/// A request above its limit can never be used up.
fn warnings(quota: &Value) -> Vec<String> {
    let hard = &quota["spec"]["hard"];
    let mut warnings = Vec::new();
    for resource in ["cpu", "memory", "storage", "ephemeral-storage"] {
        let names = [format!("requests.{resource}"), resource.to_owned()];
        let usable = if resource.ends_with("storage") { &names[..1] } else { &names[..] };
        let limit_name = format!("limits.{resource}");
        let request = usable.iter().find(|name| hard.get(name.as_str()).is_some());
        if let (Some(name), Some(limit)) = (request, hard.get(&limit_name)) {
            let (request, limit) = (quantity(&hard[name.as_str()]), quantity(limit));
            if request > limit {
                warnings.push(format!("ResourceQuota {name} ({request}) should be less than {limit_name} ({limit})"));
            }
        }
    }
    warnings
}
