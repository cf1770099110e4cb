//! CSINode: the CSI drivers on a node.

use std::collections::HashSet;

use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, IMMUTABLE, meta, pod, same_at};

const MAX_NODE_ID: usize = 256;

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    unconditional_update: false,
    create: Create::new(|_, _| {}, validate),
    update: Update::new(|_, _, _| {}, validate_update),
    ..Strategy::cluster(GROUP, "CSINode")
};

fn validate(node: &Field) {
    meta::builtin_meta(&node.at("metadata"), false, names::name_is_dns_subdomain);
    let spec = node.at("spec");
    let mut seen = HashSet::new();
    for driver in spec.at("drivers").each() {
        let (name, id) = (driver.at("name"), driver.at("nodeID"));
        pod::csi_driver_name(&name);
        id.required();
        if id.text().len() > MAX_NODE_ID {
            id.invalid(format!("must be {MAX_NODE_ID} characters or less"));
        }
        driver.at("allocatable").at("count").non_negative();
        if seen.contains(&name.text()) {
            name.with_text().duplicate();
        }
        seen.insert(name.text());
        topology_keys(&driver);
    }
}

/// Kubernetes tells these at the driver.
fn topology_keys(driver: &Field) {
    let mut seen = HashSet::new();
    for key in driver.at("topologyKeys").texts() {
        if key.is_empty() {
            driver.missing("");
        }
        if seen.contains(&key) {
            driver.duplicate_value(key);
        }
        seen.insert(key);
        names::qualified_name(key).into_iter().for_each(|message| driver.invalid_value(key, message));
    }
}

/// A driver that stays does not change, but for how many volumes it can take.
fn validate_update(node: &Field, old: &Value) {
    validate(node);
    let spec = node.at("spec");
    let drivers = spec.at("drivers");
    for was in old["spec"]["drivers"].as_array().into_iter().flatten() {
        for now in drivers.each().filter(|now| now.value()["name"] == was["name"]) {
            if ["nodeID", "topologyKeys"].iter().any(|name| !same_at(now.value(), was, name)) {
                drivers.with(now.value()).invalid_as("CSINodeDriver", IMMUTABLE);
            }
        }
    }
}
