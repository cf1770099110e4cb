//! CSIStorageCapacity: how much room a driver has for a class in a part of the cluster.

use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::selectors::{SelectorOptions, label_selector_with, tolerating};
use crate::validation::{Field, meta, pod};

pub static STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    create: Create { warnings, ..Create::new(|_, _| {}, |capacity| validate(capacity, SelectorOptions::default())) },
    update: Update {
        warnings: |capacity, _| warnings(capacity),
        ..Update::new(
            |_, _, _| {},
            |capacity, old| {
                validate(capacity, tolerating(&old["nodeTopology"]));
                meta::builtin_meta_update(&capacity.at("metadata"), &old["metadata"]);
                capacity.immutable_at("nodeTopology", old);
                capacity.immutable_at("storageClassName", old);
            },
        )
    },
    ..Strategy::new(GROUP, "CSIStorageCapacity")
};

fn validate(capacity: &Field, options: SelectorOptions) {
    meta::builtin_meta(&capacity.at("metadata"), true, names::name_is_dns_subdomain);
    label_selector_with(&capacity.at("nodeTopology"), options);
    capacity.at("storageClassName").dns_subdomain();
    capacity.at("capacity").non_negative_quantity();
}

fn warnings(capacity: &Value) -> Vec<String> {
    let topology = &capacity["nodeTopology"];
    let mut warnings = pod::node_selector_term_warnings("nodeTopology", topology, false);
    for label in topology["matchLabels"].as_object().into_iter().flatten().map(|(label, _)| label) {
        let message = pod::deprecated_node_label(label);
        warnings.extend(message.map(|message| format!("nodeTopology.matchLabels.{label}: {message}")));
    }
    warnings
}
