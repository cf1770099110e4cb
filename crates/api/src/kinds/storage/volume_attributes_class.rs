//! VolumeAttributesClass: attributes of volumes that can change while they are used.

use object_model::names;

use super::{GROUP, parameters, provisioner};
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta, same_at};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    create: Create::new(|_, _| {}, validate),
    update: Update::new(
        |_, _, _| {},
        |class, old| {
            meta::builtin_meta_update(&class.at("metadata"), &old["metadata"]);
            for name in ["driverName", "parameters"] {
                if !same_at(class.value(), old, name) {
                    class.at(name).forbidden(format!("updates to {name} are forbidden."));
                }
            }
            validate(class);
        },
    ),
    ..Strategy::cluster(GROUP, "VolumeAttributesClass")
};

fn validate(class: &Field) {
    meta::builtin_meta(&class.at("metadata"), false, names::name_is_dns_subdomain);
    provisioner(&class.at("driverName"));
    parameters(&class.at("parameters"));
    if class.at("parameters").is_empty() {
        class.at("parameters").missing("must contain at least one key/value pair");
    }
}
