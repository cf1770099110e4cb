//! What other servers read at their start, so that they know users and proxies as this one does: the ConfigMap
//! `kube-system/extension-apiserver-authentication`. Servers of one cluster may differ: each adds what it goes by, and
//! takes nothing away.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use object_model::status::Status;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use storage::Revision;

use super::Settings;
use crate::{
    Server, bootstrap, catalogue::Target, certificates::issue::pem, context::RequestContext, options::WriteOptions,
    registry::Change, watch_cache::Scope,
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const RETRY: Duration = Duration::from_secs(1);

/// The entries, by key.
pub struct Published(Vec<(&'static str, Entry)>);

enum Entry {
    Certificates(Vec<CertificateDer<'static>>),
    Names(Vec<String>),
}

impl Published {
    pub fn of(settings: &Settings) -> Self {
        let mut entries = vec![("client-ca-file", Entry::Certificates(settings.client_authorities.clone()))];
        if let Some(proxy) = &settings.front_proxy {
            entries.push(("requestheader-client-ca-file", Entry::Certificates(proxy.authorities.clone())));
            let names = [
                ("requestheader-allowed-names", &proxy.allowed_names),
                ("requestheader-username-headers", &proxy.user_headers),
                ("requestheader-uid-headers", &proxy.uid_headers),
                ("requestheader-group-headers", &proxy.group_headers),
                ("requestheader-extra-headers-prefix", &proxy.extra_prefixes),
            ];
            entries.extend(names.map(|(key, names)| (key, Entry::Names(names.clone()))));
        }
        entries.retain(|(_, entry)| !matches!(entry, Entry::Certificates(none) if none.is_empty()));
        Self(entries)
    }

    /// Adds what is missing.
    fn add_to(&self, data: &mut Value) {
        for (key, entry) in &self.0 {
            data[*key] = entry.added_to(data[*key].as_str().unwrap_or_default()).into();
        }
    }
}

impl Entry {
    fn added_to(&self, text: &str) -> String {
        match self {
            Self::Certificates(certificates) => {
                let missing = certificates.iter().map(|der| pem(der)).filter(|block| !text.contains(block));
                missing.fold(text.to_owned(), |text, block| text + &block)
            }
            Self::Names(names) => {
                let mut all: Vec<String> = serde_json::from_str(text).unwrap_or_default();
                let missing: Vec<&String> = names.iter().filter(|name| !all.contains(name)).collect();
                all.extend(missing.into_iter().cloned());
                json!(all).to_string()
            }
        }
    }
}

/// Adds what is missing to the ConfigMap.
struct Add<'a>(&'a Published);

#[async_trait]
impl Change for Add<'_> {
    async fn apply(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let mut object = current.cloned().unwrap_or_default();
        self.0.add_to(&mut object["data"]);
        Ok(object)
    }
}

/// Publishes, also when the ConfigMap is deleted later. The first time is over when this is awaited.
pub async fn keep(server: &Arc<Server>, context: RequestContext) {
    let own = Own { server: server.clone(), context };
    let mut seen = own.try_publish().await;
    tokio::spawn(async move {
        let drain = own.server.drain.clone();
        let keep = async {
            loop {
                if own.gone(seen).await.is_none() {
                    tokio::time::sleep(RETRY).await;
                }
                seen = own.try_publish().await;
            }
        };
        drain.run_until_cancelled(keep).await;
    });
}

struct Own {
    server: Arc<Server>,
    context: RequestContext,
}

impl Own {
    /// The revision from which on it may be gone again, if it was published.
    async fn try_publish(&self) -> Option<Revision> {
        let revision = self.server.registry.cache.applied();
        match self.publish().await {
            Ok(()) => Some(revision),
            Err(problem) => {
                tracing::warn!(%problem, "cannot yet publish by which authorities users are known");
                None
            }
        }
    }

    async fn publish(&self) -> Result<(), Status> {
        let Self { server, context } = self;
        let meta = json!({"name": NAME, "namespace": NAMESPACE});
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {}});
        server.authentication.published.add_to(&mut object["data"]);
        bootstrap::create(server, context, "", "configmaps", object).await?;
        let served = server.catalogue.served();
        let Some(resource) = served.find("", "v1", "configmaps") else { return Ok(()) };
        let target = Target { resource, subresource: "", namespace: NAMESPACE, name: NAME };
        let mut add = Add(&server.authentication.published);
        server.registry.update(&target, context, &mut add, &WriteOptions::default()).await.map(drop)
    }

    /// Waits until it is deleted after this revision; `None` if there is no telling.
    async fn gone(&self, since: Option<Revision>) -> Option<()> {
        let served = self.server.catalogue.served();
        let cache = &served.find("", "v1", "configmaps")?.cache;
        let scope = Scope::Object { namespace: NAMESPACE.into(), name: NAME.into() };
        let mut watcher = cache.watch(scope, since?).ok()?;
        while watcher.next().await.ok()?.after.is_some() {}
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authentication::front_proxy;

    #[test]
    fn each_server_adds_what_it_goes_by() {
        let der = |byte: u8| CertificateDer::from(vec![byte; 70]);
        let settings = |authority: u8, proxy: &str| Settings {
            client_authorities: vec![der(authority)],
            front_proxy: Some(front_proxy::Settings::new(vec![der(9)], vec![proxy.to_owned()])),
            ..Settings::default()
        };
        let mut data = json!({"another": "stays"});
        let first = Published::of(&settings(1, "one"));
        first.add_to(&mut data);
        let once = data.clone();
        first.add_to(&mut data);
        assert_eq!(data, once, "all is there");
        Published::of(&settings(2, "two")).add_to(&mut data);
        assert_eq!(data["client-ca-file"], pem(&der(1)) + &pem(&der(2)));
        assert_eq!(data["requestheader-client-ca-file"], pem(&der(9)));
        assert_eq!(data["requestheader-allowed-names"], r#"["one","two"]"#);
        assert_eq!(data["requestheader-username-headers"], r#"["X-Remote-User"]"#);
        assert_eq!(data["another"], "stays");
        let mut alone = json!({});
        Published::of(&Settings::default()).add_to(&mut alone);
        assert_eq!(alone, json!({}), "nothing is known by certificates");
    }
}
