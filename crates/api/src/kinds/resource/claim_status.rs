//! What a claim got, who uses it, and how its devices fare.

use std::collections::HashSet;

use serde_json::Value;

use super::claim::RequestNames;
use super::{
    MAX_CONFIGS, MAX_REQUESTS, binding_conditions, configuration, itself, json_object, list, pool_name, set, share_id,
};
use crate::validation::{Field, addresses, meta, node_selector, pod};

const MAX_USERS: usize = 256;
const MAX_CONDITIONS: usize = 8;
const MAX_IPS: usize = 16;

pub fn update(claim: &Field, old: &Value) {
    meta::builtin_meta_update(&claim.at("metadata"), &old["metadata"]);
    let names = RequestNames::of(&claim.value()["spec"]["devices"]);
    let status = claim.at("status");
    let (users, devices, given) = (status.at("reservedFor"), status.at("devices"), status.at("allocation"));
    let user = |user: &Field| {
        for name in ["resource", "name", "uid"] {
            user.at(name).required();
        }
    };
    set(&users, MAX_USERS, user, |user| user.at("uid").text().to_owned());
    let allocated = devices_of(&given.value()["devices"]["results"]);
    set(&devices, usize::MAX, |item| device(item, &allocated), |item| device_id(item.value()));
    if !users.is_empty() {
        let before = old["status"]["reservedFor"].as_array().map(Vec::as_slice).unwrap_or_default();
        let deleted = claim.at("metadata").at("deletionTimestamp").is_set();
        if !given.is_set() {
            users.forbidden("may not be specified when `allocated` is not set");
        } else if deleted && users.each().any(|user| !before.contains(user.value())) {
            users
                .forbidden("new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set");
        }
    }
    match &old["status"]["allocation"] {
        Value::Null if given.is_set() => allocation(&given, &names),
        before if !before.is_null() && given.is_set() => given.immutable(before),
        _ => {}
    }
}

/// The devices that were taken away are told about no more.
pub fn forget_devices(claim: &mut Value, old: &Value) {
    let results = |claim: &Value| devices_of(&claim["status"]["allocation"]["devices"]["results"]);
    let (before, now) = (results(old), results(claim));
    let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) else { return };
    if let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) {
        devices.retain(|device| {
            let id = device_id(device);
            !before.contains(&id) || now.contains(&id)
        });
        if devices.is_empty() {
            status.remove("devices");
        }
    }
}

fn devices_of(results: &Value) -> HashSet<String> {
    results.as_array().into_iter().flatten().map(device_id).collect()
}

/// Driver, pool, device and, if it is shared, the share.
fn device_id(device: &Value) -> String {
    let parts = ["driver", "pool", "device", "shareID"].map(|name| device[name].as_str().unwrap_or_default());
    parts.join("/").trim_end_matches('/').to_owned()
}

fn named_device(device: &Field) {
    pod::csi_driver_name(&device.at("driver"));
    pool_name(&device.at("pool"));
    device.at("device").dns_label();
}

fn allocation(allocation: &Field, names: &RequestNames) {
    let devices = allocation.at("devices");
    list(&devices.at("results"), MAX_REQUESTS, |result| {
        names.reference(&result.at("request"));
        named_device(result);
        binding_conditions(result);
        if result.at("shareID").is_set() {
            share_id(&result.at("shareID"));
        }
    });
    list(&devices.at("config"), 2 * MAX_CONFIGS, |config| {
        config.at("source").required_one_of(&["FromClaim", "FromClass"]);
        names.references(&config.at("requests"));
        configuration(config, false);
    });
    if allocation.at("nodeSelector").is_set() {
        node_selector::node_selector(&allocation.at("nodeSelector"), false);
    }
}

fn device(device: &Field, allocated: &HashSet<String>) {
    named_device(device);
    if device.at("shareID").is_set() {
        share_id(&device.at("shareID"));
    }
    let id = device_id(device.value());
    if !allocated.contains(&id) {
        device.invalid_value(id, "must be an allocated device in the claim");
    }
    let conditions = device.at("conditions");
    if conditions.len() > MAX_CONDITIONS {
        conditions.too_many(MAX_CONDITIONS);
    }
    meta::conditions(&conditions);
    if device.at("data").is_set() {
        json_object(&device.at("data"), false);
    }
    let network = device.at("networkData");
    for (name, max) in [("interfaceName", 256), ("hardwareAddress", 128)] {
        if network.at(name).text().len() > max {
            network.at(name).too_long(max);
        }
    }
    set(&network.at("ips"), MAX_IPS, interface_address, itself);
}

/// An address and the length of its network's prefix.
fn interface_address(address: &Field) {
    let Some(cidr) = addresses::parse_cidr(address.text()) else {
        return address.invalid("must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)");
    };
    let canonical = format!("{}/{}", cidr.address, cidr.prefix);
    if !address.is(&canonical) {
        address.invalid(format!("must be in canonical form ({canonical:?})"));
    }
}
