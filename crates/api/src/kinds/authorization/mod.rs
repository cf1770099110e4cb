//! authorization.k8s.io: may someone do something? These are asked, and never stored.

use serde_json::Value;

use crate::kinds::{Create, Strategy};
use crate::validation::Field;
use crate::validation::selectors::{SelectorOptions, requirement};

const GROUP: &str = "authorization.k8s.io";

pub static SUBJECT: Strategy = Strategy {
    create: Create::new(
        |_, _| {},
        |review| {
            subject_spec(&review.at("spec"));
            empty_metadata(&review.at("metadata"), false);
        },
    ),
    ..Strategy::cluster(GROUP, "SubjectAccessReview")
};

pub static SELF_SUBJECT: Strategy = Strategy {
    create: Create::new(
        |_, _| {},
        |review| {
            let spec = review.at("spec");
            one_kind_of_attributes(&spec);
            resource_attributes(&spec.at("resourceAttributes"));
            empty_metadata(&review.at("metadata"), false);
        },
    ),
    ..Strategy::cluster(GROUP, "SelfSubjectAccessReview")
};

pub static LOCAL_SUBJECT: Strategy = Strategy {
    create: Create::new(
        |_, _| {},
        |review| {
            let (spec, metadata) = (review.at("spec"), review.at("metadata"));
            subject_spec(&spec);
            empty_metadata(&metadata, true);
            let (asked, url) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
            let namespace = asked.at("namespace").with_text();
            if asked.is_set() && !namespace.is(metadata.at("namespace").text()) {
                namespace.invalid("must match metadata.namespace");
            }
            if url.is_set() {
                url.invalid_as("NonResourceAttributes", "disallowed on this kind of request");
            }
        },
    ),
    ..Strategy::new(GROUP, "LocalSubjectAccessReview")
};

pub static SELF_SUBJECT_RULES: Strategy = Strategy::cluster(GROUP, "SelfSubjectRulesReview");

fn one_kind_of_attributes(spec: &Field) {
    let (resource, url) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    match (resource.is_set(), url.is_set()) {
        (true, true) => {
            url.invalid_as("NonResourceAttributes", "cannot be specified in combination with resourceAttributes")
        }
        (false, false) => resource
            .invalid_value(Value::Null, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        _ => {}
    }
}

fn subject_spec(spec: &Field) {
    one_kind_of_attributes(spec);
    if spec.at("user").is_empty() && spec.at("groups").is_empty() {
        spec.at("user").with_text().invalid("at least one of user or group must be specified");
    }
    resource_attributes(&spec.at("resourceAttributes"));
}

fn resource_attributes(attributes: &Field) {
    let options = SelectorOptions { allow_unknown_operators: true, ..Default::default() };
    selector(&attributes.at("fieldSelector"), field_requirement);
    selector(&attributes.at("labelSelector"), |item| requirement(item, options));
}

/// A selector as it was written, or taken apart, but not both.
fn selector(selector: &Field, requirement: impl Fn(&Field)) {
    if !selector.is_set() {
        return;
    }
    let (raw, parts) = (selector.at("rawSelector"), selector.at("requirements"));
    match (!raw.is_empty(), !parts.is_empty()) {
        (true, true) => raw.invalid("may not specified at the same time as requirements"),
        (false, false) => {
            parts.missing(format!("when {} is specified, requirements or rawSelector is required", selector.path()))
        }
        _ => {}
    }
    parts.each().for_each(|part| requirement(&part));
}

/// Fields are not held to the rules of labels.
fn field_requirement(requirement: &Field) {
    let (key, values) = (requirement.at("key"), requirement.at("values"));
    if key.is_empty() {
        key.missing("must be specified");
    }
    match requirement.at("operator").text() {
        "In" | "NotIn" if values.is_empty() => values.missing("must be specified when `operator` is 'In' or 'NotIn'"),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            values.forbidden("may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        }
        _ => {}
    }
}

/// A question has no name.
fn empty_metadata(metadata: &Field, namespaced: bool) {
    let allowed = |name: &str| name == "managedFields" || (namespaced && name == "namespace");
    let fields = metadata.value().as_object().into_iter().flatten();
    if fields.into_iter().any(|(name, _)| !allowed(name) && !metadata.at(name).is_empty()) {
        metadata.invalid(if namespaced { "must be empty except for namespace" } else { "must be empty" });
    }
}
