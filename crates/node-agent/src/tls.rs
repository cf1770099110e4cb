//! TLS of the agent's server: any certificate for itself, and clients known by one of the cluster's authority.

use std::sync::Arc;

use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::CertificateDer,
    server::{ResolvesServerCert, WebPkiClientVerifier},
};

/// A client may come without a certificate and show a token instead; one of another authority is refused.
pub fn server_config(
    own: Arc<dyn ResolvesServerCert>,
    authority: CertificateDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let mut authorities = RootCertStore::empty();
    authorities.add(authority)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(own);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
