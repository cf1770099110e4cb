//! authentication.k8s.io: who is someone? These are asked, and never stored.

use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy};

const GROUP: &str = "authentication.k8s.io";
const HOUR: i64 = 3600;

/// The body of `serviceaccounts/token`.
pub static TOKEN_REQUEST: Strategy = Strategy {
    defaults: |request| {
        if let Some(spec) = request.child("spec") {
            spec.default_if_absent("expirationSeconds", HOUR);
        }
    },
    create: Create::new(
        |_, _| {},
        |request| {
            let spec = request.at("spec");
            let lifetime = spec.at("expirationSeconds");
            if lifetime.number() < HOUR / 6 {
                lifetime.invalid_value(lifetime.number(), "may not specify a duration less than 10 minutes");
            }
            if lifetime.number() > 1 << 32 {
                lifetime.invalid("may not specify a duration larger than 2^32 seconds");
            }
        },
    ),
    ..Strategy::new(GROUP, "TokenRequest")
};

/// Its token must not be empty: a bad request, not an invalid object.
pub static TOKEN_REVIEW: Strategy = Strategy::cluster(GROUP, "TokenReview");

pub static SELF_SUBJECT_REVIEW: Strategy = Strategy::cluster(GROUP, "SelfSubjectReview");
