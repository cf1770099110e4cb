//! Node: a machine that runs pods.

use std::collections::HashSet;

use object_model::names;
use serde_json::{Value, json};

use crate::defaults::{Defaults, resource_list};
use crate::kinds::{Create, Selectable, Strategy, Update, prepare};
use crate::validation::resources::amount;
use crate::validation::{Field, addresses, meta, pod};

const TAINTS_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOID_ANNOTATION: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings,
        ..Create::new(
            |node, _| {
                prepare::put(node, &["spec", "configSource"], None);
                prepare::put(node, &["status", "config"], None);
            },
            validate,
        )
    },
    update: Update {
        warnings: |node, _| warnings(node),
        ..Update::of_spec(
            |node, old, _| {
                prepare::keep(node, old, "status");
                if old["spec"]["configSource"].is_null() {
                    prepare::put(node, &["spec", "configSource"], None);
                }
            },
            |node, old| {
                validate(node);
                validate_update(node, old);
            },
        )
    },
    subresources: &[(
        "status",
        Update {
            prepare: |node, old, context| {
                prepare::status_only(node, old, context);
                if old["status"]["config"].is_null() {
                    prepare::put(node, &["status", "config"], None);
                }
            },
            ..Update::of_status(validate_update)
        },
    )],
    fields: &[Selectable {
        name: "spec.unschedulable",
        read: |node| (node["spec"]["unschedulable"] == true).to_string(),
    }],
    ..Strategy::cluster("", "Node")
};

fn defaults(node: &mut Value) {
    if let Some(spec) = node.child("spec") {
        pod_cidrs(spec);
    }
    if let Some(status) = node.child("status") {
        let capacity = status["capacity"].clone();
        if capacity.is_object() {
            status.default_if_absent("allocatable", capacity);
        }
        resource_list(status, "capacity");
        resource_list(status, "allocatable");
    }
}

/// The block of addresses has an old field for one beside the list; the old one decides if they differ.
fn pod_cidrs(spec: &mut Value) {
    let single = spec["podCIDR"].as_str().filter(|cidr| !cidr.is_empty()).map(str::to_owned);
    match (single, spec["podCIDRs"][0].as_str().map(str::to_owned)) {
        (Some(single), first) if first.as_deref() != Some(&single) => spec["podCIDRs"] = json!([single]),
        (None, Some(first)) => spec["podCIDR"] = json!(first),
        _ => {}
    }
}

fn validate(node: &Field) {
    let (metadata, spec, status) = (node.at("metadata"), node.at("spec"), node.at("status"));
    meta::builtin_meta(&metadata, false, names::name_is_dns_subdomain);
    annotations(&metadata.at("annotations"));
    pod::taints(&metadata.at("taints").with(spec.at("taints").value()));
    amounts(&status);
    let info = status.at("nodeInfo");
    let swap = info.at("swap");
    if swap.at("capacity").is_set() {
        metadata.at("nodeSwapStatus").at("capacity").with(swap.at("capacity").value()).positive();
    }
    declared_features(&status.at("declaredFeatures"));
    let cidrs = spec.at("podCIDRs");
    for cidr in cidrs.each() {
        addresses::legacy_cidr(&cidr, &[]);
    }
    if cidrs.len() > 1 && (addresses::is_dual_stack(cidrs.texts()) != Some(true) || cidrs.len() > 2) {
        cidrs.invalid("may specify no more than one CIDR for each IP family");
    }
}

fn annotations(annotations: &Field) {
    let text = annotations.key(TAINTS_ANNOTATION).text();
    if !text.is_empty() {
        match serde_json::from_str::<Value>(text) {
            Err(error) => annotations.invalid_value(TAINTS_ANNOTATION, error.to_string()),
            Ok(list) => {
                let at = format!("{}.{TAINTS_ANNOTATION}", annotations.path());
                for mut error in Field::check(&list, pod::taints) {
                    error.field = format!("{at}{}", error.field);
                    annotations.push(error);
                }
            }
        }
    }
    let text = annotations.key(AVOID_ANNOTATION).text();
    if !text.is_empty() {
        match serde_json::from_str::<Value>(text) {
            Err(error) => annotations.at("AvoidPods").invalid_value(AVOID_ANNOTATION, error.to_string()),
            Ok(avoid) => {
                let told = annotations.at(AVOID_ANNOTATION);
                for (i, entry) in avoid["preferAvoidPods"].as_array().into_iter().flatten().enumerate() {
                    let told = told.index(i);
                    let told = told.at("PodSignature");
                    match &entry["podSignature"]["podController"] {
                        Value::Null => told.missing(""),
                        owner if owner["controller"] != true => {
                            told.at("PodController").at("Controller").invalid_value(false, "must point to a controller")
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

fn amounts(status: &Field) {
    for list in ["capacity", "allocatable"] {
        let list = status.at(list);
        for (name, entry) in list.entries() {
            amount(name, &list.at(name).with(entry.value()));
        }
    }
}

fn declared_features(features: &Field) {
    let segment = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    let starts = |text: &str, upper: bool| {
        text.bytes().next().is_some_and(|b| if upper { b.is_ascii_uppercase() } else { b.is_ascii_alphabetic() })
    };
    for (i, feature) in features.each().enumerate() {
        let text = feature.text();
        let fits = text.split('/').enumerate().all(|(i, part)| segment(part) && starts(part, i == 0));
        if text.len() > 253 {
            feature.invalid(format!("invalid feature name {text:?}: must be no more than 253 characters"));
        } else if !fits {
            feature.invalid(format!(
                "invalid feature name {text:?}: must start with an UpperCamelCase segment, with subsequent segments \
                 separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric \
                 characters and slashes"
            ));
        }
        let next = features.index(i + 1);
        if next.is_set() {
            if next.is(text) {
                next.duplicate();
            } else if text > next.text() {
                next.invalid("list must be sorted alphabetically");
            }
        }
    }
}

fn validate_update(node: &Field, old: &Value) {
    let (metadata, spec, status) = (node.at("metadata"), node.at("spec"), node.at("status"));
    let old_spec = &old["spec"];
    meta::builtin_meta_update(&metadata, &old["metadata"]);
    annotations(&metadata.at("annotations"));
    amounts(&status);
    declared_features(&status.at("declaredFeatures"));
    let mut addresses = HashSet::new();
    for address in status.at("addresses").each() {
        if !addresses.insert(address.value().to_string()) {
            address.duplicate();
        }
    }
    if let Some(before) = old_spec["podCIDRs"].as_array().filter(|cidrs| !cidrs.is_empty()) {
        const DETAIL: &str = "node updates may not change podCIDR except from \"\" to valid";
        let cidrs = spec.at("podCIDRs");
        if before.len() != cidrs.len() {
            cidrs.forbidden(DETAIL);
        } else {
            cidrs
                .each()
                .zip(before)
                .filter(|(now, before)| now.value() != *before)
                .for_each(|_| cidrs.forbidden(DETAIL));
        }
    }
    let text = |name: &str| old_spec[name].as_str().unwrap_or_default();
    if !text("providerID").is_empty() && !spec.at("providerID").is(text("providerID")) {
        spec.at("providerID").forbidden("node updates may not change providerID except from \"\" to valid");
    }
    pod::taints(&metadata.at("taints").with(spec.at("taints").value()));
    if !spec.at("externalID").is(text("externalID")) {
        spec.at("externalID").forbidden("may not be updated");
    }
}

fn warnings(node: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    let spec = &node["spec"];
    if !spec["configSource"].is_null() {
        warnings.push("spec.configSource: the feature is removed".to_owned());
    }
    if spec["externalID"].as_str().is_some_and(|id| !id.is_empty()) {
        warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
    }
    for (i, cidr) in spec["podCIDRs"].as_array().into_iter().flatten().enumerate() {
        warnings
            .extend(addresses::cidr_warnings(format_args!("spec.podCIDRs[{i}]"), cidr.as_str().unwrap_or_default()));
    }
    warnings
}
