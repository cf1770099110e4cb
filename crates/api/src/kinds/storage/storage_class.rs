//! StorageClass: a way to make volumes on demand.

use std::collections::{BTreeMap, BTreeSet};

use object_model::names;
use serde_json::Value;

use super::{GROUP, parameters, provisioner};
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, meta, node_selector, pod};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: |class| {
        class.default_if_absent("reclaimPolicy", "Delete");
        class.default_if_absent("volumeBindingMode", "Immediate");
    },
    create: Create { warnings, ..Create::new(|_, _| {}, validate) },
    update: Update {
        warnings: |class, _| warnings(class),
        ..Update::new(
            |_, _, _| {},
            |class, old| {
                validate(class);
                meta::builtin_meta_update(&class.at("metadata"), &old["metadata"]);
                for name in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
                    class.immutable_at(name, old);
                }
            },
        )
    },
    ..Strategy::cluster(GROUP, "StorageClass")
};

fn validate(class: &Field) {
    meta::builtin_meta(&class.at("metadata"), false, names::name_is_dns_subdomain);
    provisioner(&class.at("provisioner"));
    parameters(&class.at("parameters"));
    let policy = class.at("reclaimPolicy");
    if !policy.is_empty() {
        policy.one_of(&["Delete", "Retain"]);
    }
    class.at("volumeBindingMode").one_of(&["Immediate", "WaitForFirstConsumer"]);
    topologies(&class.at("allowedTopologies"));
}

/// Terms, no two of which say the same. One that says nothing is told as often as there are terms.
fn topologies(terms: &Field) {
    let mut seen = vec![BTreeMap::new(); terms.len()];
    for term in terms.each() {
        node_selector::topology_selector_term(&term);
        let expressions = term.at("matchLabelExpressions");
        let meaning: BTreeMap<&str, BTreeSet<&str>> =
            expressions.each().map(|e| (e.at("key").text(), e.at("values").texts().collect())).collect();
        for _ in seen.iter().filter(|earlier| **earlier == meaning) {
            expressions.duplicate_value("");
        }
        seen.push(meaning);
    }
}

fn warnings(class: &Value) -> Vec<String> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let mut warnings = Vec::new();
    for (i, term) in list(&class["allowedTopologies"]).iter().enumerate() {
        for (j, expression) in list(&term["matchLabelExpressions"]).iter().enumerate() {
            let message = pod::deprecated_node_label(expression["key"].as_str().unwrap_or_default());
            let path = format!("allowedTopologies[{i}].matchLabelExpressions[{j}].key");
            warnings.extend(message.map(|message| format!("{path}: {message}")));
        }
    }
    warnings
}
