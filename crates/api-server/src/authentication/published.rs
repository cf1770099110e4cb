//! What other servers read at their start, so that they know users and proxies as this one does: the ConfigMap
//! `kube-system/extension-apiserver-authentication`. Servers of one cluster may differ: each adds what it goes by, and
//! takes nothing away.

use std::{sync::Arc, time::Duration};

use hyper::{Method, StatusCode};
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use storage::Revision;

use super::Settings;
use crate::{Server, certificates::issue::pem, context::User, watch_cache::Scope};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
const CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
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

    /// Adds what is missing. Says whether anything was.
    fn add_to(&self, data: &mut Value) -> bool {
        let mut added = false;
        for (key, entry) in &self.0 {
            let before = data[*key].as_str();
            let after = entry.added_to(before.unwrap_or_default());
            if before != Some(&after) {
                data[*key] = after.into();
                added = true;
            }
        }
        added
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

/// Publishes, also when the ConfigMap is deleted later. The first time is over when this is awaited.
pub async fn keep(server: &Arc<Server>, user: Arc<User>) {
    let own = Own { server: server.clone(), user };
    let mut seen = own.publish().await;
    tokio::spawn(async move {
        let drain = own.server.drain.clone();
        let keep = async {
            loop {
                if own.gone(seen).await.is_none() {
                    tokio::time::sleep(RETRY).await;
                }
                seen = own.publish().await;
            }
        };
        drain.run_until_cancelled(keep).await;
    });
}

struct Own {
    server: Arc<Server>,
    user: Arc<User>,
}

impl Own {
    /// The revision from which on it may be gone again, if it was published.
    async fn publish(&self) -> Option<Revision> {
        let revision = self.server.registry.cache.applied();
        let published = &self.server.authentication.published;
        let named = format!("{CONFIG_MAPS}/{NAME}");
        let (code, mut found) = self.exchange(Method::GET, &named, &Value::Null).await;
        let (code, answer) = match code {
            StatusCode::OK if !published.add_to(&mut found["data"]) => return Some(revision),
            StatusCode::OK => self.exchange(Method::PUT, &named, &found).await,
            StatusCode::NOT_FOUND => {
                let mut object = json!({"metadata": {"name": NAME}, "data": {}});
                published.add_to(&mut object["data"]);
                self.exchange(Method::POST, CONFIG_MAPS, &object).await
            }
            _ => (code, found),
        };
        if code.is_success() {
            return Some(revision);
        }
        tracing::warn!(problem = %answer["message"], "cannot yet publish by which authorities users are known");
        None
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

    async fn exchange(&self, method: Method, path: &str, body: &Value) -> (StatusCode, Value) {
        self.server.exchange(&self.user, method, path, body).await
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
        assert!(first.add_to(&mut data));
        assert!(!first.add_to(&mut data), "all is there");
        assert!(Published::of(&settings(2, "two")).add_to(&mut data));
        assert_eq!(data["client-ca-file"], pem(&der(1)) + &pem(&der(2)));
        assert_eq!(data["requestheader-client-ca-file"], pem(&der(9)));
        assert_eq!(data["requestheader-allowed-names"], r#"["one","two"]"#);
        assert_eq!(data["requestheader-username-headers"], r#"["X-Remote-User"]"#);
        assert_eq!(data["another"], "stays");
        let mut alone = json!({});
        assert!(!Published::of(&Settings::default()).add_to(&mut alone), "nothing is known by certificates");
    }
}
