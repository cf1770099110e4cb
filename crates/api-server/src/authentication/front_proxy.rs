//! Headers of a proxy that has authenticated its client already. They count only on a connection whose certificate is of
//! the proxies' own authority, and has one of the allowed names; on any other they are just headers.

use std::sync::Arc;

use async_trait::async_trait;
use hyper::HeaderMap;
use rustls::pki_types::CertificateDer;

use super::{Authenticator, Denied, Error, authenticated, client_certificate::Authorities};
use crate::{context::User, request_info::decoded, serving::Peer};

#[derive(Clone, Debug)]
pub struct Settings {
    pub authorities: Vec<CertificateDer<'static>>,
    /// Common names of proxies; any, if empty.
    pub allowed_names: Vec<String>,
    pub user_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl Settings {
    /// The headers as Kubernetes names them.
    pub fn new(authorities: Vec<CertificateDer<'static>>, allowed_names: Vec<String>) -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            authorities,
            allowed_names,
            user_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }
}

pub struct FrontProxy {
    authorities: Authorities,
    settings: Settings,
}

impl FrontProxy {
    pub fn new(settings: Settings) -> Result<Self, Error> {
        Ok(Self { authorities: Authorities::new(&settings.authorities)?, settings })
    }

    fn user(&self, headers: &HeaderMap) -> Option<User> {
        let text = |names: &[String]| {
            let values = names.iter().filter_map(|name| headers.get(name)?.to_str().ok());
            values.map(str::to_owned).find(|value| !value.is_empty())
        };
        let name = text(&self.settings.user_headers)?;
        let groups = self.settings.group_headers.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.filter_map(|value| value.to_str().ok()).filter(|group| !group.is_empty());
        Some(User {
            name,
            uid: text(&self.settings.uid_headers).unwrap_or_default(),
            groups: groups.map(str::to_owned).collect(),
            extra: extra(headers, &self.settings.extra_prefixes),
        })
    }
}

#[async_trait]
impl Authenticator for FrontProxy {
    async fn authenticate(&self, peer: &Peer, headers: &HeaderMap) -> Result<Option<Arc<User>>, Denied> {
        let Some(presented) = peer.presented.as_deref() else { return Ok(None) };
        presented.is_of_proxy(&self.authorities)?;
        let (allowed, name) = (&self.settings.allowed_names, presented.common_name());
        if !allowed.is_empty() && !allowed.iter().any(|allowed| allowed == name) {
            return Err(Denied(format!("x509: subject with cn={name} is not in the allowed list")));
        }
        Ok(self.user(headers).map(authenticated))
    }
}

/// What headers with one of these prefixes say: their names without it are keys, and may be percent encoded.
pub fn extra(headers: &HeaderMap, prefixes: &[String]) -> Vec<(String, Vec<String>)> {
    let mut extra: Vec<(String, Vec<String>)> = Vec::new();
    for prefix in prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()) {
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
            let values: Vec<String> =
                headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).map(str::to_owned).collect();
            let key = decoded(key);
            match extra.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => known.extend(values),
                None => extra.push((key, values)),
            }
        }
    }
    extra.sort();
    extra
}
