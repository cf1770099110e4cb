//! Affinity to nodes and to other pods.

use super::Options;
use super::topology_spread::label_keys;
use crate::validation::Field;
use crate::validation::node_selector::{node_selector, node_selector_term};
use crate::validation::selectors::{SelectorOptions, label_selector_with};

pub const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
pub const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub fn affinity(affinity: &Field, options: &Options) {
    let node = affinity.at("nodeAffinity");
    if node.at(REQUIRED).is_set() {
        node_selector(&node.at(REQUIRED), options.invalid_node_affinity_values);
    }
    for term in node.at(PREFERRED).each() {
        weight(&term);
        node_selector_term(&term.at("preference"), true);
    }
    each_pod_term(affinity, &mut |term| pod_term(term, options.invalid_affinity_selectors));
}

fn weight(term: &Field) {
    let weight = term.at("weight");
    if !(1..=100).contains(&weight.number()) {
        weight.invalid_value(weight.number(), "must be in the range 1-100");
    }
}

fn each_pod_term(affinity: &Field, rule: &mut dyn FnMut(&Field)) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let kind = affinity.at(kind);
        for term in kind.at(REQUIRED).each() {
            rule(&term);
        }
        for weighted in kind.at(PREFERRED).each() {
            weight(&weighted);
            rule(&weighted.at("podAffinityTerm"));
        }
    }
}

fn pod_term(term: &Field, allow_invalid_selectors: bool) {
    term_selectors(term, allow_invalid_selectors);
    for namespace in term.at("namespaces").each() {
        term.at("namespace").with(namespace.value()).dns_label();
    }
    label_keys(term, "matchLabelKeys");
    label_keys(term, "mismatchLabelKeys");
    super::topology_spread::keys_beside_selector(term);
    let key = term.at("topologyKey");
    if key.is_empty() {
        key.missing("can not be empty");
    }
    key.qualified_name();
}

fn term_selectors(term: &Field, allow_invalid_values: bool) {
    let options = SelectorOptions { allow_invalid_values, ..Default::default() };
    label_selector_with(&term.at("labelSelector"), options);
    label_selector_with(&term.at("namespaceSelector"), options);
}

/// Only the selectors of the terms, to tell whether an old object has wrong ones.
pub fn selectors_of(affinity: &Field) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let kind = affinity.at(kind);
        kind.at(REQUIRED).each().for_each(|term| term_selectors(&term, false));
        kind.at(PREFERRED).each().for_each(|weighted| term_selectors(&weighted.at("podAffinityTerm"), false));
    }
}
