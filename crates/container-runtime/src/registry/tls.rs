//! TLS towards registries: the system's authorities, others by configuration, or none where that is asked for by name.

use std::{fs, path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};

use super::{RegistryError, hosts::Tls};

/// Where Linux distributions keep the authorities they trust.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub(super) fn client_config(tls: &Tls) -> Result<ClientConfig, RegistryError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| RegistryError::Tls(error.to_string()))?;
    let builder = match &tls.ca_file {
        _ if tls.insecure_skip_verify => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        }
        Some(file) => builder.with_root_certificates(roots(&read(file)?)),
        None => {
            let bundle = SYSTEM_AUTHORITIES.iter().find_map(|path| fs::read(path).ok()).unwrap_or_default();
            builder.with_root_certificates(roots(&bundle))
        }
    };
    match (&tls.cert_file, &tls.key_file) {
        (Some(certificate), Some(key)) => {
            let bad = |error: String| RegistryError::Tls(format!("{}: {error}", certificate.display()));
            let chain = CertificateDer::pem_slice_iter(&read(certificate)?)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| bad(error.to_string()))?;
            let key = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| bad(error.to_string()))?;
            builder.with_client_auth_cert(chain, key).map_err(|error| bad(error.to_string()))
        }
        _ => Ok(builder.with_no_client_auth()),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, RegistryError> {
    fs::read(file).map_err(|error| RegistryError::Tls(format!("{}: {error}", file.display())))
}

/// Those that can be used: systems carry some that cannot.
fn roots(pem: &[u8]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).flatten());
    roots
}

/// Believes any certificate, but not that somebody has the key of a certificate that is not theirs.
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
