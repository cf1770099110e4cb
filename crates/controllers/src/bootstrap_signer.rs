//! Who joins with a bootstrap token knows by it that the ConfigMap `cluster-info` is genuine: each token signs it.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use controller_runtime::{Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Secret},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use ring::hmac;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{Setting, token_cleaner};

const ACCOUNT: &str = "bootstrap-signer";
const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const SIGNED: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

struct BootstrapSigner {
    client: Client,
    infos: Informer<ConfigMap>,
    tokens: Informer<Secret>,
    own_writes: OwnWrites<Key>,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let only = Some(format!("metadata.name={NAME},metadata.namespace={NAMESPACE}"));
    let controller = BootstrapSigner {
        client: setting.client(ACCOUNT),
        infos: setting.informers.own(&(), only, |_| {}, stop.clone()),
        tokens: token_cleaner::tokens(&setting, &stop),
        own_writes: own_writes.clone(),
        clock: setting.clock.clone(),
    };
    let (on_info, on_token) = (queue.clone(), queue.clone());
    controller.infos.on_change(move |_| on_info.add(Key::new(NAMESPACE, NAME)));
    controller.tokens.on_change(move |_| on_token.add(Key::new(NAMESPACE, NAME)));
    controller.infos.synced_or_stopped().await;
    controller.tokens.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, 1, stop).await;
}

/// The id and the secret of a token that may sign.
fn signs(token: &Secret, now: Timestamp) -> Option<(String, String)> {
    let text = |name: &str| token.data.as_ref()?.get(name).and_then(|text| String::from_utf8(text.0.clone()).ok());
    let (id, secret) = (text("token-id")?, text("token-secret").filter(|secret| !secret.is_empty())?);
    let named = token.metadata.name.as_deref() == Some(&format!("bootstrap-token-{id}"));
    let expired = token_cleaner::expires(token).is_some_and(|expires| expires <= now);
    (named && !expired && text("usage-bootstrap-signing")? == "true").then_some((id, secret))
}

/// A JSON web signature without what it signs.
fn signature(content: &str, id: &str, secret: &str) -> String {
    let header = BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "kid": id}).to_string());
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes())))
}

impl Controller for BootstrapSigner {
    type Key = Key;

    fn name(&self) -> &'static str {
        "bootstrap-signer-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(info) = self.infos.get(key) else { return Ok(Next::WhenChanged) };
        let data = info.data.clone().unwrap_or_default();
        let Some(content) = data.get(SIGNED) else { return Ok(Next::WhenChanged) };
        let mut wanted: BTreeMap<String, String> = data.clone();
        wanted.retain(|name, _| !name.starts_with(SIGNATURE));
        let now = self.clock.now();
        for (id, secret) in self.tokens.all().iter().filter_map(|token| signs(token, now)) {
            wanted.insert(format!("{SIGNATURE}{id}"), signature(content, &id, &secret));
        }
        if wanted == data {
            return Ok(Next::WhenChanged);
        }
        let infos: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let changed = ConfigMap { data: Some(wanted), ..(*info).clone() };
        match infos.replace(NAME, &PostParams::default(), &changed).await {
            Ok(written) => self.own_writes.wrote(key, &self.infos, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::WhenChanged)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn a_signature_is_what_kubeadm_checks() {
        // The example of Kubernetes' own tests.
        let expected = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        let content = "Hello from the other side. I must have called a thousand times.";
        assert_eq!(signature(content, "joshua", "my voice is my passcode"), expected);
    }

    #[test]
    fn only_tokens_that_are_meant_to_sign() {
        let token = |fields: &[(&str, &str)]| {
            let all = [("token-id", "abcdef"), ("token-secret", "s"), ("usage-bootstrap-signing", "true")];
            let all = all.iter().chain(fields).map(|(name, text)| ((*name).to_owned(), ByteString((*text).into())));
            let mut token = Secret { data: Some(all.collect()), ..Secret::default() };
            token.metadata.name = Some("bootstrap-token-abcdef".to_owned());
            signs(&token, Timestamp::UNIX_EPOCH).is_some()
        };
        assert!(token(&[]));
        assert!(!token(&[("usage-bootstrap-signing", "false")]));
        assert!(!token(&[("expiration", "1969-12-31T00:00:00Z")]));
        assert!(!token(&[("token-id", "other")]));
    }
}
