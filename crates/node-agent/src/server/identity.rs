//! Who asks: whoever a certificate of the cluster's authority names, or whoever the API server says a token is.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hyper::{HeaderMap, header::AUTHORIZATION};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use kube::{Api, Client, api::PostParams};
use tokio::time::Instant;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How long the API server's word on a token is taken.
const KNOWN_FOR: Duration = Duration::from_secs(60);
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
/// How many tokens are kept in mind.
const MOST: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) groups: Vec<String>,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

pub(super) struct Identities {
    client: Client,
    /// Tokens are kept as hashes with a secret of this process.
    hasher: RandomState,
    known: Mutex<HashMap<(u64, u64), Entry>>,
}

struct Entry {
    user: Option<Arc<User>>,
    until: Instant,
}

impl Identities {
    pub(super) fn new(client: Client) -> Self {
        Self { client, hasher: RandomState::new(), known: Mutex::default() }
    }

    /// Whoever a request's token is for. Nobody without one.
    pub(super) async fn of_token(&self, headers: &HeaderMap) -> Option<Arc<User>> {
        let token = headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?.trim();
        let key = (self.hasher.hash_one(token), self.hasher.hash_one((token, "again")));
        let now = Instant::now();
        if let Some(entry) = self.known().get(&key).filter(|entry| now < entry.until) {
            return entry.user.clone();
        }
        let user = self.review(token).await.ok()?.map(Arc::new);
        let mut known = self.known();
        if known.len() >= MOST {
            known.retain(|_, entry| now < entry.until);
            if known.len() >= MOST {
                known.clear();
            }
        }
        let until = now + if user.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
        known.insert(key, Entry { user: user.clone(), until });
        user
    }

    async fn review(&self, token: &str) -> Result<Option<User>, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
            ..TokenReview::default()
        };
        let asked = Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status = asked.inspect_err(|error| tracing::warn!(%error, "cannot ask who a token is for"))?.status;
        let status = status.filter(|status| status.authenticated.unwrap_or(false));
        Ok(status.and_then(|status| status.user).map(User::from))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(u64, u64), Entry>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        Self {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }
    }
}

/// Whoever a certificate is for. It was verified when the connection was made.
pub(super) fn of_certificate(certificate: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let organizations = subject.iter_organization().filter_map(|name| name.as_str().ok());
    let groups = organizations.chain(["system:authenticated"]).map(str::to_owned).collect();
    Some(User { name, uid: String::new(), groups, extra: BTreeMap::new() })
}
