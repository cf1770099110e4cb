//! NetworkPolicy: which traffic pods may have.

use object_model::names;
use serde_json::{Value, json};

use super::GROUP;
use crate::defaults::Defaults;
use crate::kinds::{Create, Strategy, Update, prepare};
use crate::validation::selectors::{SelectorOptions, label_selector_with, tolerating};
use crate::validation::{Field, addresses, meta};

/// The two kinds of rules, and where they name their peers.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// What an old object had wrong and may keep.
#[derive(Default)]
struct Tolerated<'a> {
    selectors: SelectorOptions,
    blocks: Vec<&'a str>,
}

pub static STRATEGY: Strategy = Strategy {
    defaults,
    create: Create {
        warnings,
        ..Create::new(
            |policy, _| prepare::first_generation(policy),
            |policy| {
                meta::builtin_meta(&policy.at("metadata"), true, names::name_is_dns_subdomain);
                spec(&policy.at("spec"), &Tolerated::default());
            },
        )
    },
    update: Update {
        warnings: |policy, _| warnings(policy),
        ..Update::new(
            |policy, old, _| prepare::next_generation(policy, old, &["spec"]),
            |policy, old| {
                meta::builtin_meta_update(&policy.at("metadata"), &old["metadata"]);
                let selectors = tolerating(&old["spec"]["podSelector"]);
                let blocks = blocks(old).into_iter().map(|(_, block)| block).collect();
                spec(&policy.at("spec"), &Tolerated { selectors, blocks });
            },
        )
    },
    ..Strategy::new(GROUP, "NetworkPolicy")
};

fn defaults(policy: &mut Value) {
    let Some(spec) = policy.child("spec") else { return };
    for (direction, _) in DIRECTIONS {
        for port in spec.each(direction).flat_map(|rule| rule.each("ports")) {
            port.default_if_absent("protocol", "TCP");
        }
    }
    if spec["policyTypes"].as_array().is_none_or(Vec::is_empty) {
        let egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
        spec["policyTypes"] = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    }
}

fn spec(spec: &Field, tolerated: &Tolerated) {
    label_selector_with(&spec.at("podSelector"), tolerated.selectors);
    for (direction, peers) in DIRECTIONS {
        for rule in spec.at(direction).each() {
            rule.at("ports").each().for_each(|item| port(&item));
            rule.at(peers).each().for_each(|item| peer(&item, tolerated));
        }
    }
    let types = spec.at("policyTypes");
    if types.len() > 2 {
        return types.invalid("may not specify more than two policyTypes");
    }
    types.each().for_each(|policy_type| policy_type.one_of(&["Ingress", "Egress"]));
}

fn port(item: &Field) {
    item.at("protocol").one_of_if_set(&["TCP", "UDP", "SCTP"]);
    let (port, end) = (item.at("port"), item.at("endPort"));
    match port.value() {
        Value::Null if end.is_set() => end.invalid("may not be specified when `port` is not specified"),
        Value::Null => {}
        Value::String(_) => {
            if end.is_set() {
                end.invalid("may not be specified when `port` is non-numeric");
            }
            port.port();
        }
        _ => {
            port.port_number();
            if end.is_set() {
                if end.number() < port.number() {
                    end.invalid_value(port.number(), "must be greater than or equal to `port`");
                }
                end.port_number();
            }
        }
    }
}

fn peer(peer: &Field, tolerated: &Tolerated) {
    let selectors = [peer.at("podSelector"), peer.at("namespaceSelector")];
    for selector in selectors.iter().filter(|selector| selector.is_set()) {
        label_selector_with(selector, tolerated.selectors);
    }
    let (by_selector, block) = (selectors.iter().any(Field::is_set), peer.at("ipBlock"));
    if block.is_set() {
        ip_block(&block, &tolerated.blocks);
    }
    match (by_selector, block.is_set()) {
        (false, false) => peer.missing("must specify a peer"),
        (true, true) => peer.forbidden("may not specify both ipBlock and another peer"),
        _ => {}
    }
}

fn ip_block(block: &Field, kept: &[&str]) {
    let cidr = block.at("cidr");
    if !cidr.required() {
        return;
    }
    addresses::legacy_cidr(&cidr, kept);
    let Some(whole) = addresses::parse_cidr(cidr.text()) else { return };
    for except in block.at("except").each() {
        addresses::legacy_cidr(&except, kept);
        if addresses::parse_cidr(except.text()).is_some_and(|part| !whole.has_part(&part)) {
            except.invalid("must be a strict subset of `cidr`");
        }
    }
}

/// Every block of a policy, with its path.
fn blocks(policy: &Value) -> Vec<(String, &str)> {
    fn list(value: &Value) -> &[Value] {
        value.as_array().map(Vec::as_slice).unwrap_or_default()
    }
    let mut found = Vec::new();
    for (direction, peers) in DIRECTIONS {
        for (i, rule) in list(&policy["spec"][direction]).iter().enumerate() {
            for (j, peer) in list(&rule[peers]).iter().enumerate() {
                let path = format!("spec.{direction}[{i}].{peers}[{j}].ipBlock");
                let block = &peer["ipBlock"];
                found.extend(block["cidr"].as_str().map(|cidr| (format!("{path}.cidr"), cidr)));
                let excepts = list(&block["except"]).iter().enumerate();
                found.extend(excepts.filter_map(|(k, cidr)| Some((format!("{path}.except[{k}]"), cidr.as_str()?))));
            }
        }
    }
    found
}

fn warnings(policy: &Value) -> Vec<String> {
    blocks(policy).into_iter().flat_map(|(path, block)| addresses::cidr_warnings(path, block)).collect()
}
