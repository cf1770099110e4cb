//! TLS: our server certificate, renewed while running, and clients known by theirs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{self, WebPkiSupportedAlgorithms, ring},
    pki_types::{CertificateDer, UnixTime},
    server::{
        ClientHello, ResolvesServerCert,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};

use super::authority::{Authority, Error, Names};

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

/// The TLS settings of the API server. A client certificate is optional, and may be anybody's: see [`AnyClient`].
pub fn server_config(certificate: Arc<ServerCertificate>) -> Result<ServerConfig, Error> {
    let unusable = |e: rustls::Error| Error::Unusable { path: "TLS".into(), reason: e.to_string() };
    let provider = Arc::new(ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(unusable)?
        .with_client_cert_verifier(Arc::new(AnyClient(provider.signature_verification_algorithms)))
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Takes every certificate whose key the client holds. Which authority it is of decides what it is good for, and one of
/// nobody's is refused with a status that says so instead of a broken connection: that is authentication's.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_get_the_renewed_certificate() {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::open(folder.path()).expect("an authority");
        let names = Names { dns: vec!["localhost".into()], ..Names::default() };
        let certificate = ServerCertificate::new(&authority, &names).expect("a certificate");
        let first = certificate.current.load_full();
        certificate.renew(&authority, &names).expect("another one");
        assert_ne!(certificate.current.load().cert[0], first.cert[0]);
        assert_eq!(certificate.current.load().cert[1], first.cert[1], "of the same authority");
    }
}
