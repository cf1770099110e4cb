//! TLS towards a peer: whom to believe, and the certificate to show.

use std::sync::Arc;

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::{Error, Trust};

/// Where Linux distributions keep the authorities they trust.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub fn client_config(trust: &Trust, certificate: Option<&(Vec<u8>, Vec<u8>)>) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable("TLS", e))?;
    let builder = match trust {
        Trust::Anybody => builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider))),
        Trust::Authorities(pem) => builder.with_root_certificates(roots("the certificate authority", pem)?),
        Trust::System => {
            let bundle = SYSTEM_AUTHORITIES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
            builder.with_root_certificates(known(&bundle))
        }
    };
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some((certificates, key)) => {
            let what = "the client certificate";
            let chain = certificates_in(certificates).map_err(|e| unusable(what, e))?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|e| unusable("the client key", e))?;
            builder.with_client_auth_cert(chain, key).map_err(|e| unusable(what, e))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// All of these must be usable: somebody has named them.
fn roots(what: &str, pem: &[u8]) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_in(pem).map_err(|e| unusable(what, e))? {
        roots.add(certificate).map_err(|e| unusable(what, e))?;
    }
    if roots.is_empty() {
        return Err(unusable(what, "there is no certificate in it"));
    }
    Ok(roots)
}

/// Those that can be used: bundles of systems have odd ones among them.
fn known(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
    roots
}

fn certificates_in(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

fn unusable(what: &str, reason: impl std::fmt::Display) -> Error {
    Error::Unusable { what: what.to_owned(), reason: reason.to_string() }
}

/// Believes every certificate; the connection is encrypted, but nobody knows to whom.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
