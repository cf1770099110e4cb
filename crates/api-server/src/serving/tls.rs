//! TLS: our server certificate, renewed while running, and clients known by theirs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::CertificateDer,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::authority::{Authority, Error, LEAF_DAYS, Names};

/// The server's certificate. Connections made after [`ServerCertificate::renew`] get the new one.
#[derive(Debug)]
pub struct ServerCertificate {
    current: ArcSwap<CertifiedKey>,
}

impl ServerCertificate {
    pub fn new(authority: &Authority, names: &Names) -> Result<Self, Error> {
        Ok(Self { current: ArcSwap::from_pointee(certified(authority, names)?) })
    }

    /// For other names, or because the old certificate is about to end.
    pub fn renew(&self, authority: &Authority, names: &Names) -> Result<(), Error> {
        self.current.store(Arc::new(certified(authority, names)?));
        Ok(())
    }

    /// After how long a new certificate is due.
    pub fn lifetime() -> std::time::Duration {
        std::time::Duration::from_secs(LEAF_DAYS as u64 * 86_400 * 2 / 3)
    }
}

impl ResolvesServerCert for ServerCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn certified(authority: &Authority, names: &Names) -> Result<CertifiedKey, Error> {
    let (certificate, key) = authority.server(names)?.der()?;
    CertifiedKey::from_der(vec![certificate, authority.certificate()?], key, &ring::default_provider())
        .map_err(|e| Error::Unusable { path: "leaf".into(), reason: e.to_string() })
}

/// The TLS settings of the API server: a client certificate is optional, but must be of our authority.
pub fn server_config(authority: &Authority, certificate: Arc<ServerCertificate>) -> Result<ServerConfig, Error> {
    let unusable = |reason: String| Error::Unusable { path: "ca.crt".into(), reason };
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate()?).map_err(|e| unusable(e.to_string()))?;
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|e| unusable(e.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(e.to_string()))?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// The user (common name) and groups (organisations) of a verified client certificate.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<(String, Vec<String>)> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let user = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = parsed.subject().iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    Some((user, groups))
}
