//! CSIDriver: what a CSI driver needs from the cluster.

use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, meta, same, same_at};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    unconditional_update: false,
    defaults,
    create: Create {
        warnings: |driver| warnings(driver, &Value::Null),
        ..Create::new(
            |driver, _| drop_disabled(driver),
            |driver| {
                meta::builtin_meta(&driver.at("metadata"), false, names::name_is_dns_subdomain);
                spec(&driver.at("spec"));
            },
        )
    },
    update: Update {
        warnings,
        ..Update::new(
            |driver, old, _| {
                drop_disabled(driver);
                prepare::next_generation(driver, old, &["spec"]);
            },
            |driver, old| {
                meta::builtin_meta_update(&driver.at("metadata"), &old["metadata"]);
                let changed = driver.at("spec");
                spec(&changed);
                let attach = changed.at("attachRequired");
                if !same(attach.value(), &old["spec"]["attachRequired"]) {
                    changed.at("attachedRequired").with(attach.value()).invalid(crate::validation::IMMUTABLE);
                }
                changed.immutable_at("volumeLifecycleModes", &old["spec"]);
            },
        )
    },
    ..Strategy::cluster(GROUP, "CSIDriver")
};

fn defaults(driver: &mut Value) {
    let Some(spec) = driver.child("spec") else { return };
    spec.default_if_absent("attachRequired", true);
    for name in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        spec.default_if_absent(name, false);
    }
    spec.default_if_absent("fsGroupPolicy", "ReadWriteOnceWithFSType");
    if spec["volumeLifecycleModes"].as_array().is_none_or(Vec::is_empty) {
        spec["volumeLifecycleModes"] = json!(["Persistent"]);
    }
}

/// Limits that scale are not on by default.
fn drop_disabled(driver: &mut Value) {
    if let Some(spec) = driver.child("spec") {
        spec.remove("preventPodSchedulingIfMissing");
    }
}

fn spec(spec: &Field) {
    spec.at("fsGroupPolicy").one_of(&["File", "None", "ReadWriteOnceWithFSType"]);
    token_requests(&spec.at("tokenRequests"));
    let modes = spec.at("volumeLifecycleModes");
    for mode in modes.each() {
        modes.with(mode.value()).one_of(&["Persistent", "Ephemeral"]);
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|seconds| seconds < 10) {
        period.invalid("must be greater than or equal to 10 seconds");
    }
    let in_secrets = spec.at("serviceAccountTokenInSecrets");
    if in_secrets.is_set() && spec.at("tokenRequests").is_empty() {
        in_secrets.invalid("serviceAccountTokenInSecrets is set but no tokenRequests are specified");
    }
}

fn token_requests(requests: &Field) {
    let mut audiences = Vec::new();
    for request in requests.each() {
        let audience = request.at("audience").with_text();
        if audiences.contains(&audience.text()) {
            audience.duplicate();
            continue;
        }
        audiences.push(audience.text());
        let expiration = request.at("expirationSeconds");
        match expiration.int() {
            Some(seconds) if seconds < 600 => expiration.invalid("may not specify a duration less than 10 minutes"),
            Some(seconds) if seconds > 1 << 32 => {
                expiration.invalid("may not specify a duration larger than 2^32 seconds")
            }
            _ => {}
        }
    }
}

fn warnings(driver: &Value, old: &Value) -> Vec<String> {
    let spec = &driver["spec"];
    let requests = spec["tokenRequests"].as_array().is_some_and(|requests| !requests.is_empty());
    if !requests || spec["serviceAccountTokenInSecrets"].is_boolean() || same_at(spec, &old["spec"], "tokenRequests") {
        return Vec::new();
    }
    vec![
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible \
         logging of tokens in volume attributes"
            .to_owned(),
    ]
}
