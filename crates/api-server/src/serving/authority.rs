//! The cluster's certificate authority, and the certificates it signs.
//!
//! The authority is made at the first start and lives in the data folder for ten years. Leaf certificates live one year
//! and are made anew, without a restart, when two thirds of that have passed.

use std::{
    fs,
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::{
    crypto::ring::sign::any_supported_type,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::SigningKey,
};
use time::{Duration, OffsetDateTime};

const AUTHORITY_YEARS: i64 = 10;
const LEAF_DAYS: i64 = 365;
/// When leaf certificates are made anew.
pub const RENEW_AFTER: std::time::Duration = std::time::Duration::from_secs(LEAF_DAYS as u64 * 86_400 * 2 / 3);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    #[error("{path} does not hold a usable key or certificate: {reason}; move it away to have a new one made")]
    Unusable { path: PathBuf, reason: String },
}

pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
    key: Arc<dyn SigningKey>,
}

/// A certificate with its key.
pub struct Leaf {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Who a server certificate is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    pub dns: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

impl Authority {
    /// Opens the authority in `folder`, or makes one there.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
        if !key.exists() {
            fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
            let pair = KeyPair::generate()?;
            let made = authority_params().self_signed(&pair)?;
            write_private(&certificate, &made.pem())?;
            write_private(&key, &pair.serialize_pem())?;
        }
        let key_pem = read(&key)?;
        let pair =
            KeyPair::from_pem(&key_pem).map_err(|e| Error::Unusable { path: key.clone(), reason: e.to_string() })?;
        let certificate_pem = read(&certificate)?;
        let unusable = |reason: String| Error::Unusable { path: key.clone(), reason };
        let der = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|e| unusable(e.to_string()))?;
        let key = any_supported_type(&der).map_err(|e| unusable(e.to_string()))?;
        Ok(Self { certificate_pem, issuer: Issuer::new(authority_params(), pair), key })
    }

    /// The authority's own certificate, which clients trust.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    pub fn certificate(&self) -> Result<CertificateDer<'static>, Error> {
        CertificateDer::from_pem_slice(self.certificate_pem.as_bytes())
            .map_err(|e| Error::Unusable { path: "ca.crt".into(), reason: e.to_string() })
    }

    pub fn signing_key(&self) -> &dyn SigningKey {
        &*self.key
    }

    pub fn server(&self, names: &Names) -> Result<Leaf, Error> {
        let mut params = leaf_params("kube-apiserver", None, ExtendedKeyUsagePurpose::ServerAuth);
        params.subject_alt_names = names.addresses.iter().map(|a| SanType::IpAddress(*a)).collect();
        for name in &names.dns {
            params.subject_alt_names.push(SanType::DnsName(name.as_str().try_into()?));
        }
        self.sign(params)
    }

    /// A client certificate: the user is its common name, the group its organisation.
    pub fn client(&self, user: &str, group: &str) -> Result<Leaf, Error> {
        self.sign(leaf_params(user, Some(group), ExtendedKeyUsagePurpose::ClientAuth))
    }

    fn sign(&self, params: CertificateParams) -> Result<Leaf, Error> {
        let pair = KeyPair::generate()?;
        let certificate = params.signed_by(&pair, &self.issuer)?;
        Ok(Leaf { certificate_pem: certificate.pem(), key_pem: pair.serialize_pem() })
    }
}

impl Leaf {
    pub fn der(&self) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Error> {
        let unusable =
            |e: rustls::pki_types::pem::Error| Error::Unusable { path: "leaf".into(), reason: e.to_string() };
        let certificate = CertificateDer::from_pem_slice(self.certificate_pem.as_bytes()).map_err(unusable)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(unusable)?;
        Ok((certificate, key))
    }
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "ferry-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    valid_for(&mut params, Duration::days(365 * AUTHORITY_YEARS));
    params
}

fn leaf_params(name: &str, organisation: Option<&str>, usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organisation) = organisation {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    valid_for(&mut params, Duration::days(LEAF_DAYS));
    params
}

/// From a little before now, since clocks differ.
fn valid_for(params: &mut CertificateParams, duration: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::minutes(5);
    params.not_after = now + duration;
}

/// All certificates of a file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let pem = read(path)?;
    let unusable = |reason: String| Error::Unusable { path: path.to_owned(), reason };
    let found = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|e| unusable(e.to_string()))?;
    if found.is_empty() { Err(unusable("there is no certificate in it".into())) } else { Ok(found) }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Writes a file that only its owner can read, all of it or nothing.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let temporary = path.with_added_extension("new");
    let _ = fs::remove_file(&temporary);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}
