//! ControllerRevision: a past state of a StatefulSet's or DaemonSet's template.

use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(
        |_, _| {},
        |revision| {
            shared(revision);
            let data = revision.at("data");
            match data.value() {
                Value::Null => data.missing("data is mandatory"),
                Value::Object(_) => {}
                _ => data.missing("data must be a valid JSON object"),
            }
        },
    ),
    update: Update::new(
        |_, _, _| {},
        |revision, old| {
            meta::builtin_meta_update(&revision.at("metadata"), &old["metadata"]);
            shared(revision);
            revision.immutable_at("data", old);
        },
    ),
    ..Strategy::new(GROUP, "ControllerRevision")
};

fn shared(revision: &Field) {
    meta::builtin_meta(&revision.at("metadata"), true, names::name_is_dns_subdomain);
    revision.at("revision").non_negative();
}
