//! The file that `--authentication-config` names: an AuthenticationConfiguration of apiserver.config.k8s.io.

use std::{fs, path::Path, sync::LazyLock};

use expressions::{Environment, ObjectType, Type};
use object_model::{codec::yaml, value::Fields};
use serde_json::Value;

use crate::{
    authentication::{Error, anonymous},
    expression::Expression,
};

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
    /// What must hold of the claims, and of the user made of them.
    pub claim_rules: Vec<Rule>,
    pub user_rules: Vec<Rule>,
    pub username: Mapping,
    pub groups: Option<Mapping>,
    pub uid: Option<Mapping>,
    /// Further attributes of the user, by key.
    pub extra: Vec<(String, Expression)>,
}

/// A claim that stands for something, and what is put before it; or an expression instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    pub claim: String,
    pub prefix: String,
    pub expression: Option<Expression>,
}

/// What must hold, and what is said if it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub expression: Expression,
    pub message: String,
}

/// What expressions about claims may use.
static CLAIMS: LazyLock<Environment> =
    LazyLock::new(|| Environment::kubernetes().with_variable("claims", Type::map(Type::String, Type::Dyn)));

/// The user, as expressions see it.
pub static USER: LazyLock<Type> = LazyLock::new(|| {
    let texts = || Type::list(Type::String);
    let extra = Type::map(Type::String, texts());
    let fields = [("username", Type::String), ("uid", Type::String), ("groups", texts()), ("extra", extra)];
    Type::Object(ObjectType::new("kubernetes.UserInfo", fields))
});

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
            for (i, condition) in entry.items("conditions").iter().enumerate() {
                problems.unknown(condition, &format!("anonymous.conditions[{i}]"), &["path"]);
            }
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

    /// A field that holds an expression about claims, if it is there.
    fn expression(&mut self, value: &Value, field: &str, at: &str, wanted: Option<&Type>) -> Option<Expression> {
        self.compiled(&CLAIMS, value.text(field), &format!("{at}.{field}"), wanted)
    }

    fn compiled(&mut self, by: &Environment, text: &str, at: &str, wanted: Option<&Type>) -> Option<Expression> {
        if text.is_empty() {
            return None;
        }
        Expression::compile(by, text, wanted).map_err(|why| self.add(format!("{at}: {why}"))).ok()
    }

    /// A claim and an expression exclude each other.
    fn one_of(&mut self, value: &Value, at: &str) {
        if value.has("claim") && value.has("expression") {
            self.add(format!("{at}: claim and expression can't both be set"));
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
    let (required, claim_rules) = claim_rules(entry, at, problems);
    let user_rules = user_rules(entry, at, problems);
    let mappings = entry.field("claimMappings").unwrap_or(&null);
    let at = format!("{at}.claimMappings");
    problems.unknown(mappings, &at, &["username", "groups", "uid", "extra"]);
    let extra = extra(mappings, &at, problems);
    let uid = mappings.field("uid").unwrap_or(&null);
    problems.unknown(uid, &format!("{at}.uid"), &["claim", "expression"]);
    problems.one_of(uid, &format!("{at}.uid"));
    let uid = Mapping {
        claim: uid.text("claim").to_owned(),
        prefix: String::new(),
        expression: problems.expression(uid, "expression", &format!("{at}.uid"), None),
    };
    let username = mapping(mappings, "username", &at, problems);
    if username.is_none() {
        problems.add(format!("{at}.username: is required"));
    }
    // Whoever can choose an address must not be whoever has it.
    let named_by = username.as_ref().and_then(|username| username.expression.as_ref());
    let rules = claim_rules.iter().map(|rule| &rule.expression);
    let mut others = rules.chain(extra.iter().map(|(_, expression)| expression)).chain(named_by);
    if named_by.is_some_and(|by| by.mentions("email")) && !others.any(|by| by.mentions("email_verified")) {
        problems.add(format!(
            "{at}.username.expression: claims.email_verified must be used in claimMappings.username.expression or \
             claimMappings.extra[*].valueExpression or claimValidationRules[*].expression when claims.email is used in \
             claimMappings.username.expression"
        ));
    }
    Issuer {
        url,
        discovery_url,
        certificate_authority: issuer.text("certificateAuthority").to_owned(),
        audiences,
        required,
        claim_rules,
        user_rules,
        username: username.unwrap_or_default(),
        groups: mapping(mappings, "groups", &at, problems),
        uid: Some(uid).filter(|uid| *uid != Mapping::default()),
        extra,
    }
}

/// Claims that must have a value, and expressions that must hold.
fn claim_rules(entry: &Value, at: &str, problems: &mut Problems) -> (Vec<(String, String)>, Vec<Rule>) {
    let (mut required, mut rules) = (Vec::new(), Vec::new());
    for (i, rule) in entry.items("claimValidationRules").iter().enumerate() {
        let at = format!("{at}.claimValidationRules[{i}]");
        problems.unknown(rule, &at, &["claim", "requiredValue", "expression", "message"]);
        problems.one_of(rule, &at);
        if let Some(expression) = problems.expression(rule, "expression", &at, Some(&Type::Bool)) {
            rules.push(Rule { expression, message: rule.text("message").to_owned() });
        } else if rule.text("expression").is_empty() {
            if rule.text("claim").is_empty() {
                problems.add(format!("{at}: claim or expression is required"));
            }
            required.push((rule.text("claim").to_owned(), rule.text("requiredValue").to_owned()));
        }
    }
    (required, rules)
}

fn user_rules(entry: &Value, at: &str, problems: &mut Problems) -> Vec<Rule> {
    let environment = Environment::kubernetes().with_variable("user", USER.clone());
    let mut rules = Vec::new();
    for (i, rule) in entry.items("userValidationRules").iter().enumerate() {
        problems.unknown(rule, &format!("{at}.userValidationRules[{i}]"), &["expression", "message"]);
        let at = format!("{at}.userValidationRules[{i}].expression");
        if rule.text("expression").is_empty() {
            problems.add(format!("{at}: Required value"));
        }
        let compiled = problems.compiled(&environment, rule.text("expression"), &at, Some(&Type::Bool));
        rules.extend(compiled.map(|expression| Rule { expression, message: rule.text("message").to_owned() }));
    }
    rules
}

fn extra(mappings: &Value, at: &str, problems: &mut Problems) -> Vec<(String, Expression)> {
    let mut all: Vec<(String, Expression)> = Vec::new();
    for (i, extra) in mappings.items("extra").iter().enumerate() {
        let (at, key) = (format!("{at}.extra[{i}]"), extra.text("key"));
        problems.unknown(extra, &at, &["key", "valueExpression"]);
        let reserved = |domain: &str| {
            ["k8s.io", "kubernetes.io"]
                .iter()
                .any(|own| domain.strip_suffix(own).is_some_and(|before| before.is_empty() || before.ends_with('.')))
        };
        match key.split_once('/') {
            None => problems.add(format!("{at}.key: {key:?} must be a domain, a slash and a path")),
            Some((domain, _)) if reserved(domain) => {
                problems.add(format!("{at}.key: {key:?}: k8s.io, kubernetes.io and their subdomains are reserved"));
            }
            Some(_) if key.to_lowercase() != key => problems.add(format!("{at}.key: {key:?} must be in lower case")),
            Some(_) if all.iter().any(|(known, _)| known == key) => {
                problems.add(format!("{at}.key: {key:?} is there twice"));
            }
            Some(_) => {}
        }
        if extra.text("valueExpression").is_empty() {
            problems.add(format!("{at}.valueExpression: Required value"));
        }
        let value = problems.expression(extra, "valueExpression", &at, None);
        all.extend(value.map(|value| (key.to_owned(), value)));
    }
    all
}

/// A claim with its prefix, which must be said even if it is empty.
fn mapping(mappings: &Value, name: &str, at: &str, problems: &mut Problems) -> Option<Mapping> {
    let entry = mappings.field(name).filter(|entry| entry.as_object().is_some_and(|fields| !fields.is_empty()))?;
    let at = format!("{at}.{name}");
    problems.unknown(entry, &at, &["claim", "prefix", "expression"]);
    problems.one_of(entry, &at);
    if entry.has("expression") && entry.has("prefix") {
        problems.add(format!("{at}.prefix: may not be specified when expression is set"));
    }
    let expression = problems.expression(entry, "expression", &at, None);
    if !entry.has("expression") {
        if entry.text("claim").is_empty() {
            problems.add(format!("{at}.claim: is required"));
        } else if !entry.has("prefix") {
            problems.add(format!("{at}.prefix: is required where a claim is; it may be empty"));
        }
    }
    Some(Mapping { claim: entry.text("claim").to_owned(), prefix: entry.text("prefix").to_owned(), expression })
}
