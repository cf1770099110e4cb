//! APIService: a version of a group, served here or by another server.

use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::core::config_map::decoded_len;
use crate::kinds::{Context, Create, Reset, Strategy, Update, prepare};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    defaults: |service| {
        if let Some(reference) = service.child("spec").and_then(|spec| spec.child("service")) {
            reference.default_if_absent("port", 443);
        }
    },
    create: Create::new(prepare_create, validate),
    update: Update::of_spec(
        |service, old, _| prepare::keep(service, old, "status"),
        |service, old| {
            meta::meta_update(&service.at("metadata"), &old["metadata"]);
            validate(service);
        },
    ),
    subresources: &[(
        "status",
        Update {
            reset: Reset::Fields(&[&["metadata"], &["spec"]]),
            ..Update::new(prepare::status_and_nothing_else, |service, old| {
                meta::meta_update(&service.at("metadata"), &old["metadata"]);
                let status = service.at("status");
                for condition in status.at("conditions").each() {
                    condition.at("status").one_of(&["True", "False", "Unknown"]);
                }
            })
        },
    )],
    ..Strategy::cluster(GROUP, "APIService")
};

/// What is served here is there.
fn prepare_create(service: &mut Value, context: &Context) {
    let mut status = json!({});
    if service["spec"]["service"].is_null() {
        status = json!({"conditions": [{
            "type": "Available",
            "status": "True",
            "lastTransitionTime": context.now,
            "reason": "Local",
            "message": "Local APIServices are always available",
        }]});
    }
    prepare::put(service, &["status"], Some(&status));
}

fn validate(object: &Field) {
    let metadata = object.at("metadata");
    let spec = object.at("spec");
    let (group, version) = (spec.at("group"), spec.at("version"));
    meta::object_meta(&metadata, false, names::name_is_path_segment);
    let required = format!("{}.{}", version.text(), group.text());
    for name in [metadata.at("generateName"), metadata.at("name")] {
        let judged = name.is_empty() || !names::name_is_path_segment(name.text(), false).is_empty();
        if !judged && !name.is(&required) {
            name.invalid(format!("must be `spec.version+\".\"+spec.group`: {required:?}"));
        }
    }
    if group.is_empty() && !version.is("v1") {
        group.missing("only v1 may have an empty group and it better be legacy kube");
    }
    group.dns_subdomain_if_any();
    version.invalid_for(names::dns1035_label(version.text()));
    for (name, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let priority = spec.at(name);
        if !(1..=most).contains(&priority.number()) {
            priority.invalid(format!("must be positive and less than {most}"));
        }
    }
    server(&spec);
}

fn server(spec: &Field) {
    let (service, bundle, insecure) = (spec.at("service"), spec.at("caBundle"), spec.at("insecureSkipTLSVerify"));
    if !service.is_set() {
        if !bundle.is_empty() {
            let size = format!("{} bytes", decoded_len(bundle.text()));
            bundle.invalid_value(size, "local APIServices may not have a caBundle");
        }
        if insecure.is_true() {
            insecure.invalid("local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    }
    service.at("namespace").required();
    service.at("name").required();
    let wrong = names::port_number(service.at("port").number());
    if !wrong.is_empty() {
        service.at("port").invalid(format!("port is not valid: {}", wrong.join(", ")));
    }
    if insecure.is_true() && !bundle.is_empty() {
        insecure.invalid("may not be true if caBundle is present");
    }
}
