//! The keys of service account tokens.
//!
//! By default they live in a folder of the data directory, one PEM file per key: the first is made at the first start. The
//! last by name signs, all of them vouch for tokens. To rotate: add a key with a later name and start again; once every
//! token of the old key has ended, remove its file and start again. Keys from flags work the same way: one file signs, and
//! all of the given ones vouch.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer, pem::PemObject};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::jws::{self, PublicKey, SigningKey};
use crate::serving::authority::write_private;

/// Where the keys come from.
#[derive(Clone, Debug, Default)]
pub enum Source {
    /// A key that nobody keeps: tokens end with the server.
    #[default]
    Memory,
    Folder(PathBuf),
    /// Without further files, the signing key is the one that vouches.
    Files {
        signing: PathBuf,
        verifying: Vec<PathBuf>,
    },
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot use {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot use the key in {path}: {source}")]
    Key { path: PathBuf, source: jws::Error },
    #[error("{0} holds no usable key in PEM")]
    Empty(PathBuf),
    #[error(transparent)]
    Write(#[from] crate::serving::authority::Error),
    #[error(transparent)]
    Make(#[from] jws::Error),
}

#[derive(Debug)]
pub struct Keys {
    pub signing: SigningKey,
    pub public: Vec<PublicKey>,
}

impl Keys {
    pub fn open(source: &Source) -> Result<Self, Error> {
        let (signing, mut public) = match source {
            Source::Memory => {
                let pem = SigningKey::generate()?;
                (private(pem.as_bytes()).ok_or(jws::Error::Sign)??, Vec::new())
            }
            Source::Folder(folder) => from_folder(folder)?,
            Source::Files { signing, verifying } => {
                let key = signing_key(signing)?;
                let mut public = Vec::new();
                for path in verifying {
                    public.extend(public_keys(path)?);
                }
                (key, public)
            }
        };
        if public.is_empty() {
            public.push(signing.public.clone());
        }
        Ok(Self { signing, public })
    }

    /// The keys as others fetch them.
    pub fn to_jwks(&self) -> Value {
        json!({"keys": self.public.iter().map(PublicKey::to_jwk).collect::<Vec<_>>()})
    }

    /// The algorithms of the keys, each once.
    pub fn algorithms(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.public.iter().map(|key| key.algorithm().name()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn from_folder(folder: &Path) -> Result<(SigningKey, Vec<PublicKey>), Error> {
    let file = |path: &Path, source| Error::File { path: path.to_owned(), source };
    fs::create_dir_all(folder).map_err(|e| file(folder, e))?;
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| file(folder, e))? {
        let path = entry.map_err(|e| file(folder, e))?.path();
        if path.extension().is_some_and(|ending| ending == "key") {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        let path = folder.join("1.key");
        write_private(&path, &SigningKey::generate()?)?;
        paths.push(path);
    }
    paths.sort();
    let keys = paths.iter().map(|path| signing_key(path)).collect::<Result<Vec<_>, _>>()?;
    let public = keys.iter().map(|key| key.public.clone()).collect();
    let newest = keys.into_iter().next_back().ok_or_else(|| Error::Empty(folder.to_owned()))?;
    Ok((newest, public))
}

fn signing_key(path: &Path) -> Result<SigningKey, Error> {
    let pem = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let key = private(&pem).ok_or_else(|| Error::Empty(path.to_owned()))?;
    key.map_err(|source| Error::Key { path: path.to_owned(), source })
}

fn private(pem: &[u8]) -> Option<Result<SigningKey, jws::Error>> {
    let der = PrivateKeyDer::from_pem_slice(pem).ok()?;
    Some(SigningKey::from_der(&der))
}

/// All keys of a file: public ones, those of certificates, and the public part of private ones.
fn public_keys(path: &Path) -> Result<Vec<PublicKey>, Error> {
    let pem = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let failed = |source| Error::Key { path: path.to_owned(), source };
    let mut keys = Vec::new();
    for der in SubjectPublicKeyInfoDer::pem_slice_iter(&pem).flatten() {
        keys.push(PublicKey::from_der(&der).map_err(failed)?);
    }
    for der in PrivateKeyDer::pem_slice_iter(&pem).flatten() {
        keys.push(SigningKey::from_der(&der).map_err(failed)?.public);
    }
    for der in CertificateDer::pem_slice_iter(&pem).flatten() {
        let (_, certificate) =
            X509Certificate::from_der(&der).map_err(|e| failed(jws::Error::BadKey(e.to_string())))?;
        keys.push(PublicKey::from_der(certificate.public_key().raw).map_err(failed)?);
    }
    if keys.is_empty() { Err(Error::Empty(path.to_owned())) } else { Ok(keys) }
}
