//! A judge outside of this process: it is sent a SubjectAccessReview and answers with its status.
//!
//! Answers are remembered for a while, those that allow and those that do not for times of their own.

mod cache;

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use cache::Cache;
use hyper::StatusCode;
use object_model::{selector::Operator, value::Fields};
use serde_json::{Map, Value, json};

use super::{Attributes, Authorizer, Decision, Rules, Verdict, conditions};
use crate::{
    context::User,
    expression::Expression,
    outbound::{self, Client, Peer},
};

/// How often an answer is asked for again that says "not now", and after how long.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// A question with more text than this is not remembered.
const CACHED_BYTES: usize = 10_000;

/// How a webhook is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long "yes" is remembered; `None` not at all.
    pub authorized_ttl: Option<Duration>,
    /// How long everything else is remembered.
    pub unauthorized_ttl: Option<Duration>,
    pub timeout: Duration,
    pub version: Version,
    /// Is a request refused that the webhook could not be asked about? Otherwise the next judge is.
    pub deny_on_failure: bool,
    /// It is asked only where all of them hold.
    pub conditions: Vec<Expression>,
}

/// The version of the reviews it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V1,
    V1Beta1,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            authorized_ttl: Some(Duration::from_secs(300)),
            unauthorized_ttl: Some(Duration::from_secs(30)),
            timeout: Duration::from_secs(30),
            version: Version::V1,
            deny_on_failure: false,
            conditions: Vec::new(),
        }
    }
}

pub struct Webhook {
    client: Client,
    settings: Settings,
    cache: Mutex<Cache<Answer>>,
}

/// The status of a review.
#[derive(Clone, Debug)]
struct Answer {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl Webhook {
    /// Fails if the kubeconfig, or anything it names, cannot be used.
    pub fn new(kubeconfig: &Path, settings: Settings) -> Result<Self, outbound::Error> {
        let client = Client::new(&Peer::from_kubeconfig(kubeconfig)?, settings.timeout)?;
        Ok(Self { client, settings, cache: Mutex::default() })
    }

    async fn ask(&self, spec: &Value) -> Result<Answer, String> {
        let version = match self.settings.version {
            Version::V1 => "authorization.k8s.io/v1",
            Version::V1Beta1 => "authorization.k8s.io/v1beta1",
        };
        let review = json!({"kind": "SubjectAccessReview", "apiVersion": version, "metadata": {}, "spec": spec});
        let mut pause = PAUSE;
        for left in (0..ATTEMPTS).rev() {
            let answer = self.client.post_json("", review.to_string()).await.map_err(|e| e.to_string())?;
            let later = matches!(
                answer.code,
                StatusCode::INTERNAL_SERVER_ERROR | StatusCode::TOO_MANY_REQUESTS | StatusCode::GATEWAY_TIMEOUT
            );
            if later && left > 0 {
                tokio::time::sleep(pause).await;
                pause = pause * 3 / 2;
                continue;
            }
            if !answer.code.is_success() {
                return Err(format!("the authorization webhook answered {}", answer.code));
            }
            let review: Value = serde_json::from_slice(&answer.body)
                .map_err(|e| format!("the authorization webhook did not answer with a review: {e}"))?;
            let status = review.field("status").unwrap_or(&Value::Null);
            return Ok(Answer {
                allowed: status.flag("allowed") == Some(true),
                denied: status.flag("denied") == Some(true),
                reason: status.text("reason").to_owned(),
            });
        }
        Err("the authorization webhook did not answer".to_owned())
    }

    fn remember(&self, key: String, answer: &Answer) {
        let ttl = if answer.allowed { self.settings.authorized_ttl } else { self.settings.unauthorized_ttl };
        let Some(ttl) = ttl.filter(|_| key.len() < CACHED_BYTES) else { return };
        let now = Instant::now();
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(key, answer.clone(), now, now + ttl);
    }

    fn remembered(&self, key: &str) -> Option<Answer> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(key, Instant::now())
    }
}

#[async_trait]
impl Authorizer for Webhook {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let failed = |error: String| {
            tracing::warn!(%error, "cannot ask the authorization webhook");
            let verdict = if self.settings.deny_on_failure { Verdict::Deny } else { Verdict::NoOpinion };
            Decision { verdict, error: Some(error), ..Decision::default() }
        };
        if !self.settings.conditions.is_empty() {
            match conditions::hold(&self.settings.conditions, &spec(attributes, Version::V1)) {
                Ok(true) => {}
                Ok(false) => return Decision::default(),
                Err(error) => return failed(error),
            }
        }
        let spec = spec(attributes, self.settings.version);
        let key = spec.to_string();
        let answer = match self.remembered(&key) {
            Some(answer) => answer,
            None => match self.ask(&spec).await {
                Ok(answer) => {
                    self.remember(key, &answer);
                    answer
                }
                Err(error) => return failed(error),
            },
        };
        match (answer.denied, answer.allowed) {
            (true, true) => {
                let error = "webhook subject access review returned both allow and deny response".to_owned();
                Decision { error: Some(error), ..Decision::deny(answer.reason) }
            }
            (true, false) => Decision::deny(answer.reason),
            (false, true) => Decision::allow(answer.reason),
            (false, false) => Decision::no_opinion_because(answer.reason),
        }
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        let error = "webhook authorizer does not support user rule resolution".to_owned();
        Rules { incomplete: true, errors: vec![error], ..Rules::default() }
    }
}

/// The question as a review asks it.
fn spec(attributes: &Attributes<'_>, version: Version) -> Value {
    let Attributes { user, verb, .. } = attributes;
    let mut spec = Map::new();
    if attributes.is_resource {
        let mut asked = Map::new();
        for (field, text) in [
            ("namespace", attributes.namespace),
            ("verb", verb),
            ("group", attributes.group),
            ("version", attributes.version),
            ("resource", attributes.resource),
            ("subresource", attributes.subresource),
            ("name", &attributes.name),
        ] {
            if !text.is_empty() {
                asked.insert(field.into(), text.into());
            }
        }
        for (field, parts) in
            [("fieldSelector", field_selector(attributes)), ("labelSelector", label_selector(attributes))]
        {
            if !parts.is_empty() {
                asked.insert(field.into(), json!({"requirements": parts}));
            }
        }
        spec.insert("resourceAttributes".into(), asked.into());
    } else {
        spec.insert("nonResourceAttributes".into(), json!({"path": attributes.path, "verb": verb}));
    }
    let groups = if version == Version::V1 { "groups" } else { "group" };
    for (field, text) in [("user", &user.name), ("uid", &user.uid)] {
        if !text.is_empty() {
            spec.insert(field.into(), text.as_str().into());
        }
    }
    if !user.groups.is_empty() {
        spec.insert(groups.into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        let extra: Map<String, Value> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        spec.insert("extra".into(), extra.into());
    }
    spec.into()
}

fn field_selector(attributes: &Attributes<'_>) -> Vec<Value> {
    let operator = |equal: bool| if equal { "In" } else { "NotIn" };
    let terms = attributes.selectors.fields.iter();
    terms.map(|t| json!({"key": t.field, "operator": operator(t.equal), "values": [t.value]})).collect()
}

/// What the API has no word for is left out, which makes the question a larger one.
fn label_selector(attributes: &Attributes<'_>) -> Vec<Value> {
    let requirements = attributes.selectors.labels.iter().filter_map(|requirement| {
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
            Operator::NotEquals | Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let values: Vec<&str> = requirement.values().collect();
        Some(match values.is_empty() {
            true => json!({"key": requirement.key(), "operator": operator}),
            false => json!({"key": requirement.key(), "operator": operator, "values": values}),
        })
    });
    requirements.collect()
}

#[cfg(test)]
mod tests;
