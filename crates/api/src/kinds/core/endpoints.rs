//! Endpoints: the addresses behind a Service, in one object (EndpointSlice is its successor).

use object_model::names;
use serde_json::Value;

use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::{Field, addresses, meta, same};

const LISTS: [&str; 2] = ["addresses", "notReadyAddresses"];

pub static STRATEGY: Strategy = Strategy {
    create_on_update: true,
    defaults: |endpoints| {
        for port in endpoints.each("subsets").flat_map(|subset| subset.each("ports")) {
            port.default_to("protocol", "TCP");
        }
    },
    create: Create {
        warnings,
        ..Create::new(
            |_, _| {},
            |endpoints| {
                metadata(endpoints);
                subsets(&endpoints.at("subsets"));
            },
        )
    },
    update: Update {
        warnings: |endpoints, _| warnings(endpoints),
        ..Update::new(
            |_, _, _| {},
            |endpoints, old| {
                meta::builtin_meta_update(&endpoints.at("metadata"), &old["metadata"]);
                metadata(endpoints);
                // Addresses stored under older, looser rules may stay as they are.
                if !same(endpoints.at("subsets").value(), &old["subsets"]) {
                    subsets(&endpoints.at("subsets"));
                }
            },
        )
    },
    ..Strategy::new("", "Endpoints")
};

fn metadata(endpoints: &Field) {
    meta::builtin_meta(&endpoints.at("metadata"), true, names::name_is_dns_subdomain);
}

fn subsets(subsets: &Field) {
    for subset in subsets.each() {
        if LISTS.iter().all(|list| subset.at(list).is_empty()) {
            subset.missing("must specify `addresses` or `notReadyAddresses`");
        }
        for list in LISTS {
            for address in subset.at(list).each() {
                addresses::legacy_ip(&address.at("ip"), &[]);
                address.at("hostname").dns_label_if_any();
                if address.at("nodeName").is_set() {
                    address.at("nodeName").dns_subdomain();
                }
                addresses::endpoint_ip(&address.at("ip"));
            }
        }
        let ports = subset.at("ports");
        for port in ports.each() {
            if ports.len() > 1 && port.at("name").is_empty() {
                port.at("name").missing("");
            } else {
                port.at("name").dns_label_if_any();
            }
            port.at("port").port_number();
            port.at("protocol").required_one_of(&["SCTP", "TCP", "UDP"]);
            port.at("appProtocol").qualified_name_if_set();
        }
    }
}

fn warnings(endpoints: &Value) -> Vec<String> {
    if endpoints["metadata"]["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
        return Vec::new();
    }
    let mut warnings = Vec::new();
    for (i, subset) in endpoints["subsets"].as_array().into_iter().flatten().enumerate() {
        for list in LISTS {
            for (j, address) in subset[list].as_array().into_iter().flatten().enumerate() {
                let ip = address["ip"].as_str().unwrap_or_default();
                warnings.extend(addresses::ip_warning(format_args!("subsets[{i}].{list}[{j}].ip"), ip));
            }
        }
    }
    warnings
}
