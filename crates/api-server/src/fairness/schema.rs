//! Which requests belong to a flow schema, and to which flow in it.

use std::sync::Arc;

use object_model::value::Fields;
use serde::Deserialize;
use serde_json::Value;

use super::{Sorted, level::Level, metrics::Counts};
use crate::{context::User, request_info::RequestInfo};

/// A FlowSchema in use.
pub struct Schema {
    pub name: String,
    /// As answers tell it.
    pub sorted: Sorted,
    pub precedence: i64,
    rules: Vec<Rule>,
    distinguisher: Option<Distinguisher>,
    pub level: Arc<Level>,
    pub counts: Arc<Counts>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Distinguisher {
    ByUser,
    ByNamespace,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    subjects: Vec<Subject>,
    resource_rules: Vec<ResourceRule>,
    non_resource_rules: Vec<NonResourceRule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Subject {
    kind: String,
    user: Option<Named>,
    group: Option<Named>,
    service_account: Option<Named>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ResourceRule {
    verbs: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
    cluster_scope: bool,
    namespaces: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NonResourceRule {
    verbs: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    urls: Vec<String>,
}

/// The priority level that a FlowSchema names.
pub fn level_name(object: &Value) -> &str {
    object.text_at(&["spec", "priorityLevelConfiguration", "name"])
}

impl Schema {
    pub fn new(object: &Value, level: Arc<Level>, sorted: Sorted, counts: Arc<Counts>) -> Self {
        let spec = &object["spec"];
        Self {
            name: object.text_at(&["metadata", "name"]).to_owned(),
            sorted,
            precedence: spec["matchingPrecedence"].as_i64().unwrap_or(1000),
            rules: serde_json::from_value(spec["rules"].clone()).unwrap_or_default(),
            distinguisher: serde_json::from_value(spec["distinguisherMethod"]["type"].clone()).ok(),
            level,
            counts,
        }
    }

    pub fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| {
            rule.subjects.iter().any(|subject| subject.matches(user))
                && if info.is_resource {
                    rule.resource_rules.iter().any(|rule| rule.matches(info))
                } else {
                    rule.non_resource_rules.iter().any(|rule| rule.matches(info))
                }
        })
    }

    /// What tells the flows of this schema apart.
    pub fn flow<'a>(&self, user: &'a User, info: &'a RequestInfo) -> &'a str {
        match self.distinguisher {
            Some(Distinguisher::ByUser) => &user.name,
            Some(Distinguisher::ByNamespace) => &info.namespace,
            None => "",
        }
    }
}

impl Subject {
    fn matches(&self, user: &User) -> bool {
        let all_or = |wanted: &Named, name: &str| wanted.name == "*" || wanted.name == name;
        match self.kind.as_str() {
            "User" => self.user.as_ref().is_some_and(|wanted| all_or(wanted, &user.name)),
            "Group" => {
                self.group.as_ref().is_some_and(|wanted| wanted.name == "*" || user.groups.contains(&wanted.name))
            }
            "ServiceAccount" => self.service_account.as_ref().is_some_and(|wanted| {
                let account = user.name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
                account.is_some_and(|(namespace, name)| namespace == wanted.namespace && all_or(wanted, name))
            }),
            _ => false,
        }
    }
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let resource = |wanted: &String| match wanted.split_once('/') {
            Some((resource, subresource)) => resource == info.resource && subresource == info.subresource,
            None => *wanted == info.resource && info.subresource.is_empty(),
        };
        has(&self.verbs, info.verb)
            && (is_all(&self.resources) || self.resources.iter().any(resource))
            && has(&self.api_groups, &info.group)
            && if info.namespace.is_empty() { self.cluster_scope } else { has(&self.namespaces, &info.namespace) }
    }
}

impl NonResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let url = |url: &String| {
            let below = url.trim_end_matches('*').trim_end_matches('/');
            url == "*" || *url == info.path || info.path.strip_prefix(below).is_some_and(|rest| rest.starts_with('/'))
        };
        has(&self.verbs, info.verb) && self.urls.iter().any(url)
    }
}

fn is_all(list: &[String]) -> bool {
    matches!(list, [only] if only == "*")
}

fn has(list: &[String], text: &str) -> bool {
    is_all(list) || list.iter().any(|entry| entry == text)
}
