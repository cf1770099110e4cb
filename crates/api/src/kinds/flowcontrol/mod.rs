//! flowcontrol.apiserver.k8s.io: which requests share the server, and how.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::kinds::{Reset, Update, prepare};
use crate::validation::Field;

pub mod flow_schema;
pub mod priority_level_configuration;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The specification that a FlowSchema of this name must have, if it is one of the two that must exist.
pub fn mandatory_schema(name: &str) -> Option<Value> {
    let groups = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
    };
    let (precedence, method, subjects) = match name {
        "exempt" => (1, None, groups(&["system:masters"])),
        "catch-all" => (10_000, Some("ByUser"), groups(&["system:unauthenticated", "system:authenticated"])),
        _ => return None,
    };
    let everything = json!({
        "subjects": subjects,
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true, "namespaces": ["*"]},
        ],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    });
    let mut spec = json!({
        "priorityLevelConfiguration": {"name": name},
        "matchingPrecedence": precedence,
        "rules": [everything],
    });
    if let Some(method) = method {
        spec["distinguisherMethod"] = json!({"type": method});
    }
    Some(spec)
}

/// The same for a PriorityLevelConfiguration.
pub fn mandatory_level(name: &str) -> Option<Value> {
    match name {
        "exempt" => Some(json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})),
        "catch-all" => Some(json!({
            "type": "Limited",
            "limited": {"nominalConcurrencyShares": 5, "lendablePercent": 0, "limitResponse": {"type": "Reject"}},
        })),
        _ => None,
    }
}

const STATUS: (&str, Update) = (
    "status",
    Update {
        reset: Reset::Fields(&[&["metadata"], &["spec"]]),
        ..Update::new(prepare::status_and_nothing_else, |object, _| conditions(object))
    },
);

/// Conditions of a status: each type once.
fn conditions(object: &Field) {
    let status = object.at("status");
    let mut seen = HashSet::new();
    for condition in status.at("conditions").each() {
        let kind = condition.at("type");
        if seen.contains(&kind.text()) {
            kind.with_text().duplicate();
        }
        seen.insert(kind.text());
        kind.required();
    }
}
