//! Keys and the form of an encrypted value, byte for byte as Kubernetes has it:
//!
//! ```text
//! k8s:enc:aesgcm:v1:<key name>:     nonce (12 bytes)  ciphertext  tag (16 bytes)
//! k8s:enc:secretbox:v1:<key name>:  nonce (24 bytes)  tag (16 bytes)  ciphertext
//! k8s:enc:aescbc:v1:<key name>:     vector (16 bytes)  ciphertext, padded as PKCS #7
//! ```
//!
//! Nonces are random. With AES-GCM the path of the key in the store is authenticated along, so a value does not open
//! at another path; one key is good for about four thousand million writes, so rotate long before. Secretbox
//! authenticates the value alone, and AES-CBC nothing: it is there to read what was written with it.

use std::fmt;

use aes::{
    Aes128, Aes192, Aes256,
    cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::Pkcs7},
};
use bytes::Bytes;
use crypto_secretbox::{AeadInPlace, KeyInit, XSalsa20Poly1305};
use ring::{
    aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

use crate::Error;

/// How every encrypted value begins, whatever its provider.
pub(super) const MARK: &[u8] = b"k8s:enc:";
const TAG: usize = 16;
const BLOCK: usize = 16;
const SECRETBOX_NONCE: usize = 24;

/// How a key seals. Kubernetes calls these providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    AesGcm,
    AesCbc,
    Secretbox,
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cipher::AesGcm => "aesgcm",
            Cipher::AesCbc => "aescbc",
            Cipher::Secretbox => "secretbox",
        })
    }
}

/// A named key.
#[derive(Clone)]
pub struct Key {
    name: String,
    header: String,
    secret: Secret,
}

#[derive(Clone)]
enum Secret {
    AesGcm(Box<LessSafeKey>),
    AesCbc(Vec<u8>),
    Secretbox(Box<XSalsa20Poly1305>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).field("cipher", &self.cipher()).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key name {0:?} is not usable: it must not be empty, nor contain a colon")]
    Name(String),
    #[error("the key {name:?} has {bytes} bytes; {cipher} wants {wanted}, all of them random")]
    Length { name: String, bytes: usize, cipher: Cipher, wanted: &'static str },
}

impl Key {
    pub fn new(cipher: Cipher, name: impl Into<String>, bytes: &[u8]) -> Result<Self, KeyError> {
        let name = name.into();
        if name.is_empty() || name.contains(':') {
            return Err(KeyError::Name(name));
        }
        let (secret, wanted) = match cipher {
            Cipher::AesGcm => {
                let algorithm = if bytes.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
                (
                    UnboundKey::new(algorithm, bytes).ok().map(|k| Secret::AesGcm(Box::new(LessSafeKey::new(k)))),
                    "16 or 32",
                )
            }
            Cipher::AesCbc => {
                (matches!(bytes.len(), 16 | 24 | 32).then(|| Secret::AesCbc(bytes.into())), "16, 24 or 32")
            }
            Cipher::Secretbox => {
                (XSalsa20Poly1305::new_from_slice(bytes).ok().map(|k| Secret::Secretbox(Box::new(k))), "32")
            }
        };
        match secret {
            Some(secret) => Ok(Self { header: format!("k8s:enc:{cipher}:v1:{name}:"), name, secret }),
            None => Err(KeyError::Length { name, bytes: bytes.len(), cipher, wanted }),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn cipher(&self) -> Cipher {
        match &self.secret {
            Secret::AesGcm(_) => Cipher::AesGcm,
            Secret::AesCbc(_) => Cipher::AesCbc,
            Secret::Secretbox(_) => Cipher::Secretbox,
        }
    }

    /// How every value begins that this key has sealed.
    pub(super) fn header(&self) -> &str {
        &self.header
    }

    /// The value as it is stored at `path`.
    pub(super) fn seal(&self, path: &str, value: &[u8]) -> Result<Bytes, Error> {
        let broken = |what: &str| Error::Unavailable(format!("the value of {path} was not encrypted: {what}"));
        let mut sealed = Vec::with_capacity(self.header.len() + SECRETBOX_NONCE + TAG + BLOCK + value.len());
        sealed.extend_from_slice(self.header.as_bytes());
        let random =
            |into: &mut [u8]| SystemRandom::new().fill(into).map_err(|_| broken("the system gives no random numbers"));
        match &self.secret {
            Secret::AesGcm(key) => {
                let mut nonce = [0; NONCE_LEN];
                random(&mut nonce)?;
                sealed.extend_from_slice(&nonce);
                let start = sealed.len();
                sealed.extend_from_slice(value);
                let (nonce, path) = (Nonce::assume_unique_for_key(nonce), Aad::from(path.as_bytes()));
                let tag = key.seal_in_place_separate_tag(nonce, path, &mut sealed[start..]);
                sealed.extend_from_slice(tag.map_err(|_| broken("it is too large"))?.as_ref());
            }
            Secret::Secretbox(key) => {
                let mut nonce = [0; SECRETBOX_NONCE];
                random(&mut nonce)?;
                sealed.extend_from_slice(&nonce);
                let start = sealed.len();
                sealed.extend_from_slice(&[0; TAG]);
                sealed.extend_from_slice(value);
                let (tag, text) = sealed[start..].split_at_mut(TAG);
                let made = key.encrypt_in_place_detached(&nonce.into(), b"", text);
                tag.copy_from_slice(&made.map_err(|_| broken("it is too large"))?);
            }
            Secret::AesCbc(key) => {
                let mut vector = [0; BLOCK];
                random(&mut vector)?;
                sealed.extend_from_slice(&vector);
                sealed.extend_from_slice(&cbc_seal(key, &vector, value).ok_or_else(|| broken("the key is unusable"))?);
            }
        }
        Ok(sealed.into())
    }

    /// The value behind what follows the header of a value that is stored at `path`; `None` if it does not open.
    pub(super) fn open(&self, path: &str, body: &[u8]) -> Option<Bytes> {
        match &self.secret {
            Secret::AesGcm(key) => {
                let (nonce, sealed) = body.split_first_chunk::<NONCE_LEN>()?;
                let mut sealed = sealed.to_vec();
                let (nonce, path) = (Nonce::assume_unique_for_key(*nonce), Aad::from(path.as_bytes()));
                let length = key.open_in_place(nonce, path, &mut sealed).ok()?.len();
                sealed.truncate(length);
                Some(sealed.into())
            }
            Secret::Secretbox(key) => {
                let (nonce, sealed) = body.split_first_chunk::<SECRETBOX_NONCE>()?;
                let (tag, text) = sealed.split_first_chunk::<TAG>()?;
                let mut text = text.to_vec();
                key.decrypt_in_place_detached(nonce.into(), b"", &mut text, tag.into()).ok()?;
                Some(text.into())
            }
            Secret::AesCbc(key) => {
                let (vector, sealed) = body.split_first_chunk::<BLOCK>()?;
                cbc_open(key, vector, sealed).map(Into::into)
            }
        }
    }
}

pub(super) fn cbc_seal(key: &[u8], vector: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    fn with<C: BlockEncryptMut + KeyIvInit>(key: &[u8], vector: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let mut out = vec![0; (value.len() / BLOCK + 1) * BLOCK];
        C::new_from_slices(key, vector).ok()?.encrypt_padded_b2b_mut::<Pkcs7>(value, &mut out).ok()?;
        Some(out)
    }
    match key.len() {
        16 => with::<cbc::Encryptor<Aes128>>(key, vector, value),
        24 => with::<cbc::Encryptor<Aes192>>(key, vector, value),
        _ => with::<cbc::Encryptor<Aes256>>(key, vector, value),
    }
}

fn cbc_open(key: &[u8], vector: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    fn with<C: BlockDecryptMut + KeyIvInit>(key: &[u8], vector: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let mut out = sealed.to_vec();
        let length = C::new_from_slices(key, vector).ok()?.decrypt_padded_mut::<Pkcs7>(&mut out).ok()?.len();
        out.truncate(length);
        Some(out)
    }
    match key.len() {
        16 => with::<cbc::Decryptor<Aes128>>(key, vector, sealed),
        24 => with::<cbc::Decryptor<Aes192>>(key, vector, sealed),
        _ => with::<cbc::Decryptor<Aes256>>(key, vector, sealed),
    }
}
