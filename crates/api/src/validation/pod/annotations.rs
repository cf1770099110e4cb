//! Annotations that once were fields, or still mean something to pods.

use serde_json::{Value, json};

use super::{each_container, security, tolerations};
use crate::validation::{Field, paths};

pub const MIRROR: &str = "kubernetes.io/config.mirror";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const SECCOMP_LOCALHOST: &str = "localhost/";
pub const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const APP_ARMOR_LOCALHOST: &str = "localhost/";

/// The annotations of a pod or template.
pub fn pod_annotations(annotations: &Field, spec: &Field, allow_invalid_deletion_cost: bool) {
    if annotations.key(MIRROR).is_set() && spec.at("nodeName").is_empty() {
        annotations.key(MIRROR).invalid("must set spec.nodeName if mirror pod annotation is set");
    }
    if !annotations.key(TOLERATIONS).is_empty() {
        tolerations_in_annotation(annotations);
    }
    if !allow_invalid_deletion_cost && !deletion_cost_is_valid(annotations) {
        annotations.key(DELETION_COST).invalid("must be a 32bit integer");
    }
    if annotations.key(SECCOMP_POD).is_set() {
        seccomp(&annotations.at(SECCOMP_POD));
    }
    for (key, _) in annotations.entries().filter(|(key, _)| key.starts_with(SECCOMP_CONTAINER)) {
        seccomp(&annotations.at(key));
    }
    for (key, entry) in annotations.entries() {
        if let Some(name) = key.strip_prefix(APP_ARMOR) {
            let mut known = false;
            each_container(spec, |container| known |= container.at("name").is(name));
            if !known {
                entry.invalid_value(name, "container not found");
            }
            let profile = entry.text();
            if !["", "runtime/default", "unconfined"].contains(&profile) && !profile.starts_with(APP_ARMOR_LOCALHOST) {
                entry.invalid(format!("invalid AppArmor profile name: {profile:?}"));
            }
        }
    }
}

fn tolerations_in_annotation(annotations: &Field) {
    match serde_json::from_str::<Value>(annotations.key(TOLERATIONS).text()) {
        Err(error) => annotations.invalid_value(TOLERATIONS, error.to_string()),
        Ok(list) => {
            let prefix = format!("{}.{TOLERATIONS}", annotations.path());
            for mut error in Field::check(&list, tolerations) {
                error.field = format!("{prefix}{}", error.field);
                annotations.push(error);
            }
        }
    }
}

pub fn deletion_cost_is_valid(annotations: &Field) -> bool {
    let cost = annotations.key(DELETION_COST);
    let first_digit_fits = match cost.text().as_bytes() {
        [b'-' | b'1'..=b'9', ..] => true,
        text => text == b"0",
    };
    !cost.is_set() || (first_digit_fits && cost.text().parse::<i32>().is_ok())
}

fn seccomp(profile: &Field) {
    match profile.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        text => match text.strip_prefix(SECCOMP_LOCALHOST) {
            Some(rest) => {
                let rest = Value::from(rest);
                let at = profile.path().to_string();
                for mut error in Field::check(&rest, paths::local_descending) {
                    error.field.clone_from(&at);
                    profile.push(error);
                }
            }
            None => profile.invalid("must be a valid seccomp profile"),
        },
    }
}

/// Where a profile is said by annotation and by field, both must say the same.
pub fn match_fields(meta: &Field, spec: &Field) {
    let annotations = meta.at("annotations");
    let context = spec.at("securityContext");
    seccomp_matches(&context.at("seccompProfile"), annotations.key(SECCOMP_POD).value());
    each_container(spec, |container| {
        let key = format!("{SECCOMP_CONTAINER}{}", container.at("name").text());
        let context = container.at("securityContext");
        seccomp_matches(&context.at("seccompProfile"), annotations.key(&key).value());
    });
    if spec.at("os").at("name").is("windows") {
        return;
    }
    each_container(spec, |container| {
        let key = format!("{APP_ARMOR}{}", container.at("name").text());
        let context = container.at("securityContext");
        let told = context.at("appArmorProfile");
        let profile =
            if told.is_set() { told } else { told.with(spec.at("securityContext").at("appArmorProfile").value()) };
        app_armor_matches(&profile, annotations.key(&key).value());
    });
}

fn seccomp_matches(profile: &Field, annotation: &Value) {
    profile_matches(profile, annotation, "seccomp", &["runtime/default", "docker/default"]);
}

fn app_armor_matches(profile: &Field, annotation: &Value) {
    profile_matches(profile, annotation, "apparmor", &["runtime/default"]);
}

fn profile_matches(profile: &Field, annotation: &Value, what: &str, runtime_default: &[&str]) {
    let Some(annotation) = annotation.as_str().filter(|_| profile.is_set()) else { return };
    let kind_matches = match profile.at("type").text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => runtime_default.contains(&annotation),
        "Localhost" => match annotation.strip_prefix("localhost/") {
            Some(name) => {
                let local = profile.at("localhostProfile");
                if !local.is_set() || !local.is(name) {
                    local.forbidden(format!("{what} profile in annotation and field must match"));
                }
                true
            }
            None => false,
        },
        _ => true,
    };
    if !kind_matches {
        profile.at("type").forbidden(format!("{what} type in annotation and field must match"));
    }
}

/// The field that says what an AppArmor annotation says, if it is one that has a meaning.
pub fn app_armor_profile_of_annotation(annotation: &str) -> Option<Value> {
    let profile = match annotation {
        "unconfined" => json!({"type": "Unconfined"}),
        "runtime/default" => json!({"type": "RuntimeDefault"}),
        text => {
            json!({"type": "Localhost", "localhostProfile": text.strip_prefix(APP_ARMOR_LOCALHOST).filter(|p| !p.is_empty())?})
        }
    };
    Field::check(&profile, security::app_armor_profile).is_empty().then_some(profile)
}

/// Annotations that must not change on a pod.
pub fn pod_annotation_updates(annotations: &Field, old: &Value) {
    let old = old.as_object();
    for (key, value) in old.into_iter().flatten() {
        let entry = annotations.key(key);
        if entry.value() == value {
            continue;
        }
        if key.starts_with(APP_ARMOR) {
            entry.forbidden("may not remove or update AppArmor annotations");
        }
        if key == MIRROR {
            entry.forbidden("may not remove or update mirror pod annotation");
        }
    }
    for (key, entry) in annotations.entries().filter(|(key, _)| old.is_none_or(|old| !old.contains_key(*key))) {
        if key.starts_with(APP_ARMOR) {
            entry.forbidden("may not add AppArmor annotations");
        }
        if key == MIRROR {
            entry.forbidden("may not add mirror pod annotation");
        }
    }
}
