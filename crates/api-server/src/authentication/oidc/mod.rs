//! Tokens of other issuers (OpenID Connect), as an AuthenticationConfiguration names them. It is read once, at the start.

mod configuration;
mod key_set;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
pub use configuration::{Configuration, Mapping};
use configuration::{Issuer, Rule, USER};
use expressions::{Activation, Map, Type, Value as Computed};
use key_set::KeySet;
use serde_json::{Value, json};

use super::{
    Denied, Error,
    jws::{self, Claims},
    service_accounts::audiences,
    tokens::{Known, TokenAuthenticator},
};
use crate::{
    clock::Clock,
    context::{Annotations, User},
};

/// How far the issuer's clock may be ahead of ours.
const NOT_YET_LEEWAY: i64 = 300;

/// All issuers. A token belongs to the one that it names.
pub struct Issuers {
    all: Vec<(Issuer, KeySet)>,
    clock: Arc<dyn Clock>,
}

impl Issuers {
    /// `ours` issue the tokens of service accounts, and nobody else may say to be them.
    pub fn new(issuers: Vec<Issuer>, ours: &[String], clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let mut all = Vec::new();
        for issuer in issuers {
            if ours.contains(&issuer.url) {
                return Err(Error::Unusable {
                    what: format!("issuer {:?}", issuer.url),
                    reason: "it is the issuer of service account tokens".into(),
                });
            }
            let keys = KeySet::new(&issuer)?;
            all.push((issuer, keys));
        }
        Ok(Self { all, clock })
    }
}

#[async_trait]
impl TokenAuthenticator for Issuers {
    async fn token(&self, token: &str, _: &[String], _: &Annotations) -> Result<Option<Known>, Denied> {
        let Some(unverified) = jws::parse(token) else { return Ok(None) };
        let Some((issuer, keys)) = self.all.iter().find(|(issuer, _)| issuer.url == unverified.issuer()) else {
            return Ok(None);
        };
        let claims = keys.verify(token, &unverified.key_id).await.map_err(told)?;
        let now = self.clock.now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
        let until = good_at(&claims, now).map_err(told)?;
        let given = audiences(&claims);
        if !given.iter().any(|audience| issuer.audiences.contains(audience)) {
            return Err(told(format!("verify token: expected audience in {:?} got {given:?}", issuer.audiences)));
        }
        let user = user(issuer, &claims).map_err(told)?;
        Ok(Some(Known { until: Some(until), ..Known::plain(user) }))
    }
}

fn told(why: String) -> Denied {
    Denied(format!("oidc: {why}"))
}

/// When the token ends, if it is good now.
fn good_at(claims: &Claims, now: i64) -> Result<SystemTime, String> {
    let at = |name: &str| claims.get(name).and_then(Value::as_f64).map(|time| time as i64);
    let end = at("exp").ok_or("verify token: it does not say when it ends")?;
    if end <= now {
        return Err("verify token: token is expired".into());
    }
    if at("nbf").is_some_and(|from| now + NOT_YET_LEEWAY < from) {
        return Err("verify token: it is not valid yet".into());
    }
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default()))
}

/// The user that the claims stand for, by the issuer's rules.
fn user(issuer: &Issuer, claims: &Claims) -> Result<User, String> {
    for (claim, required) in &issuer.required {
        match claims.get(claim).and_then(Value::as_str) {
            Some(value) if value == required => {}
            Some(value) => {
                return Err(format!("required claim {claim} value does not match. Got = {value}, want = {required}"));
            }
            None => return Err(format!("required claim {claim} not present in ID token")),
        }
    }
    let computed = Activation::new().with("claims", Computed::Map(Map::Json(claims, Arc::new(Type::Dyn))));
    check(&issuer.claim_rules, &computed, "error evaluating claim validation expression")?;
    let user = User {
        name: name(&issuer.username, claims, &computed)?,
        uid: issuer.uid.as_ref().map_or(Ok(String::new()), |uid| uid_of(uid, claims, &computed))?,
        groups: issuer.groups.as_ref().map_or(Ok(Vec::new()), |groups| groups_of(groups, claims, &computed))?,
        extra: extra(issuer, &computed)?,
    };
    if !issuer.user_rules.is_empty() {
        let extra: serde_json::Map<_, _> =
            user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        let seen = json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": extra});
        let computed = Activation::new().with("user", Computed::typed(&seen, &USER));
        check(&issuer.user_rules, &computed, "error evaluating user info validation rule")?;
    }
    Ok(user)
}

fn check(rules: &[Rule], activation: &Activation<'_>, what: &str) -> Result<(), String> {
    for Rule { expression, message } in rules {
        let text = expression.text();
        match expression.holds(activation) {
            Ok(true) => {}
            Ok(false) => return Err(format!("{what}: validation expression '{text}' failed: {message}")),
            Err(why) => return Err(format!("{what}: expression '{text}' resulted in error: {why}")),
        }
    }
    Ok(())
}

/// One text, or several, or none.
fn texts(value: &Computed<'_>) -> Result<Vec<String>, String> {
    let text = |value: &Computed<'_>| match value {
        Computed::String(text) => Ok(text.to_string()),
        _ => Err("expression must return a string or a list of strings".to_owned()),
    };
    match value {
        Computed::Null => Ok(Vec::new()),
        Computed::List(list) => list.iter().map(|value| text(&value)).collect(),
        one => text(one).map(|text| Some(text).filter(|text| !text.is_empty()).into_iter().collect()),
    }
}

fn extra(issuer: &Issuer, activation: &Activation<'_>) -> Result<Vec<(String, Vec<String>)>, String> {
    let mut all = Vec::new();
    for (key, expression) in &issuer.extra {
        let failed = |why: String| format!("error evaluating extra claim expression: {}: {why}", expression.text());
        let values = expression.evaluate(activation).and_then(|value| texts(&value)).map_err(failed)?;
        if !values.is_empty() {
            all.push((key.clone(), values));
        }
    }
    Ok(all)
}

fn name(username: &Mapping, claims: &Claims, activation: &Activation<'_>) -> Result<String, String> {
    if let Some(expression) = &username.expression {
        let failed = |why: String| format!("error evaluating username claim expression: {why}");
        return match expression.evaluate(activation).map_err(failed)? {
            Computed::String(name) if name.is_empty() => {
                Err("empty username via CEL expression is not allowed".to_owned())
            }
            Computed::String(name) => Ok(name.to_string()),
            _ => Err(failed("username claim expression must return a string".to_owned())),
        };
    }
    let Some(name) = claims.get(&username.claim).and_then(Value::as_str) else {
        return Err(format!("parse username claims {:?}: claim not present", username.claim));
    };
    // Whoever can choose an address must not be whoever has it.
    if username.claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != Value::Bool(true))
    {
        return Err("email not verified".into());
    }
    Ok(format!("{}{name}", username.prefix))
}

fn groups_of(groups: &Mapping, claims: &Claims, activation: &Activation<'_>) -> Result<Vec<String>, String> {
    if let Some(expression) = &groups.expression {
        let failed = |why: String| format!("error evaluating group claim expression: {why}");
        return expression.evaluate(activation).and_then(|value| texts(&value)).map_err(failed);
    }
    let problem = || format!("parse groups claim {:?}: not a list of texts", groups.claim);
    match claims.get(&groups.claim) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![format!("{}{one}", groups.prefix)]),
        Some(Value::Array(all)) => {
            let texts = all.iter().map(|group| group.as_str().map(|text| format!("{}{text}", groups.prefix)));
            texts.collect::<Option<_>>().ok_or_else(problem)
        }
        Some(_) => Err(problem()),
    }
}

fn uid_of(uid: &Mapping, claims: &Claims, activation: &Activation<'_>) -> Result<String, String> {
    if let Some(expression) = &uid.expression {
        let failed = |why: String| format!("error evaluating uid claim expression: {why}");
        return match expression.evaluate(activation).map_err(failed)? {
            Computed::String(uid) => Ok(uid.to_string()),
            _ => Err(failed("uid claim expression must return a string".to_owned())),
        };
    }
    let claim = &uid.claim;
    match claims.get(claim).and_then(Value::as_str) {
        Some(uid) => Ok(uid.to_owned()),
        None => Err(format!("parse uid claim {claim:?}: claim not present")),
    }
}

#[cfg(test)]
mod tests;
