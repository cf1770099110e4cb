//! admissionregistration.k8s.io: who else has a say in writes.
//!
//! Expressions in CEL must compile; they are run by the server.

use serde_json::Value;

use crate::defaults::Defaults;

pub mod binding;
pub mod expressions;
pub mod policy;
mod rules;
pub mod webhook_configuration;

const GROUP: &str = "admissionregistration.k8s.io";
const STATIC_SUFFIX: &str = ".static.k8s.io";

const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];
const REINVOCATION_POLICIES: &[&str] = &["IfNeeded", "Never"];

fn warnings(object: &Value) -> Vec<String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if !name.ends_with(STATIC_SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with {STATIC_SUFFIX:?} are reserved for static manifest-based configurations and \
         cannot be managed via the API"
    )]
}

/// What is matched unless said: all requests that mean the same, of all scopes.
fn match_defaults(matched: &mut Value, rule_lists: &[&str]) {
    matched.default_if_absent("matchPolicy", "Equivalent");
    matched.default_if_absent("namespaceSelector", serde_json::json!({}));
    matched.default_if_absent("objectSelector", serde_json::json!({}));
    for list in rule_lists {
        matched.each(list).for_each(|rule| rule.default_if_absent("scope", "*"));
    }
}
