//! ResourceClaim: a claim on devices for pods.

use object_model::names;
use serde_json::json;

use super::{GROUP, claim, claim_status};
use crate::defaults::Defaults;
use crate::kinds::{Create, Reset, Strategy, Update, prepare};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: |object| {
        if let Some(spec) = object.child("spec") {
            claim::defaults(spec);
        }
    },
    create: Create::new(
        |object, _| prepare::put(object, &["status"], Some(&json!({}))),
        |object| {
            metadata(object);
            claim::spec(&object.at("spec"));
        },
    ),
    update: Update::of_spec(
        |object, old, _| prepare::keep(object, old, "status"),
        |object, old| {
            metadata(object);
            meta::builtin_meta_update(&object.at("metadata"), &old["metadata"]);
            object.at("spec").immutable_as("ResourceClaimSpec", &old["spec"]);
        },
    ),
    subresources: &[(
        "status",
        Update {
            reset: Reset::Fields(&[&["metadata"], &["spec"]]),
            ..Update::new(
                |object, old, context| {
                    prepare::status_and_nothing_else(object, old, context);
                    claim_status::forget_devices(object, old);
                },
                claim_status::update,
            )
        },
    )],
    ..Strategy::new(GROUP, "ResourceClaim")
};

fn metadata(object: &Field) {
    meta::builtin_meta(&object.at("metadata"), true, names::name_is_dns_subdomain);
}
