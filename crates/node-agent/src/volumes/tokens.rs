//! Tokens of service accounts, for one pod each, renewed when four fifths of their life or a day have passed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller_runtime::Clock;
use k8s_openapi::{
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Pod, ServiceAccountTokenProjection},
    },
    jiff::{SignedDuration, Timestamp},
};
use kube::Client;

use super::VolumeError;

const OLDEST: SignedDuration = SignedDuration::from_hours(24);
const DEFAULT_LIFE: i64 = 3600;
/// When a renewal has failed and the old token is still good.
const TRY_AGAIN: Duration = Duration::from_secs(30);

pub(super) struct Tokens {
    client: Client,
    clock: Arc<dyn Clock>,
    known: Mutex<HashMap<Key, Token>>,
}

/// What a token is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    pod: String,
    account: String,
    audience: Option<String>,
    life: i64,
}

#[derive(Clone)]
struct Token {
    text: String,
    renew: Timestamp,
    expires: Timestamp,
}

impl Tokens {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { client, clock, known: Mutex::default() }
    }

    /// A token that is good, and the time until it must be renewed.
    pub(super) async fn token(
        &self,
        pod: &Pod,
        part: &ServiceAccountTokenProjection,
    ) -> Result<(String, Duration), VolumeError> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).unwrap_or_default();
        let key = Key {
            pod: pod.metadata.uid.clone().unwrap_or_default(),
            account,
            audience: part.audience.clone().filter(|audience| !audience.is_empty()),
            life: part.expiration_seconds.unwrap_or(DEFAULT_LIFE),
        };
        let now = self.clock.now();
        let known = self.known().get(&key).cloned();
        if let Some(token) = known.as_ref().filter(|token| now < token.renew) {
            return Ok((token.text.clone(), until(now, token.renew)));
        }
        match (self.request(pod, &key).await, known) {
            (Ok(token), _) => {
                let answer = (token.text.clone(), until(now, token.renew));
                self.known().insert(key, token);
                Ok(answer)
            }
            (Err(why), Some(token)) if now < token.expires => {
                tracing::warn!(pod = key.pod, why, "a service account's token cannot be renewed; trying again");
                Ok((token.text, TRY_AGAIN))
            }
            (Err(why), _) => Err(VolumeError(format!("failed to fetch token: {why}"))),
        }
    }

    pub(super) fn forget(&self, pod: &str) {
        self.known().retain(|key, _| key.pod != pod);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Token>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request(&self, pod: &Pod, key: &Key) -> Result<Token, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(key.audience.iter().cloned().collect()),
                expiration_seconds: Some(key.life),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            }),
            ..TokenRequest::default()
        };
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{}/token", key.account);
        let body = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body);
        let request = request.map_err(|error| error.to_string())?;
        let answer: TokenRequest = self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => status.message.clone(),
            error => error.to_string(),
        })?;
        let granted = answer.spec.and_then(|spec| spec.expiration_seconds).unwrap_or(key.life);
        let status = answer.status.unwrap_or_default();
        match (status.token, status.expiration_timestamp) {
            (Some(text), Some(expires)) => Ok(Token { text, renew: renewal(expires.0, granted), expires: expires.0 }),
            _ => Err("the server's answer has no token".into()),
        }
    }
}

/// `life` in seconds.
fn renewal(expires: Timestamp, life: i64) -> Timestamp {
    let begun = expires.saturating_sub(SignedDuration::from_secs(life)).unwrap_or(expires);
    let wait = SignedDuration::from_secs(life / 5 * 4).min(OLDEST);
    begun.saturating_add(wait).unwrap_or(expires)
}

fn until(now: Timestamp, then: Timestamp) -> Duration {
    then.duration_since(now).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

    use serde_json::json;

    use super::*;

    struct SetClock(AtomicI64);

    impl Clock for SetClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_second(self.0.load(Ordering::SeqCst)).expect("a time")
        }
    }

    #[tokio::test]
    async fn tokens_are_kept_until_four_fifths_of_their_life() {
        let clock = Arc::new(SetClock(AtomicI64::new(1_000_000)));
        let (asked, broken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (now, count, fails) = (clock.clone(), asked.clone(), broken.clone());
        let answer = move |request: http::Request<bytes::Bytes>| {
            let (now, number, fails) = (now.clone(), count.fetch_add(1, Ordering::SeqCst), fails.clone());
            async move {
                assert_eq!(request.uri().path(), "/api/v1/namespaces/ns/serviceaccounts/robot/token");
                let mut object: serde_json::Value = serde_json::from_slice(request.body()).expect("a request");
                assert_eq!(object["spec"]["boundObjectRef"]["uid"], "u1");
                assert_eq!(object["spec"]["audiences"], json!(["vault"]));
                if fails.load(Ordering::SeqCst) > 0 {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "reason": "Forbidden", "code": 403, "message": "no"});
                    return http::Response::builder().status(403).body(status.to_string()).expect("an answer");
                }
                let expires = now.now() + SignedDuration::from_secs(1000);
                object["status"] = json!({"token": format!("t{number}"), "expirationTimestamp": expires.to_string()});
                http::Response::new(object.to_string())
            }
        };
        let client = controller_runtime::transport::in_process(answer, "kubelet").expect("a client");
        let tokens = Tokens::new(client, clock.clone());
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
            "spec": {"serviceAccountName": "robot", "containers": []}});
        let pod = serde_json::from_value(pod).expect("a pod");
        let part = ServiceAccountTokenProjection {
            audience: Some("vault".into()),
            expiration_seconds: Some(1000),
            path: "token".into(),
        };
        let token = || async { tokens.token(&pod, &part).await };
        assert_eq!(token().await.expect("a token"), ("t0".into(), Duration::from_secs(800)));
        clock.0.fetch_add(799, Ordering::SeqCst);
        assert_eq!(token().await.expect("a token"), ("t0".into(), Duration::from_secs(1)));
        clock.0.fetch_add(1, Ordering::SeqCst);
        broken.store(1, Ordering::SeqCst);
        assert_eq!(token().await.expect("the old one"), ("t0".into(), TRY_AGAIN));
        clock.0.fetch_add(200, Ordering::SeqCst);
        assert_eq!(token().await.expect_err("it has expired").to_string(), "failed to fetch token: no");
        broken.store(0, Ordering::SeqCst);
        assert_eq!(token().await.expect("a new one").1, Duration::from_secs(800));
        let before = asked.load(Ordering::SeqCst);
        tokens.forget("u1");
        token().await.expect("another");
        assert_eq!(asked.load(Ordering::SeqCst), before + 1);
    }

    #[test]
    fn long_lived_tokens_are_renewed_each_day() {
        let expires = Timestamp::from_second(10_000_000).expect("a time");
        let life = 7 * 86_400;
        assert_eq!(renewal(expires, life).as_second(), 10_000_000 - life + 86_400);
    }
}
