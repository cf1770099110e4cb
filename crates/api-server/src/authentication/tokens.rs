//! Bearer tokens: taken from a request, judged by those who know tokens, and remembered for a moment.
//!
//! A verdict is remembered under a keyed hash of the token, never under the token. It holds for ten seconds at the most, not
//! past the end of the token, and only as long as every object it rests on is the very one it was reached on.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hyper::{
    HeaderMap,
    header::{self, HeaderValue},
};
use ring::{
    hmac::{self, HMAC_SHA256},
    rand::SystemRandom,
};

use super::{Authenticator, Denied, Error, authenticated};
use crate::{
    clock::Clock,
    context::{Annotations, User},
    serving::Peer,
    watch_cache::{Entry, ResourceCache, WatchCache},
};

const REMEMBERED_FOR: Duration = Duration::from_secs(10);
const MOST_REMEMBERED: usize = 32 << 10;
/// How a browser hands over a token, since it cannot set a header on a WebSocket.
const WEBSOCKET_PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Somebody who knows the tokens of one kind.
#[async_trait]
pub trait TokenAuthenticator: Send + Sync {
    /// Whose token it is, `None` if it is not of this kind, or why it is not good. `wanted` are the audiences that the token
    /// must be for, one of them at least; `remarks` is for what the audit log should know, also of a token that is not good.
    async fn token(&self, token: &str, wanted: &[String], remarks: &Annotations) -> Result<Option<Known>, Denied>;
}

/// Whose token it is.
#[derive(Debug)]
pub struct Known {
    pub user: User,
    /// For whom the token is, if it says so; `None` for tokens that are for this server only.
    pub audiences: Option<Vec<String>>,
    pub until: Option<SystemTime>,
    pub rests_on: Vec<RestsOn>,
}

impl Known {
    /// A user of a token that says nothing but that.
    pub fn plain(user: User) -> Self {
        Self { user, audiences: None, until: None, rests_on: Vec::new() }
    }
}

/// An object that a verdict rests on.
#[derive(Clone)]
pub struct RestsOn {
    pub resource: Arc<ResourceCache>,
    pub entry: Arc<Entry>,
}

impl std::fmt::Debug for RestsOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{} at {}", self.resource.prefix(), self.entry.key(), self.entry.revision)
    }
}

impl RestsOn {
    fn unchanged(&self) -> bool {
        self.resource.get(&self.entry.key()).is_some_and(|now| Arc::ptr_eq(&now, &self.entry))
    }
}

/// A verdict of the past.
struct Remembered {
    user: Arc<User>,
    until: SystemTime,
    rests_on: Vec<RestsOn>,
    remarks: Vec<(String, String)>,
}

/// All who know tokens, in order.
pub struct Tokens {
    known: Vec<Box<dyn TokenAuthenticator>>,
    /// For whom tokens must be that come with requests.
    pub audiences: Vec<String>,
    cache: Arc<WatchCache>,
    clock: Arc<dyn Clock>,
    secret: hmac::Key,
    remembered: RwLock<HashMap<[u8; 32], Arc<Remembered>>>,
}

impl Tokens {
    pub fn new(
        known: Vec<Box<dyn TokenAuthenticator>>,
        audiences: Vec<String>,
        cache: Arc<WatchCache>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Error> {
        let none = |_| Error::Unusable { what: "the source of randomness".into(), reason: "it gives none".into() };
        let secret = hmac::Key::generate(HMAC_SHA256, &SystemRandom::new()).map_err(none)?;
        Ok(Self { known, audiences, cache, clock, secret, remembered: RwLock::default() })
    }

    /// The user of a token that came with a request.
    async fn user(&self, token: &str, remarks: &Annotations) -> Result<Arc<User>, Denied> {
        let mut key = [0; 32];
        key.copy_from_slice(hmac::sign(&self.secret, token.as_bytes()).as_ref());
        // What a client was told is gone must not let anybody in.
        self.cache.own_writes().await.map_err(|error| Denied(error.to_string()))?;
        let now = self.clock.now();
        let found = self.remembered.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(found) = found
            && now < found.until
            && found.rests_on.iter().all(RestsOn::unchanged)
        {
            remarks.add_all(&found.remarks);
            return Ok(found.user.clone());
        }
        let said = Annotations::default();
        let judged = self.judge(token, &self.audiences, &said).await;
        let said = said.take();
        remarks.add_all(&said);
        let (known, _) = judged?;
        let user = authenticated(known.user);
        let until = known.until.map_or(now + REMEMBERED_FOR, |end| end.min(now + REMEMBERED_FOR));
        let verdict = Arc::new(Remembered { user: user.clone(), until, rests_on: known.rests_on, remarks: said });
        let mut remembered = self.remembered.write().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MOST_REMEMBERED {
            remembered.retain(|_, verdict| now < verdict.until);
            if remembered.len() >= MOST_REMEMBERED {
                remembered.clear();
            }
        }
        remembered.insert(key, verdict);
        Ok(user)
    }

    /// Whose token it is, and for which of the wanted audiences. Nothing is remembered.
    pub async fn judge(
        &self,
        token: &str,
        wanted: &[String],
        remarks: &Annotations,
    ) -> Result<(Known, Vec<String>), Denied> {
        self.cache.own_writes().await.map_err(|error| Denied(error.to_string()))?;
        let mut denied = Vec::new();
        for known in &self.known {
            match known.token(token, wanted, remarks).await {
                Ok(Some(known)) => {
                    let for_whom = known.audiences.as_ref().unwrap_or(&self.audiences);
                    let shared: Vec<String> = for_whom.iter().filter(|a| wanted.contains(a)).cloned().collect();
                    // A token that is for this server only is none to somebody else.
                    if !shared.is_empty() {
                        return Ok((known, shared));
                    }
                }
                Ok(None) => {}
                Err(why) => denied.push(why),
            }
        }
        Err(Denied::all(denied).unwrap_or_else(|| Denied::new("invalid bearer token")))
    }
}

/// By the token in the `Authorization` header, or among the protocols that a WebSocket offers.
pub struct Bearer(pub Arc<Tokens>);

#[async_trait]
impl Authenticator for Bearer {
    async fn authenticate(
        &self,
        _: &Peer,
        headers: &HeaderMap,
        remarks: &Annotations,
    ) -> Result<Option<Arc<User>>, Denied> {
        match in_header(headers).map(str::to_owned).or_else(|| in_websocket(headers)) {
            Some(token) => self.0.user(&token, remarks).await.map(Some),
            None => Ok(None),
        }
    }

    fn forget(&self, headers: &mut HeaderMap) {
        headers.remove(header::AUTHORIZATION);
        let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
        let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
        if !offered.iter().any(|protocol| protocol.starts_with(WEBSOCKET_PREFIX)) {
            return;
        }
        let kept: Vec<&str> = offered.into_iter().filter(|p| !p.starts_with(WEBSOCKET_PREFIX)).collect();
        match HeaderValue::from_str(&kept.join(", ")) {
            Ok(value) if !kept.is_empty() => headers.insert(header::SEC_WEBSOCKET_PROTOCOL, value),
            _ => headers.remove(header::SEC_WEBSOCKET_PROTOCOL),
        };
    }
}

fn in_header(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim().split_once(' ')?;
    let token = token.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn in_websocket(headers: &HeaderMap) -> Option<String> {
    if !streaming::upgrade::is_websocket(headers) {
        return None;
    }
    let offered = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let mut tokens = offered.flat_map(|value| value.split(',')).filter_map(|p| p.trim().strip_prefix(WEBSOCKET_PREFIX));
    let encoded = tokens.next()?.trim_end_matches('=');
    String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).ok()?).ok().filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_in_protocols_are_of_websockets_only() {
        let mut headers = HeaderMap::new();
        let offered = format!("v5.channel.k8s.io, {WEBSOCKET_PREFIX}{}", URL_SAFE_NO_PAD.encode("secret"));
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_str(&offered).expect("a header"));
        assert_eq!(in_websocket(&headers), None);
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        assert_eq!(in_websocket(&headers).as_deref(), Some("secret"));
    }
}
