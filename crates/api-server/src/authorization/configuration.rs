//! Which judges there are and in which order: by a list of modes, or by an AuthorizationConfiguration file.

use std::{collections::HashSet, fs, path::Path, time::Duration};

use object_model::{codec::yaml, names, time, value::Fields};
use serde_json::Value;

use super::{
    AlwaysAllow, AlwaysDeny, Authorization, Authorizer, Masters, conditions,
    node::NodeAuthorizer,
    rbac::Rbac,
    webhook::{Settings, Version, Webhook},
};
use crate::{outbound, watch_cache::WatchCache};

const MODES: &str = "AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook";
const MOST_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("the authorization configuration is not valid:\n{}", .0.join("\n"))]
    Invalid(Vec<String>),
    #[error("cannot use the webhook {name:?}: {source}")]
    Webhook { name: String, source: outbound::Error },
}

/// One judge.
pub enum Mode {
    AlwaysAllow,
    AlwaysDeny,
    Node,
    Rbac,
    Webhook(Box<Webhook>),
}

/// All judges, in order.
pub struct Configuration(Vec<Mode>);

impl Default for Configuration {
    /// As clusters are usually set up.
    fn default() -> Self {
        Self(vec![Mode::Node, Mode::Rbac])
    }
}

impl Configuration {
    /// From the names of modes; `webhook` is the kubeconfig of the one that the mode `Webhook` is.
    pub fn from_modes(modes: &[String], webhook: Option<(&Path, Settings)>) -> Result<Self, Error> {
        let mut problems = Vec::new();
        let mut seen = HashSet::new();
        let mut all = Vec::new();
        if webhook.is_some() && !modes.iter().any(|mode| mode == "Webhook") {
            problems.push("a webhook is configured, but the mode Webhook is not in the list".to_owned());
        }
        for mode in modes {
            if !seen.insert(mode) {
                problems.push(format!("the mode {mode} is in the list twice"));
            }
            match (plain(mode), mode.as_str(), &webhook) {
                (Some(mode), ..) => all.push(mode),
                (None, "Webhook", Some((path, settings))) => {
                    let failed = |source| Error::Webhook { name: mode.clone(), source };
                    all.push(Mode::Webhook(Box::new(Webhook::new(path, settings.clone()).map_err(failed)?)));
                }
                (None, "Webhook", None) => {
                    problems.push("the mode Webhook needs a kubeconfig of the webhook".to_owned())
                }
                (None, other, _) => {
                    problems.push(format!("there is no authorization mode {other:?}; there are {MODES}"))
                }
            }
        }
        if all.is_empty() && problems.is_empty() {
            problems.push("at least one authorization mode is needed".to_owned());
        }
        if problems.is_empty() { Ok(Self(all)) } else { Err(Error::Invalid(problems)) }
    }

    /// From a file.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(|source| Error::File { path: path.display().to_string(), source })?;
        let config = yaml::read(&text).map_err(|e| Error::Invalid(vec![e.to_string()]))?;
        Self::read(&config)
    }

    fn read(config: &Value) -> Result<Self, Error> {
        let mut problems = Vec::new();
        let version = config.text("apiVersion");
        if config.text("kind") != "AuthorizationConfiguration"
            || !matches!(version, "apiserver.config.k8s.io/v1" | "apiserver.config.k8s.io/v1beta1")
        {
            problems.push("it must be of kind AuthorizationConfiguration in apiserver.config.k8s.io/v1".to_owned());
        }
        unknown_fields(config, &["apiVersion", "kind", "authorizers"], "", &mut problems);
        if config.items("authorizers").is_empty() {
            problems.push("authorizers: Required value: at least one authorization mode must be defined".to_owned());
        }
        let (mut seen, mut named) = (HashSet::new(), HashSet::new());
        let mut drafts = Vec::new();
        for (position, entry) in config.items("authorizers").iter().enumerate() {
            let at = format!("authorizers[{position}]");
            let (kind, name) = (entry.text("type"), entry.text("name"));
            check_name(name, &mut named, &at, &mut problems);
            unknown_fields(entry, &["type", "name", "webhook"], &format!("{at}."), &mut problems);
            if !seen.insert(kind) && kind != "Webhook" {
                problems.push(format!("{at}.type: Duplicate value: {kind:?}"));
            }
            match (plain(kind), kind, entry.object("webhook")) {
                (Some(mode), _, None) => drafts.push((name, Draft::Mode(mode))),
                (Some(_), ..) => problems.push(format!("{at}.webhook: may only be specified when type=Webhook")),
                (None, "Webhook", Some(webhook)) => drafts.push((name, Draft::read(webhook, &at, &mut problems))),
                (None, "Webhook", None) => {
                    problems.push(format!("{at}.webhook: Required value: required when type=Webhook"));
                }
                (None, ..) => {
                    problems.push(format!("{at}.type: Unsupported value: {kind:?}: supported values: {MODES}"));
                }
            }
        }
        if !problems.is_empty() {
            return Err(Error::Invalid(problems));
        }
        drafts.into_iter().map(|(name, draft)| draft.mode(name)).collect::<Result<_, _>>().map(Self)
    }

    /// The judges. Members of `system:masters` come before all of them.
    pub fn judges(self, cache: &WatchCache, rbac: &Rbac) -> Authorization {
        let judge = |mode| match mode {
            Mode::AlwaysAllow => Box::new(AlwaysAllow) as Box<dyn Authorizer>,
            Mode::AlwaysDeny => Box::new(AlwaysDeny),
            Mode::Node => Box::new(NodeAuthorizer::new(cache)),
            Mode::Rbac => Box::new(rbac.clone()),
            Mode::Webhook(webhook) => webhook,
        };
        let masters: Box<dyn Authorizer> = Box::new(Masters);
        Authorization::new(std::iter::once(masters).chain(self.0.into_iter().map(judge)).collect())
    }
}

/// A mode that needs nothing but its name.
fn plain(name: &str) -> Option<Mode> {
    match name {
        "AlwaysAllow" => Some(Mode::AlwaysAllow),
        "AlwaysDeny" => Some(Mode::AlwaysDeny),
        "Node" => Some(Mode::Node),
        "RBAC" => Some(Mode::Rbac),
        _ => None,
    }
}

fn unknown_fields(value: &Value, known: &[&str], at: &str, problems: &mut Vec<String>) {
    let fields = value.as_object().into_iter().flatten();
    problems
        .extend(fields.filter(|(f, _)| !known.contains(&f.as_str())).map(|(f, _)| format!("unknown field {at}{f}")));
}

fn check_name<'a>(name: &'a str, named: &mut HashSet<&'a str>, at: &str, problems: &mut Vec<String>) {
    if name.is_empty() {
        problems.push(format!("{at}.name: Required value"));
    } else if !named.insert(name) {
        problems.push(format!("{at}.name: Duplicate value: {name:?}"));
    } else if let [first, ..] = names::dns_subdomain(name).as_slice() {
        problems.push(format!("{at}.name: Invalid value: {name:?}: authorizer name is invalid: {first}"));
    }
}

/// A mode that the file asks for. Files that it names are opened only when all of it is valid.
enum Draft {
    Mode(Mode),
    Webhook { kubeconfig: String, settings: Settings },
}

const WEBHOOK_FIELDS: &[&str] = &[
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];

impl Draft {
    fn mode(self, name: &str) -> Result<Mode, Error> {
        match self {
            Self::Mode(mode) => Ok(mode),
            Self::Webhook { kubeconfig, settings } => {
                let failed = |source| Error::Webhook { name: name.to_owned(), source };
                let webhook = Webhook::new(Path::new(&kubeconfig), settings).map_err(failed)?;
                Ok(Mode::Webhook(Box::new(webhook)))
            }
        }
    }

    fn read(webhook: &Value, at: &str, problems: &mut Vec<String>) -> Self {
        unknown_fields(webhook, WEBHOOK_FIELDS, &format!("{at}.webhook."), problems);
        let mut problem = |field: &str, what: String| problems.push(format!("{at}.{field}: {what}"));
        let defaults = Settings::default();
        let mut time = |field: &str, default: Option<Duration>| match webhook.text(field) {
            "" => {
                if default.is_none() {
                    problem(field, "Required value".into());
                }
                default
            }
            text => match time::Duration::parse(text) {
                Ok(time) if time.nanos() > 0 => Some(time.to_std()),
                _ => {
                    problem(field, format!("Invalid value: {text:?}: must be > 0s"));
                    None
                }
            },
        };
        let authorized_ttl = time("authorizedTTL", defaults.authorized_ttl);
        let unauthorized_ttl = time("unauthorizedTTL", defaults.unauthorized_ttl);
        let timeout = time("timeout", None).unwrap_or(defaults.timeout);
        if timeout > MOST_TIMEOUT {
            problem("timeout", "Invalid value: must be > 0s and <= 30s".into());
        }
        let version = match webhook.text("subjectAccessReviewVersion") {
            "v1" => Version::V1,
            "v1beta1" => Version::V1Beta1,
            other => {
                problem(
                    "subjectAccessReviewVersion",
                    format!("Unsupported value: {other:?}: supported values: v1, v1beta1"),
                );
                Version::V1
            }
        };
        let policy = webhook.text("failurePolicy");
        if !matches!(policy, "NoOpinion" | "Deny") {
            problem("failurePolicy", format!("Unsupported value: {policy:?}: supported values: NoOpinion, Deny"));
        }
        let info = webhook.field("connectionInfo").unwrap_or(&Value::Null);
        let kubeconfig = info.text("kubeConfigFile").to_owned();
        match info.text("type") {
            "KubeConfigFile" if kubeconfig.is_empty() => {
                problem("connectionInfo.kubeConfigFile", "Required value".into())
            }
            "KubeConfigFile" if !Path::new(&kubeconfig).is_absolute() => {
                let what = format!("Invalid value: {kubeconfig:?}: must be an absolute path");
                problem("connectionInfo.kubeConfigFile", what);
            }
            "KubeConfigFile" => {}
            other => {
                let what = format!("Unsupported value: {other:?}: ferry runs in no pod, so name a KubeConfigFile");
                problem("connectionInfo.type", what);
            }
        }
        let conditions = conditions::read(webhook, at, problems);
        let kept = |field: &str, ttl| if webhook.flag(field) == Some(false) { None } else { ttl };
        let settings = Settings {
            authorized_ttl: kept("cacheAuthorizedRequests", authorized_ttl),
            unauthorized_ttl: kept("cacheUnauthorizedRequests", unauthorized_ttl),
            timeout,
            version,
            deny_on_failure: policy == "Deny",
            conditions,
        };
        Self::Webhook { kubeconfig, settings }
    }
}

#[cfg(test)]
mod tests;
