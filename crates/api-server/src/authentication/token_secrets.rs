//! Fills Secrets of type `kubernetes.io/service-account-token` for those who ask for a token without an end by making one,
//! and removes those whose service account is gone. Kubernetes calls this the tokens controller.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::Method;
use object_model::{meta::Meta, value::Fields};
use serde_json::{Value, json};

use super::{legacy_tokens, service_accounts::Reference};
use crate::{
    Server,
    catalogue::store_prefix,
    context::User,
    watch_cache::{Entry, ResourceCache, Scope},
};

const TYPE: &str = "kubernetes.io/service-account-token";
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";
const AGAIN: Duration = Duration::from_secs(5);

static IDENTITY: LazyLock<Arc<User>> = LazyLock::new(|| {
    let groups = vec![super::AUTHENTICATED.to_owned()];
    Arc::new(User { name: "system:kube-controller-manager".into(), groups, ..User::default() })
});

/// Works on Secrets until the server stops. `authority` is what their readers verify this server by, in PEM.
pub async fn run(server: Arc<Server>, authority: String) {
    let stopped = server.drain.clone();
    let of = |plural: &str| server.registry.cache.resource(&store_prefix("", plural));
    let (secrets, accounts) = (of("secrets"), of("serviceaccounts"));
    let controller = Controller { server, authority, secrets, accounts };
    tokio::select! {
        () = controller.follow() => {}
        () = stopped.cancelled() => {}
    }
}

struct Controller {
    server: Arc<Server>,
    authority: String,
    secrets: Arc<ResourceCache>,
    accounts: Arc<ResourceCache>,
}

impl Controller {
    async fn follow(&self) {
        loop {
            let cache = &self.server.registry.cache;
            let (snapshot, revision) = cache.snapshot(&self.secrets);
            let watched = (self.secrets.watch(Scope::All, revision), self.accounts.watch(Scope::All, revision));
            let (Ok(mut secrets), Ok(mut accounts)) = watched else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            let mut failed = false;
            for entry in snapshot.objects.values() {
                failed |= self.handle(entry).await.is_err();
            }
            drop(snapshot);
            while !failed {
                tokio::select! {
                    event = secrets.next() => match event {
                        Ok(event) => if let Some(entry) = &event.after {
                            failed = self.handle(entry).await.is_err();
                        },
                        Err(_) => break,
                    },
                    // An account that came or went concerns the Secrets of its namespace.
                    event = accounts.next() => match event {
                        Ok(event) if event.before.is_some() && event.after.is_some() => {}
                        Ok(event) => if let Some(account) = event.after.as_ref().or(event.before.as_ref()) {
                            for entry in self.of_namespace(&account.namespace) {
                                failed |= self.handle(&entry).await.is_err();
                            }
                        },
                        Err(_) => break,
                    },
                }
            }
            if failed {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    fn of_namespace(&self, namespace: &str) -> Vec<Arc<Entry>> {
        let prefix = format!("{namespace}/");
        let snapshot = self.secrets.snapshot();
        let entries = snapshot.objects.range(Arc::from(prefix.as_str())..);
        entries.take_while(|(key, _)| key.starts_with(&prefix)).map(|(_, entry)| entry.clone()).collect()
    }

    /// Fills or removes a Secret, if it is one for a token.
    async fn handle(&self, entry: &Entry) -> Result<(), ()> {
        // Most Secrets are for something else, and are not read for this.
        if !entry.body.windows(TYPE.len()).any(|bytes| bytes == TYPE.as_bytes()) {
            return Ok(());
        }
        let secret = entry.object("Secret");
        if secret.text("type") != TYPE || Meta::of(&secret).is_deleting() {
            return Ok(());
        }
        let (namespace, path) =
            (&entry.namespace, format!("/api/v1/namespaces/{}/secrets/{}", entry.namespace, entry.name));
        let annotation = |name: &str| Meta::of(&secret).annotations().get(name).unwrap_or_default().to_owned();
        let (name, uid) = (annotation(NAME), annotation(UID));
        if self.server.registry.cache.fresh().await.is_err() {
            return Err(());
        }
        let account = self.accounts.get(&format!("{namespace}/{name}"));
        let account = account.map(|account| Reference::of(&account.object("ServiceAccount")));
        let Some(account) = account.filter(|account| uid.is_empty() || uid == account.uid) else {
            let only = json!({"preconditions": {"uid": Meta::of(&secret).uid()}});
            return self.call(Method::DELETE, &path, &only).await;
        };
        match self.filled(&secret, namespace, &account) {
            Some(filled) => self.call(Method::PUT, &path, &filled).await,
            None => Ok(()),
        }
    }

    /// The Secret with everything that belongs into it; `None` if it has all of that.
    fn filled(&self, secret: &Value, namespace: &str, account: &Reference) -> Option<Value> {
        let mut filled = secret.clone();
        filled["metadata"]["annotations"][UID] = account.uid.as_str().into();
        if !filled["data"].is_object() {
            filled["data"] = json!({});
        }
        filled["data"]["ca.crt"] = STANDARD.encode(&self.authority).into();
        filled["data"]["namespace"] = STANDARD.encode(namespace).into();
        if filled.text_at(&["data", "token"]).is_empty() {
            let accounts = &self.server.authentication.service_accounts;
            let token = legacy_tokens::issue(accounts, namespace, account, Meta::of(secret).name()).ok()?;
            filled["data"]["token"] = STANDARD.encode(token).into();
        }
        (filled != *secret).then_some(filled)
    }

    /// A request in the controller's own name. That somebody else was faster is no failure.
    async fn call(&self, method: Method, path: &str, body: &Value) -> Result<(), ()> {
        let (code, answer) = self.server.exchange(&IDENTITY, method, path, body).await;
        if code.is_success() || matches!(code.as_u16(), 404 | 409) {
            return Ok(());
        }
        tracing::warn!(path, why = answer.text("message"), "a Secret for a token could not be written; trying again");
        Err(())
    }
}
