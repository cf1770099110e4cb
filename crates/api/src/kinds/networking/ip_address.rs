//! IPAddress: an address that a Service has taken. Its name is the address.

use serde_json::Value;

use super::GROUP;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, IMMUTABLE, addresses, meta, same_at};

pub static STRATEGY: Strategy = Strategy {
    create: Create::new(|_, _| {}, validate),
    update: Update::new(
        |_, _, _| {},
        |address, old| {
            validate(address);
            meta::builtin_meta_update(&address.at("metadata"), &old["metadata"]);
            let spec = address.at("spec");
            if !same_at(spec.value(), &old["spec"], "parentRef") {
                immutable_parent(&spec.at("parentRef"));
            }
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

fn immutable_parent(parent: &Field) {
    if !parent.is_set() {
        return parent.invalid(IMMUTABLE);
    }
    let (group, resource) = (parent.at("group"), parent.at("resource"));
    let (namespace, name) = (parent.at("namespace"), parent.at("name"));
    let fields = [("Group", group), ("Resource", resource), ("Namespace", namespace), ("Name", name)];
    parent.invalid_struct(&fields.map(|(go, field)| (go, field.with_text().value())), IMMUTABLE);
}
