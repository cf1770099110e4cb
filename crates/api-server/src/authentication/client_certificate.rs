//! Client certificates: of one of our authorities, the common name is the user and the organisations are its groups.
//!
//! TLS takes any certificate whose key the client holds. Which authority it is of is decided here, once per connection and
//! set of authorities; that it has not ended meanwhile is checked on every request.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use hyper::HeaderMap;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use ring::digest::{SHA256, digest};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Authenticator, CREDENTIAL_ID, Denied, Error, authenticated};
use crate::{
    context::{Annotations, User},
    serving::Peer,
};

/// The attribute of a subject that is the user's uid.
const UID: &str = "1.3.6.1.4.1.57683.2";

/// A certificate that a client presented, and what was found out about it on its connection.
#[derive(Debug)]
pub struct Presented {
    chain: Vec<CertificateDer<'static>>,
    user: User,
    /// There is no telling them apart.
    several_uids: bool,
    not_after: SystemTime,
    as_client: OnceLock<Result<Option<Arc<User>>, Denied>>,
    as_proxy: OnceLock<Result<(), Denied>>,
}

impl Presented {
    /// `None` if there is none that can be read.
    pub fn read(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
        let subject = leaf.subject();
        let names = subject.iter_common_name().filter_map(|name| name.as_str().ok());
        let groups = subject.iter_organization().filter_map(|name| name.as_str().ok()).map(str::to_owned);
        let uids = subject.iter_attributes().filter(|attribute| attribute.attr_type().to_id_string() == UID);
        let uids: Vec<&str> = uids.filter_map(|attribute| attribute.as_str().ok()).collect();
        let hash: String = digest(&SHA256, chain.first()?).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let user = User {
            // The last one counts, as in Go.
            name: names.last().unwrap_or_default().to_owned(),
            uid: uids.first().map(|uid| (*uid).to_owned()).unwrap_or_default(),
            groups: groups.collect(),
            extra: vec![(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={hash}")])],
        };
        let end = u64::try_from(leaf.validity().not_after.timestamp()).unwrap_or_default();
        Some(Self {
            chain: chain.iter().map(|certificate| certificate.clone().into_owned()).collect(),
            user,
            several_uids: uids.len() > 1,
            not_after: SystemTime::UNIX_EPOCH + Duration::from_secs(end),
            as_client: OnceLock::new(),
            as_proxy: OnceLock::new(),
        })
    }

    pub fn common_name(&self) -> &str {
        &self.user.name
    }

    /// Is it of one of the authorities of proxies?
    pub fn is_of_proxy(&self, authorities: &Authorities) -> Result<(), Denied> {
        self.as_proxy.get_or_init(|| authorities.vouch_for(self)).clone()?;
        self.is_current()
    }

    fn is_current(&self) -> Result<(), Denied> {
        if SystemTime::now() > self.not_after { Err(Denied::new("the certificate has expired")) } else { Ok(()) }
    }
}

/// Certificate authorities that clients' certificates may be of.
pub struct Authorities(Option<Arc<dyn ClientCertVerifier>>);

impl Authorities {
    pub fn new(certificates: &[CertificateDer<'static>]) -> Result<Self, Error> {
        if certificates.is_empty() {
            return Ok(Self(None));
        }
        let unusable = |reason: String| Error::Unusable { what: "a certificate of a client authority".into(), reason };
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate.clone()).map_err(|e| unusable(e.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self(Some(verifier.map_err(|e| unusable(e.to_string()))?)))
    }

    /// Is the certificate of one of these authorities, and good now?
    fn vouch_for(&self, presented: &Presented) -> Result<(), Denied> {
        let Some(verifier) = &self.0 else { return Err(Denied::new("there is no authority for client certificates")) };
        let Some((leaf, between)) = presented.chain.split_first() else {
            return Err(Denied::new("no certificate was presented"));
        };
        let verified = verifier.verify_client_cert(leaf, between, UnixTime::now());
        verified.map(drop).map_err(|e| Denied(format!("verifying certificate failed: {e}")))
    }
}

pub struct ClientCertificate(Authorities);

impl ClientCertificate {
    pub fn new(authorities: &[CertificateDer<'static>]) -> Result<Self, Error> {
        Authorities::new(authorities).map(Self)
    }

    fn user(&self, presented: &Presented) -> Result<Option<Arc<User>>, Denied> {
        self.0.vouch_for(presented)?;
        if presented.several_uids {
            return Err(Denied::new("expected 1 UID, but found multiple"));
        }
        // A certificate without a name is nobody's.
        Ok(Some(&presented.user).filter(|user| !user.name.is_empty()).cloned().map(authenticated))
    }
}

#[async_trait]
impl Authenticator for ClientCertificate {
    async fn authenticate(&self, peer: &Peer, _: &HeaderMap, _: &Annotations) -> Result<Option<Arc<User>>, Denied> {
        let Some(presented) = peer.presented.as_deref().filter(|_| self.0.0.is_some()) else { return Ok(None) };
        let user = presented.as_client.get_or_init(|| self.user(presented)).clone()?;
        presented.is_current().map(|()| user)
    }
}
