//! Role and ClusterRole: sets of rules.

use serde_json::Value;

use super::GROUP;
use crate::kinds::{Create, Strategy, Update};
use crate::validation::selectors::{Selection, SelectorOptions, label_selector_with, select, tolerating};
use crate::validation::{Field, meta};

pub static STRATEGY: Strategy = Strategy {
    create_on_update: true,
    create: Create::new(|_, _| {}, |object| role(object, true)),
    update: Update::new(
        |_, _, _| {},
        |object, old| {
            role(object, true);
            meta::builtin_meta_update(&object.at("metadata"), &old["metadata"]);
        },
    ),
    ..Strategy::new(GROUP, "Role")
};

pub static CLUSTER_STRATEGY: Strategy = Strategy {
    create_on_update: true,
    create: Create::new(|_, _| {}, |role| cluster_role(role, SelectorOptions::default())),
    update: Update::new(
        |_, _, _| {},
        |role, old| {
            let old_selectors = old["aggregationRule"]["clusterRoleSelectors"].as_array();
            let options =
                old_selectors.into_iter().flatten().map(tolerating).find(|options| options.allow_invalid_values);
            cluster_role(role, options.unwrap_or_default());
            meta::builtin_meta_update(&role.at("metadata"), &old["metadata"]);
        },
    ),
    ..Strategy::cluster(GROUP, "ClusterRole")
};

fn role(role: &Field, namespaced: bool) {
    meta::builtin_meta(&role.at("metadata"), namespaced, super::name);
    for rule in role.at("rules").each() {
        policy_rule(&rule, namespaced);
    }
}

fn cluster_role(object: &Field, options: SelectorOptions) {
    role(object, false);
    let aggregation = object.at("aggregationRule");
    if !aggregation.is_set() {
        return;
    }
    let selectors = aggregation.at("clusterRoleSelectors");
    if selectors.is_empty() {
        selectors.missing("at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for selector in selectors.each() {
        label_selector_with(&selector, options);
        if select(selector.value(), &Value::Null) == Selection::Invalid {
            selector.invalid_value(Value::Null, "invalid label selector.");
        }
    }
}

fn policy_rule(rule: &Field, namespaced: bool) {
    if rule.at("verbs").is_empty() {
        rule.at("verbs").missing("verbs must contain at least one value");
    }
    let urls = rule.at("nonResourceURLs");
    if !urls.is_empty() {
        if namespaced {
            urls.invalid("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|name| !rule.at(name).is_empty()) {
            urls.invalid("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if rule.at("apiGroups").is_empty() {
        rule.at("apiGroups").missing("resource rules must supply at least one api group");
    }
    if rule.at("resources").is_empty() {
        rule.at("resources").missing("resource rules must supply at least one resource");
    }
}
