//! IPAddress: an address that a Service has taken. Its name is the address.

use serde_json::Value;

use super::GROUP;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, addresses, meta};

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(|_, _| {}, validate),
    update: Update::new(
        |_, _, _| {},
        |address, old| {
            validate(address);
            meta::builtin_meta_update(&address.at("metadata"), &old["metadata"]);
            let spec = address.at("spec");
            spec.at("parentRef").immutable_as("ParentReference", &old["spec"]["parentRef"]);
        },
    ),
    ..Strategy::cluster(GROUP, "IPAddress")
};

fn validate(address: &Field) {
    meta::builtin_meta(&address.at("metadata"), false, name);
    let spec = address.at("spec");
    let parent = spec.at("parentRef");
    if !parent.is_set() {
        return parent.missing("");
    }
    parent.at("group").dns_subdomain_if_any();
    parent.at("resource").required_path_segment();
    parent.at("name").required_path_segment();
    parent.at("namespace").path_segment();
}

/// An address in the one form that Kubernetes writes it in.
fn name(name: &str, _: bool) -> Vec<String> {
    Field::check(&Value::from(name), addresses::canonical_ip).into_iter().map(|error| error.detail).collect()
}
