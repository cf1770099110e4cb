//! A device of a slice.

use object_model::names;
use serde_json::Value;

use super::{binding_conditions, claim, list, qualified_name, set};
use crate::validation::{Field, node_selector, same};

const MAX_ATTRIBUTES_AND_CAPACITIES: usize = 32;
const MAX_ATTRIBUTE_VALUES: usize = 48;
const MAX_VALUE: usize = 64;
const MAX_TAINTS: usize = 16;
const MAX_COUNTERS: usize = 32;
const MAX_CONSUMPTIONS: usize = 2;
const MAX_VALID_VALUES: usize = 10;

pub fn validate(device: &Field, old: Option<&Value>, per_device: bool) {
    device.at("name").dns_label();
    let (attributes, capacity) = (device.at("attributes"), device.at("capacity"));
    let count = attributes.len() + capacity.len();
    if count > MAX_ATTRIBUTES_AND_CAPACITIES {
        let detail = "the total number of attributes and capacities must not exceed";
        device.invalid_value(count, format!("{detail} {MAX_ATTRIBUTES_AND_CAPACITIES}"));
    }
    if attributes.len() > MAX_ATTRIBUTE_VALUES {
        let detail = format!("the total number of attribute values must not exceed {MAX_ATTRIBUTE_VALUES}");
        device.invalid_value(attributes.len(), detail);
    }
    for (name, value) in attributes.entries() {
        qualified_name(name, &attributes);
        attribute(&value);
    }
    let shared = device.at("allowMultipleAllocations").is_true();
    for (name, amount) in capacity.entries() {
        qualified_name(name, &capacity);
        let policy = amount.at("requestPolicy");
        if policy.is_set() && shared {
            request_policy(&policy, &amount.at("value"));
        } else if policy.is_set() {
            policy.forbidden("allowMultipleAllocations must be true");
        }
    }
    let taints = device.at("taints");
    if !old.is_some_and(|old| same(taints.value(), &old["taints"])) {
        list(&taints, MAX_TAINTS, claim::taint);
    }
    let set_name = |consumed: &Field| consumed.at("counterSet").text().to_owned();
    set(&device.at("consumesCounters"), MAX_CONSUMPTIONS, |item| counters(item, "counterSet"), set_name);
    nodes(device, per_device);
    binding_conditions(device);
}

/// A set of counters, or how much a device takes from one.
pub fn counters(counters: &Field, name: &str) {
    counters.at(name).required_dns_label();
    let entries = counters.at("counters");
    entries.required();
    if entries.len() > MAX_COUNTERS {
        entries.too_many(MAX_COUNTERS);
    }
    for (name, _) in entries.entries() {
        names::dns_label(name).into_iter().for_each(|message| entries.invalid_value(name, message));
    }
}

/// The ways in which an owner says which nodes it can be used on.
pub fn reach(owner: &Field, empty_name: &str) -> Vec<&'static str> {
    let (name, selector, all) = (owner.at("nodeName"), owner.at("nodeSelector"), owner.at("allNodes"));
    let mut ways = Vec::new();
    if name.is_set() && name.is_empty() {
        name.invalid(empty_name);
    } else if name.is_set() {
        ways.push("`nodeName`");
        name.dns_subdomain();
    }
    if selector.is_set() {
        ways.push("`nodeSelector`");
        node_selector::node_selector(&selector, false);
    }
    match all.flag() {
        Some(true) => ways.push("`allNodes`"),
        Some(false) => all.invalid("must be either unset or set to true"),
        None => {}
    }
    ways
}

fn nodes(device: &Field, per_device: bool) {
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                       `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    if per_device {
        let ways = reach(device, "must not be empty");
        match ways.len() {
            0 => device.missing(ONE),
            1 => {}
            _ => device.invalid_value(format!("{{{}}}", ways.join(", ")), ONE),
        }
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|name| device.at(name).is_set()) {
        device.invalid_value(
            Value::Null,
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in \
             the ResourceSlice spec",
        );
    }
}

/// An attribute has one value, of one type.
fn attribute(attribute: &Field) {
    let (text, version) = (attribute.at("string"), attribute.at("version"));
    if version.is_set() && !is_semver(version.text()) {
        version.invalid("must be a string compatible with semver.org spec 2.0.0");
    }
    for value in [text, version].iter().filter(|value| value.text().len() > MAX_VALUE) {
        value.too_long(MAX_VALUE);
    }
    match ["bool", "int", "string", "version"].iter().filter(|name| attribute.at(name).is_set()).count() {
        0 => attribute.invalid_value("", "exactly one value must be specified"),
        1 => {}
        _ => attribute.invalid_as("DeviceAttribute", "exactly one value must be specified"),
    }
}

fn is_semver(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let word = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| word(part) && (!digits(part) || number(part))))
        && build.is_none_or(|build| build.split('.').all(word))
}

/// How much of a shared device's capacity can be asked for.
fn request_policy(policy: &Field, capacity: &Field) {
    let (default, values, range) = (policy.at("default"), policy.at("validValues"), policy.at("validRange"));
    if !values.is_empty() && range.is_set() {
        return policy.forbidden(
            "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time",
        );
    }
    let (which, judge): (_, fn(&Field, &Field, &Field)) = match (values.is_empty(), range.is_set()) {
        (false, _) => ("validValues", valid_values),
        (true, true) => ("validRange", valid_range),
        (true, false) => return,
    };
    match default.is_set() {
        true => judge(&policy.at(which), &default, capacity),
        false => default.missing(format!("required when {which} is defined")),
    }
}

fn valid_values(values: &Field, default: &Field, capacity: &Field) {
    for (i, value) in values.each().enumerate().skip(1) {
        if values.index(i - 1).quantity() > value.quantity() {
            value.invalid("values must be sorted in ascending order");
        }
    }
    let fits = |value: &Field| {
        if value.quantity() > capacity.quantity() {
            value.invalid(format!("option is larger than capacity value: {}", capacity.quantity()));
        }
    };
    set(values, MAX_VALID_VALUES, fits, |value| value.quantity().value().to_string());
    if values.len() > MAX_VALID_VALUES || !values.each().any(|value| value.quantity() == default.quantity()) {
        values.invalid_value(default.value().clone(), "default value is not valid according to the requestPolicy");
    }
}

fn valid_range(range: &Field, default: &Field, capacity: &Field) {
    let (min, max, step) = (range.at("min"), range.at("max"), range.at("step"));
    if !min.is_set() {
        return min.missing("required when validRange is defined");
    }
    let (least, usual, all) = (min.quantity(), default.quantity(), capacity.quantity());
    if least > all {
        min.invalid(format!("min is larger than capacity value: {all}"));
    }
    if usual < least {
        min.invalid_value(default.value().clone(), format!("default is less than min: {least}"));
    }
    if max.is_set() {
        let most = max.quantity();
        if least > most {
            max.invalid_value(min.value().clone(), format!("min is larger than max: {most}"));
        }
        if most > all {
            max.invalid(format!("max is larger than capacity value: {all}"));
        }
        if usual > most {
            max.invalid_value(default.value().clone(), format!("default is more than max: {most}"));
        }
    }
    if !step.is_set() {
        return;
    }
    let mut next = least;
    next.add(&step.quantity());
    if next > all {
        step.invalid(format!("one step {next} is larger than capacity value: {all}"));
    }
    for value in [default, &max].into_iter().filter(|value| value.is_set()) {
        let distance = value.quantity().value() - least.value();
        if step.quantity().value() != 0 && distance % step.quantity().value() != 0 {
            let detail = format!("value is not a multiple of a given step ({}) from ({least})", step.quantity());
            step.invalid_value(value.value().clone(), detail);
        }
    }
}
