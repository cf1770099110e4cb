//! EndpointSlice: some of the endpoints of a Service.

use std::collections::HashSet;

use object_model::names;
use serde_json::Value;

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::{Field, addresses, meta, same_at};

const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_HINTS: usize = 8;
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

pub static STRATEGY: Strategy = Strategy {
    defaults: |slice| {
        for port in slice.each("ports") {
            port.default_if_absent("name", "");
            port.default_if_absent("protocol", "TCP");
        }
    },
    create: Create {
        warnings: |slice| {
            let mut warnings = Vec::new();
            if slice["addressType"] == "FQDN" {
                warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
            }
            warnings.extend(address_warnings(slice));
            warnings
        },
        ..Create::new(
            |slice, _| {
                prepare::first_generation(slice);
                drop_topology(slice);
            },
            |slice| {
                validate(slice);
                endpoints(slice);
            },
        )
    },
    update: Update {
        warnings: |slice, _| address_warnings(slice),
        ..Update::new(prepare_update, |slice, old| {
            validate(slice);
            // Endpoints stored under older, looser rules may stay as they are.
            if !same_at(slice.value(), old, "endpoints") {
                endpoints(slice);
            }
            slice.immutable_at("addressType", old);
        })
    },
    ..Strategy::new(GROUP, "EndpointSlice")
};

fn prepare_update(slice: &mut Value, old: &Value, _: &crate::kinds::Context) {
    let relabelled = !same_at(&slice["metadata"], &old["metadata"], "labels");
    let counted: &[&str] = &["addressType", "endpoints", "ports", "metadata"];
    prepare::next_generation(slice, old, &counted[..if relabelled { 4 } else { 3 }]);
    drop_topology(slice);
}

/// The topology of v1beta1 is read, and forgotten.
fn drop_topology(slice: &mut Value) {
    slice.each("endpoints").for_each(|endpoint| endpoint.remove("deprecatedTopology"));
}

fn validate(slice: &Field) {
    meta::builtin_meta(&slice.at("metadata"), true, names::name_is_dns_subdomain);
    slice.at("addressType").required_one_of(&["FQDN", "IPv4", "IPv6"]);
    let ports = slice.at("ports");
    if ports.len() > MAX_PORTS {
        ports.too_many(MAX_PORTS);
    }
    let mut seen = HashSet::new();
    for port in ports.each() {
        let name = port.at("name");
        name.dns_label_if_any();
        if !seen.insert(name.text()) {
            name.duplicate();
        }
        port.at("protocol").one_of(&["SCTP", "TCP", "UDP"]);
        port.at("appProtocol").qualified_name_if_set();
    }
}

fn endpoints(slice: &Field) {
    let (endpoints, address_type) = (slice.at("endpoints"), slice.at("addressType").text());
    if endpoints.len() > MAX_ENDPOINTS {
        endpoints.too_many(MAX_ENDPOINTS);
    }
    for endpoint in endpoints.each() {
        let list = endpoint.at("addresses");
        match list.len() {
            0 => list.missing("must contain at least 1 address"),
            1..=MAX_ADDRESSES => {}
            _ => list.too_many(MAX_ADDRESSES),
        }
        list.each().for_each(|item| address(&item, &list, address_type));
        if endpoint.at("nodeName").is_set() {
            endpoint.at("nodeName").dns_subdomain();
        }
        if endpoint.at("hostname").is_set() {
            endpoint.at("hostname").dns_label();
        }
        let hints = endpoint.at("hints");
        hinted(&hints.at("forZones"), names::label_value);
        hinted(&hints.at("forNodes"), names::dns_subdomain);
    }
}

fn address(item: &Field, list: &Field, address_type: &str) {
    let before = item.problem_count();
    let ipv4 = address_type == "IPv4";
    match address_type {
        "IPv4" => addresses::legacy_ip(item, &[]),
        "IPv6" => addresses::canonical_ip(item),
        "FQDN" => return item.held_to(names::fully_qualified_domain_name),
        _ => return,
    }
    if item.problem_count() == before {
        if addresses::parse_ip(item.text()).is_some_and(|ip| ip.is_ipv4() != ipv4) {
            list.with(item.value()).invalid(format!("must be an {address_type} address"));
        }
        addresses::endpoint_ip(item);
    }
}

/// Zones or nodes that should use an endpoint, each named once.
fn hinted(hints: &Field, rule: fn(&str) -> Vec<String>) {
    if hints.len() > MAX_HINTS {
        hints.too_many(MAX_HINTS);
    }
    let mut seen = HashSet::new();
    for hint in hints.each() {
        let name = hint.at("name");
        if seen.contains(&name.text()) {
            name.with_text().duplicate();
        }
        seen.insert(name.text());
        name.invalid_for(rule(name.text()));
    }
}

fn address_warnings(slice: &Value) -> Vec<String> {
    let manager = slice["metadata"]["labels"][MANAGED_BY].as_str().unwrap_or_default();
    if ["endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io"].contains(&manager) {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for (i, endpoint) in slice["endpoints"].as_array().into_iter().flatten().enumerate() {
        for (j, address) in endpoint["addresses"].as_array().into_iter().flatten().enumerate() {
            let ip = address.as_str().unwrap_or_default();
            warnings.extend(addresses::ip_warning(format_args!("endpoints[{i}].addresses[{j}]"), ip));
        }
    }
    warnings
}
