//! Tokens of service accounts: issued on request, bound to what they are for, and good only while that exists.
//!
//! The documents by which others verify them (OpenID discovery and the key set) are here too.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use object_model::{meta::Meta, time::Time, value::Fields};
use serde_json::{Value, json};

use super::{
    CREDENTIAL_ID, Denied, Error, Settings,
    jws::{self, Claims},
    keys::Keys,
    legacy_tokens::LEGACY,
    live::Live,
    tokens::{Known, RestsOn, TokenAuthenticator},
};
use crate::{
    clock::Clock,
    context::{Annotations, User},
    watch_cache::{Entry, ResourceCache},
};

/// How far the clocks of two machines may be apart, and how long something may be deleted already.
const LEEWAY: i64 = 60;
/// What the node agent asks for in the name of pods that say nothing else.
const USUAL_SECONDS: i64 = 3607;
/// How long such a token lives, for programs that read theirs only once.
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;
const USER_PREFIX: &str = "system:serviceaccount:";
/// Says on which node the pod of a token is.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A name with the uid of the object that has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

impl Reference {
    pub fn of(object: &Value) -> Self {
        let meta = Meta::of(object);
        Self { name: meta.name().to_owned(), uid: meta.uid().to_owned() }
    }

    fn claimed(claims: &Value, name: &str) -> Option<Self> {
        let claim = claims.field(name).filter(|claim| claim.is_object())?;
        Some(Self { name: claim.text("name").to_owned(), uid: claim.text("uid").to_owned() })
    }

    fn claim(&self) -> Value {
        let mut claim = json!({"name": self.name});
        if !self.uid.is_empty() {
            claim["uid"] = self.uid.as_str().into();
        }
        claim
    }
}

/// What a token is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub namespace: String,
    pub account: Reference,
    pub pod: Option<Reference>,
    pub secret: Option<Reference>,
    pub node: Option<Reference>,
    pub audiences: Vec<String>,
    pub seconds: i64,
}

/// A token, and what whoever comes with it is known by.
pub struct Issued {
    pub token: String,
    pub credential_id: String,
}

pub struct ServiceAccounts {
    pub issuers: Vec<String>,
    /// For whom tokens are that come with requests to this server.
    pub audiences: Vec<String>,
    pub max_seconds: Option<i64>,
    extend: bool,
    jwks_uri: Option<String>,
    pub keys: Keys,
    live: Arc<Live>,
    clock: Arc<dyn Clock>,
}

impl ServiceAccounts {
    pub fn new(settings: &Settings, live: Arc<Live>, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        let issuers = settings.service_account_issuers.clone();
        if issuers.first().is_none_or(String::is_empty) {
            let reason = "at least one issuer must be named".to_owned();
            return Err(Error::Unusable { what: "--service-account-issuer".into(), reason });
        }
        if settings.service_account_max_expiration.is_some_and(|most| most < Duration::from_secs(3600)) {
            let reason = "it must not be less than an hour".to_owned();
            return Err(Error::Unusable { what: "--service-account-max-token-expiration".into(), reason });
        }
        let audiences =
            if settings.api_audiences.is_empty() { issuers.clone() } else { settings.api_audiences.clone() };
        Ok(Self {
            issuers,
            audiences,
            max_seconds: settings.service_account_max_expiration.map(|d| d.as_secs().cast_signed()),
            extend: settings.service_account_extend_expiration,
            jwks_uri: settings.service_account_jwks_uri.clone(),
            keys: Keys::open(&settings.service_account_keys)?,
            live,
            clock,
        })
    }

    /// A token as it is wanted. That the objects exist is for the asker to check.
    pub fn issue(&self, wanted: &Wanted) -> Result<Issued, jws::Error> {
        let now = self.now();
        let usual = wanted.seconds == USUAL_SECONDS && wanted.audiences.iter().all(|a| self.audiences.contains(a));
        let extended = self.extend && usual && wanted.pod.is_some();
        let lifetime =
            if extended { self.max_seconds.unwrap_or(i64::MAX).min(EXTENDED_SECONDS) } else { wanted.seconds };
        let mut own = json!({"namespace": wanted.namespace, "serviceaccount": wanted.account.claim()});
        for (name, bound) in [("pod", &wanted.pod), ("secret", &wanted.secret), ("node", &wanted.node)] {
            if let Some(bound) = bound {
                own[name] = bound.claim();
            }
        }
        if extended {
            own["warnafter"] = (now + wanted.seconds).into();
        }
        let id = uuid::Uuid::new_v4().to_string();
        let token = self.keys.signing.sign(&json!({
            "aud": wanted.audiences,
            "exp": now + lifetime,
            "iat": now,
            "iss": self.issuers[0],
            "jti": id,
            "kubernetes.io": own,
            "nbf": now,
            "sub": user_name(&wanted.namespace, &wanted.account.name),
        }))?;
        Ok(Issued { token, credential_id: credential_id(&id) })
    }

    /// `/.well-known/openid-configuration`
    pub fn discovery(&self, address: &str) -> Value {
        let here = || format!("https://{address}/openid/v1/jwks");
        json!({
            "issuer": self.issuers[0],
            "jwks_uri": self.jwks_uri.clone().unwrap_or_else(here),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.keys.algorithms(),
        })
    }

    /// The claims of a token that one of these issuers signed with one of our keys; `None` if it is not of them.
    pub(super) fn signed_by(&self, token: &str, is_issuer: impl Fn(&str) -> bool) -> Result<Option<Claims>, Denied> {
        let Some(unverified) = jws::parse(token).filter(|token| is_issuer(token.issuer())) else { return Ok(None) };
        let known = unverified.key_id.is_empty() || self.keys.public.iter().any(|key| key.id == unverified.key_id);
        let why = if known { "invalid signature" } else { "invalid signature, no keys found" };
        unverified.verify(&self.keys.public).map(Some).ok_or_else(|| Denied::new(why))
    }

    fn now(&self) -> i64 {
        Time::from(self.clock.now()).unix_seconds()
    }

    /// An object that a token names must be the one it names, and not deleted for longer than clocks differ.
    async fn require(
        &self,
        resource: &Arc<ResourceCache>,
        key: &str,
        kind: &str,
        wanted: &Reference,
        rests_on: &mut Vec<RestsOn>,
    ) -> Result<(), Denied> {
        let gone = || Denied::new("service account token has been invalidated");
        let entry = self.live.relied_on(resource, key, rests_on).await.ok_or_else(gone)?;
        let found = Found::read(&entry);
        if found.uid != wanted.uid {
            let (found, wanted) = (found.uid, &wanted.uid);
            let why = format!("{kind} UID ({found}) does not match service account {kind} ref claim ({wanted})");
            return Err(Denied(why));
        }
        if found.deleted_before(self.now() - LEEWAY) { Err(gone()) } else { Ok(()) }
    }

    async fn validate(&self, claims: &Claims) -> Result<Known, Denied> {
        let now = self.now();
        let until = times(claims, now)?;
        let own = claims.get("kubernetes.io").cloned().unwrap_or_default();
        let namespace = own.text("namespace");
        let account = Reference::claimed(&own, "serviceaccount").unwrap_or_default();
        let mut rests_on = Vec::new();
        let live = &self.live;
        let key = format!("{namespace}/{}", account.name);
        let Some(entry) = live.relied_on(&live.service_accounts, &key, &mut rests_on).await else {
            return Err(Denied(format!("serviceaccounts {:?} not found", account.name)));
        };
        let found = Found::read(&entry);
        if found.uid != account.uid {
            return Err(Denied(format!("service account UID ({}) does not match claim ({})", found.uid, account.uid)));
        }
        if found.deleted_before(now - LEEWAY) {
            return Err(Denied(format!("service account {key} has been deleted")));
        }
        if let Some(secret) = Reference::claimed(&own, "secret") {
            let key = format!("{namespace}/{}", secret.name);
            self.require(&live.secrets, &key, "secret", &secret, &mut rests_on).await?;
        }
        let (pod, node) = (Reference::claimed(&own, "pod"), Reference::claimed(&own, "node"));
        if let Some(pod) = &pod {
            let key = format!("{namespace}/{}", pod.name);
            self.require(&live.pods, &key, "pod", pod, &mut rests_on).await?;
        }
        // The node of a pod is told, but the token ends with the pod.
        if let (Some(node), None) = (&node, &pod) {
            self.require(&live.nodes, &node.name, "node", node, &mut rests_on).await?;
        }
        let id = claims.get("jti").and_then(Value::as_str).unwrap_or_default();
        let mut extra = Vec::new();
        let mut tell = |key: &str, value: String| extra.push((key.to_owned(), vec![value]));
        if !id.is_empty() {
            tell(CREDENTIAL_ID, credential_id(id));
        }
        if let Some(node) = node.filter(|node| !node.name.is_empty()) {
            tell(NODE_NAME, node.name);
            if !node.uid.is_empty() {
                tell("authentication.kubernetes.io/node-uid", node.uid);
            }
        }
        if let Some(pod) = pod {
            tell("authentication.kubernetes.io/pod-name", pod.name);
            tell("authentication.kubernetes.io/pod-uid", pod.uid);
        }
        let user = User { uid: account.uid, extra, ..User::service_account(namespace, &account.name) };
        Ok(Known { user, audiences: None, until: Some(until), rests_on })
    }
}

#[async_trait]
impl TokenAuthenticator for Arc<ServiceAccounts> {
    async fn token(&self, token: &str, wanted: &[String], remarks: &Annotations) -> Result<Option<Known>, Denied> {
        let is_ours = |issuer: &str| self.issuers.iter().any(|ours| ours == issuer);
        let Some(claims) = self.signed_by(token, is_ours)? else { return Ok(None) };
        let audiences = match audiences(&claims) {
            none if none.is_empty() => {
                remarks.add(LEGACY, subject(&claims));
                self.audiences.clone()
            }
            some => some,
        };
        if !audiences.iter().any(|audience| wanted.contains(audience)) {
            return Err(Denied(format!(
                "token audiences {} is invalid for the target audiences {}",
                listed(&audiences),
                listed(wanted)
            )));
        }
        let known = self.validate(&claims).await?;
        let warn_after = claims.get("kubernetes.io").and_then(|own| own.int("warnafter")).unwrap_or_default();
        let late = self.now().saturating_sub(warn_after);
        if warn_after != 0 && late > 0 {
            let of = subject(&claims);
            let text = format!("subject: {of}, seconds after warning threshold: {late}");
            remarks.add("authentication.k8s.io/stale-token", &text);
        }
        Ok(Some(Known { audiences: Some(audiences), ..known }))
    }
}

/// What is read of an object that a token rests on.
pub(super) struct Found {
    pub uid: String,
    pub deleted: Option<i64>,
}

impl Found {
    pub fn read(entry: &Entry) -> Self {
        let object = entry.object("");
        let meta = Meta::of(&object);
        let deleted = meta.get("deletionTimestamp").and_then(Value::as_str).and_then(|text| Time::parse(text).ok());
        Self { uid: meta.uid().to_owned(), deleted: deleted.map(|time| time.unix_seconds()) }
    }

    fn deleted_before(&self, time: i64) -> bool {
        self.deleted.is_some_and(|deleted| deleted < time)
    }
}

/// The user that a service account acts as.
pub fn user_name(namespace: &str, name: &str) -> String {
    format!("{USER_PREFIX}{namespace}:{name}")
}

/// The groups of every service account of a namespace.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The namespace and name of a service account, from its user name.
pub fn split_user_name(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(USER_PREFIX)?.split_once(':')?;
    let valid =
        object_model::names::dns_label(namespace).is_empty() && object_model::names::dns_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

/// Checks when a token is good, and says until when.
fn times(claims: &Claims, now: i64) -> Result<SystemTime, Denied> {
    let at = |name: &str| claims.get(name).and_then(Value::as_f64).map(|time| time as i64);
    if at("nbf").is_some_and(|from| now + LEEWAY < from) {
        return Err(Denied::new("service account token is not valid yet"));
    }
    if at("exp").is_none_or(|end| now - LEEWAY > end) {
        return Err(Denied::new("service account token has expired"));
    }
    if at("iat").is_some_and(|issued| now + LEEWAY < issued) {
        return Err(Denied::new("service account token is issued in the future"));
    }
    let end = at("exp").unwrap_or_default().saturating_add(LEEWAY);
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(end).unwrap_or_default()))
}

/// What a token is known by in the audit log, where it must not stand itself.
fn credential_id(id: &str) -> String {
    format!("JTI={id}")
}

fn subject(claims: &Claims) -> &str {
    claims.get("sub").and_then(Value::as_str).unwrap_or_default()
}

/// The audiences of a token: one text, or a list of them.
pub(super) fn audiences(claims: &Claims) -> Vec<String> {
    match claims.get("aud") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// A list as Go prints it.
fn listed(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}
