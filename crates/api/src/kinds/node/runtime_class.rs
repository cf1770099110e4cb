//! RuntimeClass: a container runtime by name, what it costs, and where it is.

use std::collections::HashSet;

use object_model::field::ErrorKind;
use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::defaults::{Defaults, resource_list};
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, go_form, meta, pod, resources, selectors};

pub static STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    defaults: |class| {
        if let Some(overhead) = class.child("overhead") {
            resource_list(overhead, "podFixed");
        }
    },
    create: Create { warnings, ..Create::new(|_, _| {}, validate) },
    update: Update {
        warnings: |class, _| warnings(class),
        ..Update::new(
            |_, _, _| {},
            |class, old| {
                validate(class);
                meta::builtin_meta_update(&class.at("metadata"), &old["metadata"]);
                class.immutable_at("handler", old);
            },
        )
    },
    ..Strategy::cluster(GROUP, "RuntimeClass")
};

fn validate(class: &Field) {
    meta::builtin_meta(&class.at("metadata"), false, names::name_is_dns_subdomain);
    class.at("handler").required_dns_label();
    let overhead = class.at("overhead");
    if overhead.is_set() {
        resources::overhead(&overhead.with(overhead.at("podFixed").value()), false);
    }
    let scheduling = class.at("scheduling");
    selectors::labels(&scheduling.at("nodeSelector"));
    let tolerations = scheduling.at("tolerations");
    pod::tolerations(&tolerations);
    let mut seen = HashSet::new();
    for toleration in tolerations.each() {
        let meaning = ["key", "operator", "value", "effect"].map(|name| toleration.at(name).text());
        if seen.contains(&meaning) {
            toleration.tell(ErrorKind::Duplicate, None, go_form::shown("Toleration", toleration.value()));
        }
        seen.insert(meaning);
    }
}

fn warnings(class: &Value) -> Vec<String> {
    let selector = class["scheduling"]["nodeSelector"].as_object();
    let deprecated = selector.into_iter().flatten().filter_map(|(key, _)| pod::deprecated_node_label(key));
    deprecated.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
}
