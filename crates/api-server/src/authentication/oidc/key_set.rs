//! The keys of an issuer: fetched when a token needs them, and again when it names one that is new.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use arc_swap::ArcSwap;
use object_model::value::Fields;
use serde_json::Value;
use tokio::sync::Mutex;

use super::Issuer;
use crate::{
    authentication::{
        Error,
        jws::{self, Claims, PublicKey},
    },
    outbound::{Client, Peer},
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Made-up tokens must not make us ask the issuer more often than this.
const AT_MOST_EVERY: Duration = Duration::from_secs(10);

pub struct KeySet {
    keys: ArcSwap<Vec<PublicKey>>,
    source: Source,
    /// When the issuer was asked last. Held while it is asked, so that only one does.
    asked: Mutex<Option<Instant>>,
}

enum Source {
    File(PathBuf),
    Issuer { url: String, authority: Option<Vec<u8>>, discovery: Box<Client> },
}

impl KeySet {
    pub fn new(issuer: &Issuer) -> Result<Self, Error> {
        let source = match issuer.discovery_url.strip_prefix("file://") {
            Some(path) => Source::File(path.into()),
            None => {
                let authority = issuer.certificate_authority.as_bytes().to_vec();
                let authority = Some(authority).filter(|pem| !pem.is_empty());
                let document = match issuer.discovery_url.as_str() {
                    "" => format!("{}/.well-known/openid-configuration", issuer.url.trim_end_matches('/')),
                    given => given.to_owned(),
                };
                let discovery = Box::new(Client::new(&Peer::new(document, authority.clone()), TIMEOUT)?);
                Source::Issuer { url: issuer.url.clone(), authority, discovery }
            }
        };
        Ok(Self { keys: ArcSwap::default(), source, asked: Mutex::default() })
    }

    /// The claims of a token, if one of the issuer's keys signed it.
    pub async fn verify(&self, token: &str, key_id: &str) -> Result<Claims, String> {
        let verified = |keys: &[PublicKey]| jws::parse(token)?.verify(keys);
        let keys = self.keys.load_full();
        if let Some(claims) = verified(&keys) {
            return Ok(claims);
        }
        let refused = || Err("verify token: failed to verify signature".to_owned());
        // A key that is known has spoken already.
        if !key_id.is_empty() && keys.iter().any(|key| key.id == key_id) {
            return refused();
        }
        let mut asked = self.asked.lock().await;
        let newer = self.keys.load_full();
        if Arc::ptr_eq(&keys, &newer) && asked.is_none_or(|at| at.elapsed() >= AT_MOST_EVERY) {
            *asked = Some(Instant::now());
            let fetched = self.fetch().await.map_err(|why| format!("fetching keys {why}"))?;
            self.keys.store(Arc::new(fetched));
        }
        drop(asked);
        verified(&self.keys.load_full()).map_or_else(refused, Ok)
    }

    async fn fetch(&self) -> Result<Vec<PublicKey>, String> {
        let document = match &self.source {
            Source::File(path) => {
                let bytes = tokio::fs::read(path).await.map_err(|e| format!("from {}: {e}", path.display()))?;
                serde_json::from_slice(&bytes).map_err(|e| format!("from {}: {e}", path.display()))?
            }
            Source::Issuer { url, authority, discovery } => {
                let about = json(discovery).await?;
                if about.text("issuer") != url {
                    return Err(format!("the issuer calls itself {:?} instead of {url:?}", about.text("issuer")));
                }
                let peer = Peer::new(about.text("jwks_uri"), authority.clone());
                json(&Client::new(&peer, TIMEOUT).map_err(|e| e.to_string())?).await?
            }
        };
        Ok(document.items("keys").iter().filter_map(PublicKey::from_jwk).collect())
    }
}

async fn json(client: &Client) -> Result<Value, String> {
    let answer = client.get("").await.map_err(|e| e.to_string())?;
    if !answer.code.is_success() {
        return Err(format!("the issuer answered {}", answer.code));
    }
    serde_json::from_slice(&answer.body).map_err(|e| e.to_string())
}
