//! Tokens of other issuers (OpenID Connect), as an AuthenticationConfiguration names them. It is read once, at the start.

mod configuration;
mod key_set;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use configuration::Issuer;
pub use configuration::{Configuration, Mapping};
use key_set::KeySet;
use serde_json::Value;

use super::{
    Denied, Error,
    jws::{self, Claims},
    service_accounts::audiences,
    tokens::{Known, TokenAuthenticator},
};
use crate::{clock::Clock, context::User};

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
    async fn token(&self, token: &str, _: &[String]) -> Result<Option<Known>, Denied> {
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
    let username = &issuer.username;
    let Some(name) = claims.get(&username.claim).and_then(Value::as_str) else {
        return Err(format!("parse username claims {:?}: claim not present", username.claim));
    };
    // Whoever can choose an address must not be whoever has it.
    if username.claim == "email" && claims.get("email_verified").is_some_and(|verified| *verified != Value::Bool(true))
    {
        return Err("email not verified".into());
    }
    let groups = match issuer.groups.as_ref().map(|groups| (groups, claims.get(&groups.claim))) {
        None | Some((_, None | Some(Value::Null))) => Vec::new(),
        Some((groups, Some(Value::String(one)))) => vec![format!("{}{one}", groups.prefix)],
        Some((groups, Some(Value::Array(all)))) => {
            let texts = all.iter().map(|group| group.as_str().map(|text| format!("{}{text}", groups.prefix)));
            let problem = || format!("parse groups claim {:?}: not a list of texts", groups.claim);
            texts.collect::<Option<_>>().ok_or_else(problem)?
        }
        Some((groups, Some(_))) => return Err(format!("parse groups claim {:?}: not a list of texts", groups.claim)),
    };
    let uid = match &issuer.uid {
        Some(claim) => match claims.get(claim).and_then(Value::as_str) {
            Some(uid) => uid.to_owned(),
            None => return Err(format!("parse uid claim {claim:?}: claim not present")),
        },
        None => String::new(),
    };
    Ok(User { name: format!("{}{name}", username.prefix), uid, groups, extra: Vec::new() })
}

#[cfg(test)]
mod tests;
