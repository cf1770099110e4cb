//! Whether a user may do what is asked.
//!
//! Every request is put to the judges of [`Authorization`] in order, in the form of [`Attributes`]; so are the questions of
//! access reviews and of admission plugins. Decisions come from memory: [`rbac`] and [`node`] keep indexes that follow the
//! watch cache. Only a [`webhook`] is waited for. Components in this process are judged like everybody else.

mod attributes;
mod conditions;
pub mod configuration;
mod follower;
pub mod node;
pub mod rbac;
pub mod webhook;

use std::sync::Arc;

use async_trait::async_trait;
pub use attributes::{Attributes, Selectors};
use object_model::{identity::GroupResource, status::Status};
use rbac::Rule;

use crate::context::User;

/// Members may do everything, whatever the policy says.
pub const MASTERS: &str = "system:masters";
const AUDIT_DECISION: &str = "authorization.k8s.io/decision";
const AUDIT_REASON: &str = "authorization.k8s.io/reason";

/// What a judge says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    /// Whatever judges after this one would say.
    Deny,
    #[default]
    NoOpinion,
}

/// What was decided, and why. Reasons are told to whoever is refused, to access reviews and to the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    reason: Option<Arc<str>>,
    /// What went wrong on the way, if anything did.
    pub error: Option<String>,
}

impl Decision {
    pub fn allow(reason: impl Into<Arc<str>>) -> Self {
        Self { verdict: Verdict::Allow, reason: Some(reason.into()), error: None }
    }

    pub fn deny(reason: impl Into<Arc<str>>) -> Self {
        Self { verdict: Verdict::Deny, reason: Some(reason.into()), error: None }
    }

    pub fn no_opinion() -> Self {
        Self::default()
    }

    pub fn no_opinion_because(reason: impl Into<Arc<str>>) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }

    pub fn is_allowed(&self) -> bool {
        self.verdict == Verdict::Allow
    }

    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }

    /// Lets a request pass, or refuses it in Kubernetes' words.
    pub fn permit(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match (self.verdict, &self.error) {
            (Verdict::Allow, _) => Ok(()),
            (_, Some(error)) => Err(Status::internal(error)),
            _ => Err(refusal(attributes, self.reason())),
        }
    }

    /// What the audit log is told.
    pub fn annotations(&self) -> Vec<(&'static str, &str)> {
        let told = |decision| vec![(AUDIT_DECISION, decision), (AUDIT_REASON, self.reason())];
        match (self.verdict, &self.error) {
            (Verdict::Allow, _) => told("allow"),
            (_, Some(_)) => vec![(AUDIT_REASON, "internal error")],
            _ => told("forbid"),
        }
    }
}

/// What a user may do, as far as it can be listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub rules: Vec<Rule>,
    /// There may be more that the user may do.
    pub incomplete: bool,
    pub errors: Vec<String>,
}

impl Rules {
    /// What went wrong, as one text.
    pub fn error(&self) -> Option<String> {
        aggregate(self.errors.clone())
    }
}

/// One judge.
#[async_trait]
pub trait Authorizer: Send + Sync {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision;

    /// What this judge lets a user do in a namespace.
    fn rules(&self, user: &User, namespace: &str) -> Rules;
}

/// All judges, in order: the first opinion counts, and without one the answer is no.
pub struct Authorization(Vec<Box<dyn Authorizer>>);

impl Authorization {
    pub fn new(judges: Vec<Box<dyn Authorizer>>) -> Self {
        Self(judges)
    }

    /// The common verdict. Without an opinion, everybody's reasons and errors are in it.
    pub async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for judge in &self.0 {
            let decision = judge.decide(attributes).await;
            if decision.verdict != Verdict::NoOpinion {
                return decision;
            }
            reasons.extend(decision.reason.filter(|reason| !reason.is_empty()));
            errors.extend(decision.error);
        }
        Decision {
            verdict: Verdict::NoOpinion,
            reason: (!reasons.is_empty()).then(|| reasons.join("\n").into()),
            error: aggregate(errors),
        }
    }

    /// Everything that can be said of what a user may do in a namespace.
    pub fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut all = Rules::default();
        for judge in &self.0 {
            let rules = judge.rules(user, namespace);
            all.rules.extend(rules.rules);
            all.incomplete |= rules.incomplete;
            all.errors.extend(rules.errors);
        }
        all
    }
}

/// Several errors as one text, the way Kubernetes writes them: each once, in brackets if there are more than one.
fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut distinct: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
    }
    match distinct.len() {
        0 => None,
        1 => distinct.pop(),
        _ => Some(format!("[{}]", distinct.join(", "))),
    }
}

/// Members of `system:masters` may do everything, so that a broken policy can be repaired.
pub struct Masters;

#[async_trait]
impl Authorizer for Masters {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        match attributes.user.is_in(MASTERS) {
            true => Decision { verdict: Verdict::Allow, ..Decision::default() },
            false => Decision::no_opinion(),
        }
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

/// Everybody may do everything: the mode `AlwaysAllow`.
pub struct AlwaysAllow;

#[async_trait]
impl Authorizer for AlwaysAllow {
    async fn decide(&self, _: &Attributes<'_>) -> Decision {
        Decision { verdict: Verdict::Allow, ..Decision::default() }
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules { rules: Rule::everything().into(), ..Rules::default() }
    }
}

/// Nobody may do anything: the mode `AlwaysDeny`.
pub struct AlwaysDeny;

#[async_trait]
impl Authorizer for AlwaysDeny {
    async fn decide(&self, _: &Attributes<'_>) -> Decision {
        Decision::no_opinion_because("Everything is forbidden.")
    }

    fn rules(&self, _: &User, _: &str) -> Rules {
        Rules::default()
    }
}

pub(crate) fn refusal(attributes: &Attributes<'_>, why: &str) -> Status {
    let Attributes { user, verb, group, resource, namespace, .. } = attributes;
    let because = if why.is_empty() { String::new() } else { format!(": {why}") };
    if !attributes.is_resource {
        let message = format!("User {:?} cannot {verb} path {:?}{because}", user.name, attributes.path);
        return Status::forbidden(&GroupResource::default(), "", message);
    }
    let place = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let combined = attributes.combined_resource();
    let message =
        format!("User {:?} cannot {verb} resource {combined:?} in API group {group:?} {place}{because}", user.name);
    Status::forbidden(&GroupResource::new(*group, *resource), &attributes.name, message)
}

#[cfg(test)]
mod tests;
