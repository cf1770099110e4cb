//! IngressClass: which controller serves an Ingress.

use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, meta};

const MAX_CONTROLLER: usize = 250;

pub static STRATEGY: Strategy = Strategy {
    defaults: |class| {
        if let Some(parameters) = class.child("spec").and_then(|spec| spec.child("parameters")) {
            parameters.default_if_absent("scope", "Cluster");
        }
    },
    create: Create::new(|class, _| prepare::first_generation(class), validate),
    update: Update::new(
        |class, old, _| prepare::next_generation(class, old, &["spec"]),
        |class, old| {
            meta::builtin_meta_update(&class.at("metadata"), &old["metadata"]);
            let spec = class.at("spec");
            spec.at("controller").with_text().immutable(old["spec"].get("controller").unwrap_or(&Value::from("")));
            validate(class);
        },
    ),
    ..Strategy::cluster(GROUP, "IngressClass")
};

fn validate(class: &Field) {
    meta::builtin_meta(&class.at("metadata"), false, names::name_is_dns_subdomain);
    let spec = class.at("spec");
    let controller = spec.at("controller");
    if controller.text().len() > MAX_CONTROLLER {
        controller.too_long(MAX_CONTROLLER);
    }
    controller.held_to(names::domain_prefixed_path);
    if spec.at("parameters").is_set() {
        parameters(&spec.at("parameters"));
    }
}

fn parameters(parameters: &Field) {
    if parameters.at("apiGroup").is_set() {
        parameters.at("apiGroup").dns_subdomain();
    }
    parameters.at("kind").required_path_segment();
    parameters.at("name").required_path_segment();
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    match scope.text() {
        _ if !scope.is_set() => scope.missing(""),
        "Namespace" if !namespace.is_set() => namespace.missing("`parameters.scope` is set to 'Namespace'"),
        "Namespace" => namespace.dns_label(),
        "Cluster" if namespace.is_set() => namespace.forbidden("`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        _ => scope.not_supported(&["Cluster", "Namespace"]),
    }
}
