//! The file that `--authentication-config` names: an AuthenticationConfiguration of apiserver.config.k8s.io.

use std::{fs, path::Path};

use object_model::{codec::yaml, value::Fields};
use serde_json::Value;

use crate::authentication::{Error, anonymous};

/// What the file says, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    pub issuers: Vec<Issuer>,
    /// `None` leaves it to the flag.
    pub anonymous: Option<anonymous::Configured>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuer {
    pub url: String,
    /// Where its discovery document is, if not below `url`; with `file://`, its key set itself.
    pub discovery_url: String,
    /// Whom its certificate is believed of, in PEM; without it, whom the system believes.
    pub certificate_authority: String,
    pub audiences: Vec<String>,
    /// Claims that must have these values.
    pub required: Vec<(String, String)>,
    pub username: Mapping,
    pub groups: Option<Mapping>,
    /// The claim that is the uid.
    pub uid: Option<String>,
}

/// A claim that stands for something, and what is put before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub claim: String,
    pub prefix: String,
}

impl Configuration {
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        let unusable = |reason: String| Error::Unusable { what: path.display().to_string(), reason };
        let value = yaml::read(&text).map_err(|e| unusable(e.to_string()))?;
        Self::from_value(&value).map_err(|problems| unusable(problems.join("; ")))
    }

    /// All that is wrong with it, or what it says.
    pub fn from_value(value: &Value) -> Result<Self, Vec<String>> {
        let mut problems = Problems::default();
        let known = ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1"];
        if value.text("kind") != "AuthenticationConfiguration" || !known.contains(&value.text("apiVersion")) {
            problems.add("it must be an AuthenticationConfiguration of apiserver.config.k8s.io/v1");
        }
        problems.unknown(value, "", &["apiVersion", "kind", "jwt", "anonymous"]);
        let mut issuers: Vec<Issuer> = Vec::new();
        for (i, entry) in value.items("jwt").iter().enumerate() {
            let issuer = issuer(entry, &format!("jwt[{i}]"), &mut problems);
            if issuers.iter().any(|known| known.url == issuer.url) {
                problems.add(format!("jwt[{i}].issuer.url: {:?} is there twice", issuer.url));
            }
            issuers.push(issuer);
        }
        let anonymous = value.field("anonymous").map(|entry| {
            problems.unknown(entry, "anonymous", &["enabled", "conditions"]);
            let paths: Vec<String> = entry.items("conditions").iter().map(|c| c.text("path").to_owned()).collect();
            let enabled = entry.flag("enabled").unwrap_or_default();
            if !enabled && !paths.is_empty() {
                problems.add("anonymous.conditions: there must be none where anonymous requests are refused");
            }
            anonymous::Configured { enabled, paths }
        });
        if problems.0.is_empty() { Ok(Self { issuers, anonymous }) } else { Err(problems.0) }
    }
}

#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, problem: impl Into<String>) {
        self.0.push(problem.into());
    }

    fn unknown(&mut self, value: &Value, at: &str, known: &[&str]) {
        let dot = if at.is_empty() { "" } else { "." };
        for key in value.as_object().into_iter().flat_map(|fields| fields.keys()) {
            if !known.contains(&key.as_str()) {
                self.add(format!("{at}{dot}{key}: unknown field"));
            }
        }
    }

    /// A field that holds an expression, which is not understood: better no server than one that lets the wrong ones in.
    fn expression(&mut self, value: &Value, field: &str, at: &str) {
        if value.has(field) {
            self.add(format!("{at}.{field}: expressions are not supported by this version of ferry"));
        }
    }
}

fn issuer(entry: &Value, at: &str, problems: &mut Problems) -> Issuer {
    let known = ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
    problems.unknown(entry, at, &known);
    let null = Value::Null;
    let issuer = entry.field("issuer").unwrap_or(&null);
    let fields =
        ["url", "discoveryURL", "certificateAuthority", "audiences", "audienceMatchPolicy", "egressSelectorType"];
    problems.unknown(issuer, &format!("{at}.issuer"), &fields);
    let url = issuer.text("url").to_owned();
    if !url.starts_with("https://") {
        problems.add(format!("{at}.issuer.url: {url:?} must be a URL that begins with https://"));
    }
    let discovery_url = issuer.text("discoveryURL").to_owned();
    if !discovery_url.is_empty() && !["https://", "file:///"].iter().any(|scheme| discovery_url.starts_with(scheme)) {
        problems.add(format!("{at}.issuer.discoveryURL: {discovery_url:?} must begin with https:// or file:///"));
    }
    if !issuer.text("egressSelectorType").is_empty() {
        problems.add(format!("{at}.issuer.egressSelectorType: egress selectors are not supported"));
    }
    let audiences: Vec<String> =
        issuer.items("audiences").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if audiences.is_empty() || audiences.iter().any(String::is_empty) {
        problems.add(format!("{at}.issuer.audiences: at least one is required, and none may be empty"));
    }
    match (issuer.text("audienceMatchPolicy"), audiences.len()) {
        ("MatchAny", _) | ("", ..2) => {}
        ("", _) => problems.add(format!("{at}.issuer.audienceMatchPolicy: must be MatchAny for several audiences")),
        (other, _) => problems.add(format!("{at}.issuer.audienceMatchPolicy: {other:?} is not MatchAny")),
    }
    let mut required = Vec::new();
    for (i, rule) in entry.items("claimValidationRules").iter().enumerate() {
        let at = format!("{at}.claimValidationRules[{i}]");
        problems.expression(rule, "expression", &at);
        if rule.text("claim").is_empty() && !rule.has("expression") {
            problems.add(format!("{at}.claim: is required"));
        }
        required.push((rule.text("claim").to_owned(), rule.text("requiredValue").to_owned()));
    }
    for (i, rule) in entry.items("userValidationRules").iter().enumerate() {
        problems.expression(rule, "expression", &format!("{at}.userValidationRules[{i}]"));
    }
    let mappings = entry.field("claimMappings").unwrap_or(&null);
    let at = format!("{at}.claimMappings");
    problems.unknown(mappings, &at, &["username", "groups", "uid", "extra"]);
    for (i, extra) in mappings.items("extra").iter().enumerate() {
        problems.expression(extra, "valueExpression", &format!("{at}.extra[{i}]"));
    }
    let uid = mappings.field("uid").unwrap_or(&null);
    problems.expression(uid, "expression", &format!("{at}.uid"));
    let username = mapping(mappings, "username", &at, problems);
    if username.is_none() {
        problems.add(format!("{at}.username: is required"));
    }
    Issuer {
        url,
        discovery_url,
        certificate_authority: issuer.text("certificateAuthority").to_owned(),
        audiences,
        required,
        username: username.unwrap_or_default(),
        groups: mapping(mappings, "groups", &at, problems),
        uid: Some(uid.text("claim").to_owned()).filter(|claim| !claim.is_empty()),
    }
}

/// A claim with its prefix, which must be said even if it is empty.
fn mapping(mappings: &Value, name: &str, at: &str, problems: &mut Problems) -> Option<Mapping> {
    let entry = mappings.field(name).filter(|entry| entry.as_object().is_some_and(|fields| !fields.is_empty()))?;
    let at = format!("{at}.{name}");
    problems.unknown(entry, &at, &["claim", "prefix", "expression"]);
    problems.expression(entry, "expression", &at);
    if !entry.has("expression") {
        if entry.text("claim").is_empty() {
            problems.add(format!("{at}.claim: is required"));
        } else if !entry.has("prefix") {
            problems.add(format!("{at}.prefix: is required where a claim is; it may be empty"));
        }
    }
    Some(Mapping { claim: entry.text("claim").to_owned(), prefix: entry.text("prefix").to_owned() })
}
