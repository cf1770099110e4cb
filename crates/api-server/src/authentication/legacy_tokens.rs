//! Tokens that live in Secrets of type `kubernetes.io/service-account-token`: without an end, and good as long as the Secret
//! holds the very same token.

use std::sync::Arc;

use async_trait::async_trait;
use object_model::{meta::Meta, value::Fields};
use serde_json::{Value, json};

use super::{
    Denied,
    bootstrap_tokens::{data, same},
    jws,
    live::Live,
    service_accounts::{Found, Reference, ServiceAccounts, user_name},
    tokens::{Known, TokenAuthenticator},
};
use crate::context::User;

const ISSUER: &str = "kubernetes/serviceaccount";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

pub struct LegacyTokens {
    accounts: Arc<ServiceAccounts>,
    live: Arc<Live>,
}

impl LegacyTokens {
    pub fn new(accounts: Arc<ServiceAccounts>, live: Arc<Live>) -> Self {
        Self { accounts, live }
    }
}

/// The token that belongs into a Secret of a service account.
pub fn issue(
    accounts: &ServiceAccounts,
    namespace: &str,
    account: &Reference,
    secret: &str,
) -> Result<String, jws::Error> {
    accounts.keys.signing.sign(&json!({
        "iss": ISSUER,
        "kubernetes.io/serviceaccount/namespace": namespace,
        "kubernetes.io/serviceaccount/secret.name": secret,
        "kubernetes.io/serviceaccount/service-account.name": account.name,
        "kubernetes.io/serviceaccount/service-account.uid": account.uid,
        "sub": user_name(namespace, &account.name),
    }))
}

#[async_trait]
impl TokenAuthenticator for LegacyTokens {
    async fn token(&self, token: &str, wanted: &[String]) -> Result<Option<Known>, Denied> {
        let Some(claims) = self.accounts.signed_by(token, |issuer| issuer == ISSUER)? else { return Ok(None) };
        // Such a token is for this server, and only for it.
        if !self.accounts.audiences.iter().any(|audience| wanted.contains(audience)) {
            return Err(Denied::new("the token is for this server only"));
        }
        let claim = |name: &str, told: &str| {
            let text = claims.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            if text.is_empty() { Err(Denied(format!("{told} claim is missing"))) } else { Ok(text) }
        };
        let subject = claim("sub", "sub")?;
        let namespace = claim("kubernetes.io/serviceaccount/namespace", "namespace")?;
        let secret = claim("kubernetes.io/serviceaccount/secret.name", "secretName")?;
        let name = claim("kubernetes.io/serviceaccount/service-account.name", "serviceAccountName")?;
        let uid = claim("kubernetes.io/serviceaccount/service-account.uid", "serviceAccountUID")?;
        if subject != user_name(&namespace, &name) {
            return Err(Denied::new("sub claim is invalid"));
        }
        let mut rests_on = Vec::new();
        let (live, of) = (&self.live, format!("{namespace}/{name}"));
        let invalidated = || Denied::new("Token has been invalidated");
        let entry = live.relied_on(&live.secrets, &format!("{namespace}/{secret}"), &mut rests_on).await;
        let held = entry.ok_or_else(invalidated)?.object("Secret");
        if Meta::of(&held).is_deleting() {
            return Err(invalidated());
        }
        if !same(data(&held, "token").as_bytes(), token.as_bytes()) {
            return Err(Denied::new("Token does not match server's copy"));
        }
        let Some(entry) = live.relied_on(&live.service_accounts, &of, &mut rests_on).await else {
            return Err(Denied(format!("serviceaccounts {name:?} not found")));
        };
        let found = Found::read(&entry);
        if found.deleted.is_some() {
            return Err(Denied(format!("ServiceAccount {of} has been deleted")));
        }
        if found.uid != uid {
            return Err(Denied(format!("ServiceAccount UID ({}) does not match claim ({uid})", found.uid)));
        }
        if !held.text_at(&["metadata", "labels", INVALID_SINCE]).is_empty() {
            return Err(Denied(format!(
                "the token in secret {namespace}/{secret} for service account {of} has been marked invalid; use tokens of \
                 the TokenRequest API, or remove the label {INVALID_SINCE} from the secret"
            )));
        }
        let user = User { uid, ..User::service_account(&namespace, &name) };
        Ok(Some(Known { rests_on, ..Known::plain(user) }))
    }
}
