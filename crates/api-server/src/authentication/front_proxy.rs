//! Headers of a proxy that has authenticated its client already. They count only on a connection whose certificate is of
//! the proxies' own authority, and has one of the allowed names; on any other they are just headers.

use std::sync::Arc;

use async_trait::async_trait;
use hyper::{HeaderMap, header::HeaderValue};
use rustls::pki_types::CertificateDer;

use super::{Authenticator, Denied, Error, authenticated, client_certificate::Authorities};
use crate::{
    context::{Annotations, User},
    request_info::decoded,
    serving::Peer,
};

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
        let one = |names: &[String]| {
            let mut values = names.iter().filter_map(|name| headers.get(name).map(text));
            values.find(|value| !value.is_empty())
        };
        let name = one(&self.settings.user_headers)?;
        let groups = self.settings.group_headers.iter().flat_map(|name| headers.get_all(name));
        let groups = groups.map(text).filter(|group| !group.is_empty());
        Some(User {
            name,
            uid: one(&self.settings.uid_headers).unwrap_or_default(),
            groups: groups.collect(),
            extra: extra(headers, &self.settings.extra_prefixes),
        })
    }
}

#[async_trait]
impl Authenticator for FrontProxy {
    async fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        _: &Annotations,
    ) -> Result<Option<Arc<User>>, Denied> {
        let Some(presented) = peer.presented.as_deref() else { return Ok(None) };
        presented.is_of_proxy(&self.authorities)?;
        let (allowed, name) = (&self.settings.allowed_names, presented.common_name());
        if !allowed.is_empty() && !allowed.iter().any(|allowed| allowed == name) {
            return Err(Denied(format!("x509: subject with cn={name} is not in the allowed list")));
        }
        Ok(self.user(headers).map(authenticated))
    }

    fn forget(&self, headers: &mut HeaderMap) {
        let Settings { user_headers, uid_headers, group_headers, extra_prefixes, .. } = &self.settings;
        for name in [user_headers, uid_headers, group_headers].into_iter().flatten() {
            headers.remove(name);
        }
        let is_extra = |name: &str| extra_prefixes.iter().any(|prefix| name.starts_with(&prefix.to_ascii_lowercase()));
        let told: Vec<_> = headers.keys().filter(|name| is_extra(name.as_str())).cloned().collect();
        for name in told {
            headers.remove(name);
        }
    }
}

/// What a header says. One that is no text is not left out, since leaving out who somebody is can make them somebody else.
pub fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

/// What headers with one of these prefixes say: their names without it are keys, and may be percent encoded.
pub fn extra(headers: &HeaderMap, prefixes: &[String]) -> Vec<(String, Vec<String>)> {
    let mut extra: Vec<(String, Vec<String>)> = Vec::new();
    for prefix in prefixes.iter().map(|prefix| prefix.to_ascii_lowercase()) {
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
            let values: Vec<String> = headers.get_all(name).iter().map(text).collect();
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
