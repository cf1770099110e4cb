//! ResourceSlice: some of the devices that a driver offers.

use object_model::names;
use serde_json::{Value, json};

use super::{GROUP, device, name_of, pool_name, set};
use crate::defaults::Defaults;
use crate::kinds::{Context, Create, Selectable, Strategy, Update, prepare};
use crate::validation::{Field, meta, pod};

const MAX_DEVICES: usize = 128;
/// With taints or counters, devices are larger.
const MAX_LARGE_DEVICES: usize = 64;
const MAX_COUNTER_SETS: usize = 8;

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    create: Create {
        warnings,
        ..Create::new(
            |slice, context| {
                prepare::first_generation(slice);
                prepare_devices(slice, context);
            },
            |slice| {
                meta::builtin_meta(&slice.at("metadata"), false, names::name_is_dns_subdomain);
                spec(&slice.at("spec"), &Value::Null);
            },
        )
    },
    update: Update {
        warnings: |slice, _| warnings(slice),
        ..Update::new(
            |slice, old, context| {
                prepare_devices(slice, context);
                prepare::next_generation(slice, old, &["spec"]);
            },
            |slice, old| {
                meta::builtin_meta_update(&slice.at("metadata"), &old["metadata"]);
                spec(&slice.at("spec"), &old["spec"]);
            },
        )
    },
    fields: &[
        Selectable { name: "spec.nodeName", read: |slice| text(slice, "nodeName") },
        Selectable { name: "spec.driver", read: |slice| text(slice, "driver") },
    ],
    ..Strategy::cluster(GROUP, "ResourceSlice")
};

fn text(slice: &Value, name: &str) -> String {
    slice["spec"][name].as_str().unwrap_or_default().to_owned()
}

/// Taints are stamped with the time; attributes of many values and resources of the node are not on by default.
fn prepare_devices(slice: &mut Value, context: &Context) {
    for device in slice.child("spec").into_iter().flat_map(|spec| spec.each("devices")) {
        for taint in device.each("taints") {
            taint.default_if_absent("timeAdded", json!(context.now));
        }
        device.remove("nodeAllocatableResourceMappings");
        for (_, attribute) in device.get_mut("attributes").and_then(Value::as_object_mut).into_iter().flatten() {
            ["bools", "ints", "strings", "versions"].iter().for_each(|name| attribute.remove(name));
        }
    }
}

fn warnings(slice: &Value) -> Vec<String> {
    let driver = text(slice, "driver");
    if driver == driver.to_lowercase() {
        return Vec::new();
    }
    vec![format!("spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters")]
}

fn spec(spec: &Field, old: &Value) {
    pod::csi_driver_name(&spec.at("driver"));
    let pool = spec.at("pool");
    pool_name(&pool.at("name"));
    pool.at("resourceSliceCount").positive();
    if pool.at("generation").number() < 0 {
        pool.at("generation").invalid("must be greater than or equal to zero");
    }
    if !old.is_null() {
        pool.immutable_at("name", &old["pool"]);
        spec.immutable_at("driver", old);
        spec.immutable_at("nodeName", old);
    }
    reach(spec);
    if spec.at("sharedCounters").is_set() && spec.at("devices").is_set() {
        spec.invalid_value("", "only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = spec.at("devices");
    let large = devices.each().any(|d| !d.at("taints").is_empty() || !d.at("consumesCounters").is_empty());
    let per_device = spec.at("perDeviceNodeSelection").is_true();
    let before = |device: &Field| {
        let old = old["devices"].as_array().into_iter().flatten();
        old.into_iter().find(|was| was["name"] == device.value()["name"])
    };
    let max = if large { MAX_LARGE_DEVICES } else { MAX_DEVICES };
    set(&devices, max, |item| device::validate(item, before(item), per_device), name_of);
    set(&spec.at("sharedCounters"), MAX_COUNTER_SETS, |item| device::counters(item, "name"), name_of);
}

/// Where the devices can be used: in exactly one way.
fn reach(spec: &Field) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let mut ways = device::reach(spec, "must be either unset or set to a non-empty string");
    let terms = spec.at("nodeSelector");
    if terms.is_set() && terms.at("nodeSelectorTerms").len() != 1 {
        terms.at("nodeSelectorTerms").invalid("must have exactly one node selector term");
    }
    let each = spec.at("perDeviceNodeSelection");
    match each.flag() {
        Some(true) => ways.push("`perDeviceNodeSelection`"),
        Some(false) => each.invalid("must be either unset or set to true"),
        None => {}
    }
    match ways.len() {
        0 => spec.missing(ONE),
        1 => {}
        _ => spec.invalid_value(format!("{{{}}}", ways.join(", ")), format!("{ONE}, but multiple fields are set")),
    }
}
