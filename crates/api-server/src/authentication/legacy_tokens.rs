//! Tokens that live in Secrets of type `kubernetes.io/service-account-token`: without an end, and good as long as the Secret
//! holds the very same token.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use hyper::{Method, StatusCode};
use object_model::{meta::Meta, time::Time, value::Fields};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    Denied,
    bootstrap_tokens::{data, same},
    jws,
    live::Live,
    service_accounts::{Found, Reference, ServiceAccounts, user_name},
    tokens::{Known, TokenAuthenticator},
};
use crate::{
    Server, bootstrap,
    clock::Clock,
    context::{Annotations, User},
};

const ISSUER: &str = "kubernetes/serviceaccount";
/// Says in the audit log whose token without an end it was.
pub(super) const LEGACY: &str = "authentication.k8s.io/legacy-token";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";
/// The label with the day on which the token was used last.
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const DAY: Duration = Duration::from_secs(24 * 3600);
/// More uses are noted the next time.
const BACKLOG: usize = 64;

pub struct LegacyTokens {
    accounts: Arc<ServiceAccounts>,
    live: Arc<Live>,
    clock: Arc<dyn Clock>,
    uses: mpsc::Sender<Use>,
}

/// The first use of a token on a day.
pub struct Use {
    namespace: String,
    secret: String,
    day: String,
}

impl LegacyTokens {
    pub fn new(accounts: Arc<ServiceAccounts>, live: Arc<Live>, clock: Arc<dyn Clock>) -> (Self, mpsc::Receiver<Use>) {
        let (uses, noted) = mpsc::channel(BACKLOG);
        (Self { accounts, live, clock, uses }, noted)
    }

    fn used(&self, held: &Value) {
        let now = self.clock.now();
        let day = |at| Time::from(at).to_seconds().to_string().chars().take("2026-01-01".len()).collect::<String>();
        let (today, last) = (day(now), held.text_at(&["metadata", "labels", LAST_USED]));
        // The clock of another server may be a little ahead.
        if last != today && last != day(now + DAY) {
            let meta = Meta::of(held);
            let (namespace, secret) = (meta.namespace().to_owned(), meta.name().to_owned());
            let _ = self.uses.try_send(Use { namespace, secret, day: today });
        }
    }
}

/// Writes into Secrets on which day their tokens were used last.
pub async fn note(server: Weak<Server>, mut uses: mpsc::Receiver<Use>) {
    let user = bootstrap::own_user();
    while let Some(Use { namespace, secret, day }) = uses.recv().await {
        let Some(server) = server.upgrade() else { return };
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{secret}");
        let (code, mut held) = server.exchange(&user, Method::GET, &path, &Value::Null).await;
        if code == StatusCode::OK && held.text_at(&["metadata", "labels", LAST_USED]) != day {
            held["metadata"]["labels"][LAST_USED] = day.into();
            let (code, answer) = server.exchange(&user, Method::PUT, &path, &held).await;
            if !code.is_success() {
                tracing::debug!(problem = %answer["message"], path, "cannot note that a token was used");
            }
        }
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
    async fn token(&self, token: &str, wanted: &[String], remarks: &Annotations) -> Result<Option<Known>, Denied> {
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
        remarks.add(LEGACY, &subject);
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
            remarks.add("authentication.k8s.io/legacy-token-invalidated", &format!("{secret}/{namespace}"));
            self.used(&held);
            return Err(Denied(format!(
                "the token in secret {namespace}/{secret} for service account {of} has been marked invalid; use tokens of \
                 the TokenRequest API, or remove the label {INVALID_SINCE} from the secret"
            )));
        }
        let listed = entry.object("ServiceAccount").items("secrets").iter().any(|held| held.text("name") == secret);
        let made = if listed { "autogenerated" } else { "manual" };
        remarks.add(&format!("{LEGACY}-{made}-secret"), &secret);
        self.used(&held);
        let user = User { uid, ..User::service_account(&namespace, &name) };
        Ok(Some(Known { rests_on, ..Known::plain(user) }))
    }
}
