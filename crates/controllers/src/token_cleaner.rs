//! Bootstrap tokens are deleted when they expire.

use std::{sync::Arc, time::Duration};

use controller_runtime::{Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use k8s_openapi::{api::core::v1::Secret, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{DeleteParams, Preconditions},
};
use tokio_util::sync::CancellationToken;

use crate::Setting;

const ACCOUNT: &str = "token-cleaner";
const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";

struct TokenCleaner {
    client: Client,
    tokens: Informer<Secret>,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let queue = WorkQueue::default();
    let controller =
        TokenCleaner { client: setting.client(ACCOUNT), tokens: tokens(&setting, &stop), clock: setting.clock.clone() };
    let on_token = queue.clone();
    controller.tokens.on_change(move |change| on_token.add(Key::of(&**change.object())));
    controller.tokens.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, OwnWrites::default(), 1, stop).await;
}

/// All tokens there are.
pub fn tokens(setting: &Setting, stop: &CancellationToken) -> Informer<Secret> {
    let only = Some(format!("type={TYPE},metadata.namespace={NAMESPACE}"));
    setting.informers.own(&(), only, |_| {}, stop.clone())
}

/// When a token ends. One that cannot be read ends at once, one without a time never.
pub fn expires(token: &Secret) -> Option<Timestamp> {
    let text = token.data.as_ref()?.get("expiration").filter(|text| !text.0.is_empty())?;
    Some(str::from_utf8(&text.0).ok().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH))
}

impl Controller for TokenCleaner {
    type Key = Key;

    fn name(&self) -> &'static str {
        "token-cleaner-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(token) = self.tokens.get(key) else { return Ok(Next::WhenChanged) };
        let Some(expires) = expires(&token) else { return Ok(Next::WhenChanged) };
        if let Ok(left) = Duration::try_from(expires.duration_since(self.clock.now()))
            && !left.is_zero()
        {
            return Ok(Next::After(left));
        }
        let api: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let exactly = Preconditions { uid: token.metadata.uid.clone(), resource_version: None };
        match api.delete(&key.name, &DeleteParams::default().preconditions(exactly)).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
            answer => drop(answer?),
        }
        Ok(Next::WhenChanged)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_token_that_cannot_be_read_has_expired() {
        let token = |text: &str| Secret {
            data: Some([("expiration".to_owned(), ByteString(text.into()))].into()),
            ..Secret::default()
        };
        assert_eq!(expires(&Secret::default()), None);
        assert_eq!(expires(&token("")), None);
        assert_eq!(expires(&token("2026-01-01T00:00:00Z")), "2026-01-01T00:00:00Z".parse().ok());
        assert_eq!(expires(&token("tomorrow")), Some(Timestamp::UNIX_EPOCH));
    }
}
