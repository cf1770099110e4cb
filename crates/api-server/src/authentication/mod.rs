//! Who a request comes from.
//!
//! Each way to tell is one file. They are tried in Kubernetes' order: front proxy, client certificate, bearer token (a
//! static file, service accounts, bootstrap tokens, issuers of OIDC tokens, a webhook). The first that knows the user
//! decides; a way that was tried in vain makes the request unauthorized, unless another one knows the user. A request that
//! tries nothing is anonymous, where that is allowed.
//!
//! What rests on objects (service accounts, pods, secrets) is judged by the watch cache, and judged again as soon as one of
//! those objects changes: a revoked token ends at once.

pub mod anonymous;
pub mod bootstrap_tokens;
pub mod client_certificate;
pub mod front_proxy;
pub mod jws;
pub mod keys;
pub mod legacy_tokens;
mod live;
pub mod oidc;
pub mod published;
pub mod service_accounts;
mod settings;
pub mod token_file;
pub mod token_secrets;
pub mod tokens;
pub mod webhook;

use std::sync::Arc;

use anonymous::Anonymous;
use async_trait::async_trait;
use bootstrap_tokens::BootstrapTokens;
use client_certificate::ClientCertificate;
use front_proxy::FrontProxy;
use hyper::HeaderMap;
use legacy_tokens::{LegacyTokens, Use};
use live::Live;
use object_model::status::Status;
use oidc::Issuers;
use published::Published;
use service_accounts::ServiceAccounts;
pub use settings::Settings;
use token_file::TokenFile;
use tokens::{TokenAuthenticator, Tokens};
use tokio::sync::mpsc;
use webhook::Webhook;

use crate::{
    clock::Clock,
    context::{Annotations, User},
    serving::Peer,
    watch_cache::WatchCache,
};

/// What a request arrived with, before anybody has judged it.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Over a connection.
    Remote(Peer),
    /// From a component in this process, which carries its identity itself.
    Local(Arc<User>),
}

/// Why somebody is not who they say they are. For the log and for those who review tokens; the client only learns that it
/// is not authorized.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Denied(pub String);

impl Denied {
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }

    /// Several reasons as one.
    fn all(mut reasons: Vec<Denied>) -> Option<Self> {
        if reasons.len() < 2 {
            return reasons.pop();
        }
        let reasons: Vec<String> = reasons.into_iter().map(|denied| denied.0).collect();
        Some(Self(format!("[{}]", reasons.join(", "))))
    }
}

/// Something that authentication is told at the start cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Keys(#[from] keys::Error),
    #[error(transparent)]
    Peer(#[from] crate::outbound::Error),
    #[error("cannot read {path}: {source}")]
    File { path: std::path::PathBuf, source: std::io::Error },
    #[error("{what} cannot be used: {reason}")]
    Unusable { what: String, reason: String },
}

/// One way to tell who asks. Most answer from memory; one that asks somebody else may wait.
#[async_trait]
pub trait Authenticator: Send + Sync {
    /// The user, `None` if this way does not apply, or why it is not the user it says. `remarks` are for the audit log.
    async fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        remarks: &Annotations,
    ) -> Result<Option<Arc<User>>, Denied>;

    /// Takes what this way goes by out of a request.
    fn forget(&self, _: &mut HeaderMap) {}
}

/// All ways, in order.
pub struct Authentication {
    ways: Vec<Box<dyn Authenticator>>,
    pub tokens: Arc<Tokens>,
    pub service_accounts: Arc<ServiceAccounts>,
    anonymous: Anonymous,
    pub published: Published,
}

pub const ANONYMOUS: &str = "system:anonymous";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

impl Authentication {
    /// With the uses of tokens that are to be noted.
    pub fn new(
        settings: Settings,
        cache: &Arc<WatchCache>,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, mpsc::Receiver<Use>), Error> {
        let published = Published::of(&settings);
        let configuration = match &settings.configuration {
            Some(path) => oidc::Configuration::read(path)?,
            None => oidc::Configuration::default(),
        };
        let live = Arc::new(Live::new(cache));
        let service_accounts = Arc::new(ServiceAccounts::new(&settings, live.clone(), clock.clone())?);
        let audiences = service_accounts.audiences.clone();
        let mut known: Vec<Box<dyn TokenAuthenticator>> = Vec::new();
        if let Some(path) = &settings.token_file {
            known.push(Box::new(TokenFile::read(path)?));
        }
        let (legacy, uses) = LegacyTokens::new(service_accounts.clone(), live.clone(), clock.clone());
        known.push(Box::new(legacy));
        known.push(Box::new(service_accounts.clone()));
        if settings.bootstrap_tokens {
            known.push(Box::new(BootstrapTokens::new(live, clock.clone())));
        }
        if !configuration.issuers.is_empty() {
            known.push(Box::new(Issuers::new(configuration.issuers, &service_accounts.issuers, clock.clone())?));
        }
        if let Some(webhook) = &settings.webhook {
            known.push(Box::new(Webhook::new(webhook)?));
        }
        let tokens = Arc::new(Tokens::new(known, audiences, cache.clone(), clock)?);
        let mut ways: Vec<Box<dyn Authenticator>> = Vec::new();
        if let Some(front_proxy) = settings.front_proxy {
            ways.push(Box::new(FrontProxy::new(front_proxy)?));
        }
        ways.push(Box::new(ClientCertificate::new(&settings.client_authorities)?));
        ways.push(Box::new(tokens::Bearer(tokens.clone())));
        let anonymous = Anonymous::new(configuration.anonymous, settings.anonymous)?;
        Ok((Self { ways, tokens, service_accounts, anonymous, published }, uses))
    }

    /// Takes the credentials out of a request that has been authenticated: nothing behind may pass them on.
    pub fn forget(&self, headers: &mut HeaderMap) {
        self.ways.iter().for_each(|way| way.forget(headers));
    }

    pub async fn authenticate(
        &self,
        identity: &Identity,
        path: &str,
        headers: &HeaderMap,
        remarks: &Annotations,
    ) -> Result<Arc<User>, Status> {
        let peer = match identity {
            Identity::Local(user) => return Ok(user.clone()),
            Identity::Remote(peer) => peer,
        };
        let mut denied = Vec::new();
        for way in &self.ways {
            match way.authenticate(peer, headers, remarks).await {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(why) => denied.push(why),
            }
        }
        match Denied::all(denied) {
            Some(why) => tracing::debug!(%why, peer = %peer.address, "not authenticated"),
            None => {
                if let Some(user) = self.anonymous.user(path) {
                    return Ok(user);
                }
            }
        }
        Err(Status::unauthorized("Unauthorized"))
    }
}

/// A user that is known, and belongs to everybody who is.
pub(crate) fn authenticated(mut user: User) -> Arc<User> {
    let groups = [AUTHENTICATED, UNAUTHENTICATED];
    if !user.groups.iter().any(|group| groups.contains(&group.as_str())) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    Arc::new(user)
}
