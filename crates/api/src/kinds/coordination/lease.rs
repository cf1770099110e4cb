//! Lease: held by one at a time, and renewed.

use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    create: Create::new(
        |lease, _| drop_disabled(lease),
        |lease| {
            meta::builtin_meta(&lease.at("metadata"), true, names::name_is_dns_subdomain);
            spec(&lease.at("spec"));
        },
    ),
    update: Update::new(
        |lease, _, _| drop_disabled(lease),
        |lease, old| {
            meta::builtin_meta_update(&lease.at("metadata"), &old["metadata"]);
            spec(&lease.at("spec"));
        },
    ),
    ..Strategy::new(GROUP, "Lease")
};

/// Coordinated elections are not on by default.
fn drop_disabled(lease: &mut Value) {
    if let Some(spec) = lease.child("spec") {
        spec.remove("strategy");
        spec.remove("preferredHolder");
    }
}

fn spec(spec: &Field) {
    let duration = spec.at("leaseDurationSeconds");
    if duration.int().is_some_and(|seconds| seconds <= 0) {
        duration.invalid("must be greater than 0");
    }
    spec.at("leaseTransitions").non_negative();
}
