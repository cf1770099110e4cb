//! What webhooks and policies match: rules about requests, and conditions.

use std::collections::HashSet;

use crate::validation::Field;
use crate::validation::selectors::label_selector;

use super::MATCH_POLICIES;
use super::expressions::Scope;

const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const MAX_CONDITIONS: usize = 64;

pub fn rule(rule: &Field) {
    let operations = rule.at("operations");
    operations.required();
    alone(&operations, "operations");
    operations.each().for_each(|operation| operation.one_of(OPERATIONS));
    rule.at("apiGroups").required();
    alone(&rule.at("apiGroups"), "API groups");
    let versions = rule.at("apiVersions");
    versions.required();
    alone(&versions, "API versions");
    versions.each().for_each(|version| {
        version.required();
    });
    resources(&rule.at("resources"));
    rule.at("scope").one_of_if_set(&["*", "Cluster", "Namespaced"]);
}

/// A star stands for everything, so nothing may stand beside it.
fn alone(list: &Field, others: &str) {
    if list.len() > 1 && list.texts().any(|item| item == "*") {
        list.invalid(format!("if '*' is present, must not specify other {others}"));
    }
}

/// Resources, resources and subresources, and stars for either.
fn resources(resources: &Field) {
    resources.required();
    let (mut all_of, mut in_all) = (HashSet::new(), HashSet::new());
    let mut last_is_resource = false;
    for item in resources.each() {
        let text = item.text();
        if !item.required() {
            continue;
        }
        let Some((resource, subresource)) = text.split_once('/') else {
            last_is_resource = text != "*";
            continue;
        };
        if all_of.contains(resource) {
            item.invalid(format!("if '{resource}/*' is present, must not specify {text}"));
        }
        if in_all.contains(subresource) {
            item.invalid(format!("if '*/{subresource}' is present, must not specify {text}"));
        }
        if subresource == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            in_all.insert(subresource);
        }
    }
    if resources.len() > 1 && resources.texts().any(|item| item == "*/*") {
        resources.invalid("if '*/*' is present, must not specify other resources");
    }
    if last_is_resource && resources.texts().any(|item| item == "*") {
        resources.invalid("if '*' is present, must not specify other resources without subresources");
    }
}

/// `MatchResources` of a policy or binding, if there are any.
pub fn match_resources(matched: &Field) {
    if !matched.is_set() {
        return;
    }
    matched.at("matchPolicy").one_of(MATCH_POLICIES);
    label_selector(&matched.at("namespaceSelector"));
    label_selector(&matched.at("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for item in matched.at(list).each() {
            let mut seen = HashSet::new();
            for name in item.at("resourceNames").each() {
                name.path_segment();
                if !seen.insert(name.text()) {
                    name.duplicate();
                }
            }
            rule(&item);
        }
    }
}

/// What changes objects matches no deletions.
pub fn mutating_operations(matched: &Field) {
    let rules = matched.at("resourceRules");
    for rule in rules.each() {
        for operation in rule.at("operations").each() {
            rules.at("operations").with(operation.value()).one_of(&["*", "CONNECT", "CREATE", "UPDATE"]);
        }
    }
}

pub fn match_conditions(conditions: &Field, scope: &Scope) {
    if conditions.len() > MAX_CONDITIONS {
        conditions.too_many(MAX_CONDITIONS);
    }
    let mut seen = HashSet::new();
    for condition in conditions.each() {
        if expression(&condition.at("expression"), "") {
            scope.check_condition(&condition.at("expression"));
        }
        let name = condition.at("name");
        if name.required() {
            name.qualified_name();
            if !seen.insert(name.text()) {
                name.duplicate();
            }
        }
    }
}

/// Must say something; says whether it does.
pub fn expression(expression: &Field, detail: &str) -> bool {
    let is_empty = expression.text().trim().is_empty();
    if is_empty {
        expression.missing(detail);
    }
    !is_empty
}
