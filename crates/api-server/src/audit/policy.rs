//! Which requests are recorded, and how much of them: an `audit.k8s.io/v1` Policy.

use std::path::Path;

use object_model::field::{Errors, Path as Field};
use serde::{Deserialize, Serialize};

use crate::{
    config_file::{ConfigError, Wanted},
    context::User,
    request_info::RequestInfo,
};

const KIND: Wanted = Wanted { kind: "Policy", api_versions: &["audit.k8s.io/v1"] };
const LEVELS: &[&str] = &["None", "Metadata", "Request", "RequestResponse"];
const STAGES: &[&str] = &["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"];

/// How much of a request is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Level {
    #[default]
    None,
    Metadata,
    Request,
    RequestResponse,
}

/// When an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// What the policy says of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    pub level: Level,
    omitted: u8,
    pub omit_managed_fields: bool,
}

impl Verdict {
    pub fn wants(self, stage: Stage) -> bool {
        self.omitted & bit(stage) == 0
    }
}

fn bit(stage: Stage) -> u8 {
    1 << stage as u8
}

#[derive(Debug, Default)]
pub struct Policy {
    rules: Vec<(Rule, Verdict)>,
    otherwise: Verdict,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "metadata", default)]
    _metadata: serde_json::Value,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct Rule {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let file: File = KIND.read(path)?;
        let mut errors = Errors::new();
        let policy = Self::build(file, &mut errors);
        KIND.check(path, &errors)?;
        Ok(policy)
    }

    fn build(file: File, errors: &mut Errors) -> Self {
        let root = Field::root();
        if file.rules.is_empty() {
            errors.required(&root.child("rules"), "a policy without rules records nothing");
        }
        let omitted = stages(&file.omit_stages, &root.child("omitStages"), errors);
        let omit_managed_fields = file.omit_managed_fields;
        let at = root.child("rules");
        let rules = file.rules.into_iter().enumerate().map(|(i, rule)| {
            let at = at.index(i);
            rule.validate(&at, errors);
            let verdict = Verdict {
                level: rule.level(&at.child("level"), errors),
                omitted: omitted | stages(&rule.omit_stages, &at.child("omitStages"), errors),
                omit_managed_fields: rule.omit_managed_fields.unwrap_or(omit_managed_fields),
            };
            (rule, verdict)
        });
        Self { rules: rules.collect(), otherwise: Verdict { omitted, omit_managed_fields, level: Level::None } }
    }

    /// The first rule that matches decides; without one nothing is recorded.
    pub fn judge(&self, user: Option<&User>, info: &RequestInfo) -> Verdict {
        let found = self.rules.iter().find(|(rule, _)| rule.matches(user, info));
        found.map_or(self.otherwise, |(_, verdict)| *verdict)
    }
}

fn stages(names: &[String], at: &Field<'_>, errors: &mut Errors) -> u8 {
    let mut omitted = 0;
    for (i, name) in names.iter().enumerate() {
        omitted |= match name.as_str() {
            "RequestReceived" => bit(Stage::RequestReceived),
            "ResponseStarted" => bit(Stage::ResponseStarted),
            "ResponseComplete" => bit(Stage::ResponseComplete),
            "Panic" => bit(Stage::Panic),
            other => {
                errors.invalid(&at.index(i), other, format!("allowed stages are {}", STAGES.join(",")));
                0
            }
        };
    }
    omitted
}

impl Rule {
    fn level(&self, at: &Field<'_>, errors: &mut Errors) -> Level {
        match self.level.as_str() {
            "None" => Level::None,
            "Metadata" => Level::Metadata,
            "Request" => Level::Request,
            "RequestResponse" => Level::RequestResponse,
            "" => {
                errors.required(at, "");
                Level::None
            }
            other => {
                errors.not_supported(at, other, LEVELS);
                Level::None
            }
        }
    }

    fn validate(&self, at: &Field<'_>, errors: &mut Errors) {
        for (i, url) in self.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let field = at.child("nonResourceURLs");
            let at = field.index(i);
            if !url.starts_with('/') {
                errors.invalid(&at, url.as_str(), "non-resource URL rules must begin with a '/' character");
            }
            if url.find('*').is_some_and(|star| star + 1 < url.len()) {
                errors.invalid(
                    &at,
                    url.as_str(),
                    "non-resource URL wildcards '*' must be the final character of the rule",
                );
            }
        }
        for entry in self.resources.iter().filter(|r| r.resources.is_empty() && !r.resource_names.is_empty()) {
            let field = at.child("resources");
            let names = entry.resource_names.clone();
            errors.invalid(&field.child("resourceNames"), names, "using resourceNames requires at least one resource");
        }
        let on_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if on_resources && !self.non_resource_urls.is_empty() {
            let both = "rules cannot apply to both regular resources and non-resource URLs";
            errors.invalid(&at.child("nonResourceURLs"), self.non_resource_urls.clone(), both);
        }
    }

    fn matches(&self, user: Option<&User>, info: &RequestInfo) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|entry| entry == text);
        let of_user = self.users.is_empty() || user.is_some_and(|user| has(&self.users, &user.name));
        let of_group = self.user_groups.is_empty()
            || user.is_some_and(|user| user.groups.iter().any(|group| has(&self.user_groups, group)));
        if !of_user || !of_group || !(self.verbs.is_empty() || has(&self.verbs, info.verb)) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || has(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|entry| entry.matches(info)));
        }
        if !self.non_resource_urls.is_empty() {
            let matches = |url: &String| match url.strip_suffix('*') {
                Some(start) => info.path.starts_with(start),
                None => *url == info.path,
            };
            return !info.is_resource && self.non_resource_urls.iter().any(matches);
        }
        true
    }
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != "*" && self.group != info.group {
            return false;
        }
        let named = self.resource_names.is_empty() || self.resource_names.contains(&info.name);
        let matches = |wanted: &String| match wanted.split_once('/') {
            None => wanted == "*" || (*wanted == info.resource && info.subresource.is_empty()),
            Some((resource, subresource)) => {
                !info.subresource.is_empty()
                    && (resource == "*" || resource == info.resource)
                    && (subresource == "*" || subresource == info.subresource)
            }
        };
        self.resources.is_empty() || (named && self.resources.iter().any(matches))
    }
}

#[cfg(test)]
mod tests {
    use hyper::Method;

    use super::*;

    fn policy(text: &str) -> Result<Policy, String> {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{text}");
        let file: File = KIND.parse(Path::new("file"), text.as_bytes()).map_err(|e| e.to_string())?;
        let mut errors = Errors::new();
        let policy = Policy::build(file, &mut errors);
        if errors.is_empty() { Ok(policy) } else { Err(errors.iter().map(|e| format!("{e}\n")).collect()) }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy(
            "
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- {level: None, users: [system:kube-proxy], verbs: [watch], resources: [{group: '', resources: [endpoints]}]}
- {level: None, userGroups: [system:authenticated], nonResourceURLs: ['/api*', /version]}
- {level: Request, resources: [{group: '', resources: [configmaps]}], namespaces: [kube-system], omitManagedFields: false}
- {level: Metadata, resources: [{group: '', resources: [secrets, configmaps, pods/log, '*/status']}]}
- {level: Metadata, resources: [{group: apps, resources: [deployments], resourceNames: [one]}], omitStages: [Panic]}
- {level: RequestResponse, resources: [{group: '*', resources: ['pods/*']}]}
- {level: Request, resources: [{group: batch}]}
- {level: Metadata, nonResourceURLs: ['*']}
",
        )
        .expect("a policy");
        let proxy = User { name: "system:kube-proxy".into(), groups: vec!["g".into()], ..User::default() };
        let member = User { name: "u".into(), groups: vec!["system:authenticated".into()], ..User::default() };
        for (method, path, user, level) in [
            (Method::GET, "/api/v1/endpoints?watch=1", &proxy, Level::None),
            (Method::GET, "/api/v1/namespaces/kube-system/configmaps/a", &member, Level::Request),
            (Method::GET, "/api/v1/namespaces/default/configmaps/a", &member, Level::Metadata),
            (Method::GET, "/api/v1/namespaces/default/pods/a", &member, Level::None),
            (Method::GET, "/api/v1/namespaces/default/pods/a/log", &member, Level::Metadata),
            (Method::PUT, "/api/v1/namespaces/default/services/a/status", &member, Level::Metadata),
            (Method::POST, "/api/v1/namespaces/default/pods/a/exec", &member, Level::RequestResponse),
            (Method::GET, "/apis/apps/v1/namespaces/a/deployments/one", &member, Level::Metadata),
            (Method::GET, "/apis/apps/v1/namespaces/a/deployments/two", &member, Level::None),
            (Method::GET, "/apis/batch/v1/namespaces/a/jobs/j/status", &member, Level::Request),
            (Method::GET, "/apis", &member, Level::None),
            (Method::GET, "/apis", &proxy, Level::Metadata),
            (Method::GET, "/healthz", &member, Level::Metadata),
        ] {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let verdict = policy.judge(Some(user), &RequestInfo::read(&method, path, query));
            assert_eq!(verdict.level, level, "{method} {path}");
            assert!(!verdict.wants(Stage::RequestReceived) && verdict.wants(Stage::ResponseComplete));
            assert_eq!(verdict.wants(Stage::Panic), !path.ends_with("/one"));
            assert_eq!(verdict.omit_managed_fields, level != Level::Request || path.contains("batch"), "{path}");
        }
    }

    #[test]
    fn mistakes_are_told_by_their_place() {
        for (text, wanted) in [
            ("rules: []", "rules: Required"),
            ("rules: [{}]", "rules[0].level: Required"),
            ("rules: [{level: All}]", "rules[0].level: Unsupported value: \"All\""),
            ("rules: [{level: None, omitStages: [End]}]", "rules[0].omitStages[0]: Invalid value: \"End\": allowed"),
            ("rules: [{level: None, nonResourceURLs: [api]}]", "must begin with"),
            ("rules: [{level: None, nonResourceURLs: ['/a*b']}]", "final character"),
            ("rules: [{level: None, nonResourceURLs: [/a], namespaces: [a]}]", "both regular resources"),
            ("rules: [{level: None, resources: [{resourceNames: [a]}]}]", "requires at least one resource"),
            ("rules: [{level: None, user: [a]}]", "unknown field `user`"),
        ] {
            let problems = policy(text).expect_err(text);
            assert!(problems.contains(wanted), "{text}: {problems}");
        }
    }
}
