//! Keys and the form of an encrypted value:
//!
//! ```text
//! ferry:enc:aesgcm:v1:<key name>:  nonce (12 bytes)  ciphertext  tag (16 bytes)
//! ```
//!
//! Sealed with AES-256-GCM under a random nonce. The associated data are the header and the key path of the value, so a
//! value does not open at another path, under another name or as another version. With random nonces one key is good
//! for about four thousand million writes; rotate long before.

use std::fmt;

use bytes::Bytes;
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};

use crate::Error;

/// How every encrypted value begins, whatever its version.
pub(super) const MARK: &[u8] = b"ferry:enc:";
const SCHEME: &str = "ferry:enc:aesgcm:v1:";
const LONGEST_NAME: usize = 63;

/// A named key for AES-256-GCM.
#[derive(Clone)]
pub struct Key {
    name: String,
    key: LessSafeKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key name {0:?} is not usable: take 1 to {LONGEST_NAME} letters, digits, dots, dashes and underscores")]
    Name(String),
    #[error("the key {name:?} has {bytes} bytes; it must have 32, all of them random")]
    Length { name: String, bytes: usize },
    #[error("the key name {0:?} is used twice: give every key a name of its own, and never reuse one")]
    Twice(String),
    #[error("there is no encryption key: give at least one")]
    None,
}

impl Key {
    pub fn new(name: impl Into<String>, bytes: &[u8]) -> Result<Self, KeyError> {
        let name = name.into();
        let usable = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(usable) {
            return Err(KeyError::Name(name));
        }
        match UnboundKey::new(&AES_256_GCM, bytes) {
            Ok(key) => Ok(Self { name, key: LessSafeKey::new(key) }),
            Err(_) => Err(KeyError::Length { name, bytes: bytes.len() }),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    fn header(&self) -> String {
        format!("{SCHEME}{}:", self.name)
    }

    /// How many bytes sealing adds.
    fn overhead(&self) -> usize {
        SCHEME.len() + self.name.len() + 1 + NONCE_LEN + AES_256_GCM.tag_len()
    }
}

/// The keys in use: the first one writes, all of them read.
#[derive(Clone, Debug)]
pub struct Keyring {
    first: Key,
    older: Vec<Key>,
}

/// A value as the store has it.
pub(super) enum Stored<'a> {
    Plain,
    Sealed { key: &'a str, body: Bytes },
}

impl Keyring {
    pub fn new(keys: Vec<Key>) -> Result<Self, KeyError> {
        for (index, key) in keys.iter().enumerate() {
            if keys[..index].iter().any(|earlier| earlier.name == key.name) {
                return Err(KeyError::Twice(key.name.clone()));
            }
        }
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or(KeyError::None)?;
        Ok(Self { first, older: keys.collect() })
    }

    pub(super) fn first(&self) -> &Key {
        &self.first
    }

    pub(super) fn overhead(&self) -> usize {
        self.first.overhead()
    }

    fn all(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.first).chain(&self.older)
    }

    /// The value as it is stored at `path`, under the first key.
    pub(super) fn seal(&self, path: &str, value: &[u8]) -> Result<Bytes, Error> {
        let broken = |what: &str| Error::Unavailable(format!("the value of {path} was not encrypted: {what}"));
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| broken("the system gives no random numbers"))?;
        let header = self.first.header();
        let mut sealed = Vec::with_capacity(value.len() + self.first.overhead());
        sealed.extend_from_slice(header.as_bytes());
        sealed.extend_from_slice(&nonce);
        let start = sealed.len();
        sealed.extend_from_slice(value);
        let (aad, nonce) = (associated(&header, path), Nonce::assume_unique_for_key(nonce));
        let tag = self.first.key.seal_in_place_separate_tag(nonce, aad, &mut sealed[start..]);
        sealed.extend_from_slice(tag.map_err(|_| broken("it is too large"))?.as_ref());
        Ok(sealed.into())
    }

    /// The value behind a body that [`stored`] found, sealed at `path`.
    pub(super) fn open(&self, path: &str, name: &str, body: &[u8]) -> Result<Bytes, Error> {
        let unreadable = |reason| Error::Unreadable { key: path.to_owned(), reason };
        let Some(key) = self.all().find(|key| key.name == name) else {
            let known: Vec<&str> = self.all().map(Key::name).collect();
            return Err(unreadable(format!(
                "it is encrypted under the key {name:?}, which is not configured (there are: {}); add that key behind \
                 the others, and take it away only after a rewrite",
                known.join(", ")
            )));
        };
        let changed = || {
            unreadable(format!(
                "it does not open under the key {name:?}: the key's bytes are not those that sealed it, or the value \
                 was changed or moved inside the store; restore it from a backup"
            ))
        };
        let (nonce, sealed) = body.split_first_chunk::<NONCE_LEN>().ok_or_else(changed)?;
        let mut sealed = sealed.to_vec();
        let (aad, nonce) = (associated(&key.header(), path), Nonce::assume_unique_for_key(*nonce));
        let length = key.key.open_in_place(nonce, aad, &mut sealed).map_err(|_| changed())?.len();
        sealed.truncate(length);
        Ok(sealed.into())
    }
}

fn associated(header: &str, path: &str) -> Aad<Vec<u8>> {
    Aad::from([header.as_bytes(), path.as_bytes()].concat())
}

/// What a stored value says of itself.
pub(super) fn stored<'a>(path: &str, value: &'a Bytes) -> Result<Stored<'a>, Error> {
    if !value.starts_with(MARK) {
        return Ok(Stored::Plain);
    }
    let unreadable = |reason: &str| Error::Unreadable { key: path.to_owned(), reason: reason.into() };
    let rest = value.strip_prefix(SCHEME.as_bytes()).ok_or_else(|| {
        unreadable("it is encrypted in a way that this version of Ferry does not know; use a newer one")
    })?;
    let end = rest.iter().take(LONGEST_NAME + 1).position(|byte| *byte == b':');
    let name = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
    let (Some(end), Some(key)) = (end, name) else {
        return Err(unreadable("its header names no key; restore it from a backup"));
    };
    Ok(Stored::Sealed { key, body: value.slice(SCHEME.len() + end + 1..) })
}
