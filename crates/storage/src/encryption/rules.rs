//! Which values are stored in which form.

use bytes::Bytes;

use super::keys::{Key, MARK};
use crate::Error;

/// How a value may be stored.
#[derive(Clone, Debug)]
pub enum Form {
    /// As it is. Kubernetes calls this the identity provider.
    Plain,
    Sealed(Key),
}

/// The forms of the values below some prefixes: the first one is written, all of them are read.
#[derive(Clone, Debug)]
pub struct Rule {
    pub prefixes: Vec<String>,
    pub forms: Vec<Form>,
}

/// The first rule that has a prefix of a key's path decides; a value that none is about is plain.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<Rule>);

impl Rules {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self(rules)
    }

    fn rule(&self, path: &str) -> Option<&Rule> {
        self.0.iter().find(|rule| rule.prefixes.iter().any(|prefix| path.starts_with(prefix)))
    }

    /// The key that seals what is written at `path`.
    fn key(&self, path: &str) -> Option<&Key> {
        match self.rule(path)?.forms.first()? {
            Form::Plain => None,
            Form::Sealed(key) => Some(key),
        }
    }

    /// Every key, those that are meant for `path` first. The others are tried too, so that a value that was sealed
    /// under an earlier rule can be read and written anew.
    fn keys<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a Key> {
        let own = self.rule(path);
        own.into_iter().chain(&self.0).flat_map(|rule| &rule.forms).filter_map(|form| match form {
            Form::Plain => None,
            Form::Sealed(key) => Some(key),
        })
    }

    /// Whether a stored value has the form in which it would be written now.
    pub(super) fn is_due(&self, path: &str, stored: &[u8]) -> bool {
        match self.key(path) {
            Some(key) => stored.starts_with(key.header().as_bytes()),
            None => !stored.starts_with(MARK),
        }
    }

    /// The value as it is stored.
    pub(super) fn written(&self, path: &str, value: Bytes) -> Result<Bytes, Error> {
        match self.key(path) {
            Some(key) => key.seal(path, &value),
            // Nobody could tell it from a sealed one.
            None if value.starts_with(MARK) => {
                Err(Error::Invalid(format!("the value of {path} begins as encrypted values do, and is not one")))
            }
            None => Ok(value),
        }
    }

    /// The value that is stored in some form.
    pub(super) fn opened(&self, path: &str, stored: Bytes) -> Result<Bytes, Error> {
        if !stored.starts_with(MARK) {
            return match self.rule(path) {
                Some(rule) if !rule.forms.iter().any(|form| matches!(form, Form::Plain)) => Err(unreadable(
                    path,
                    "it is not encrypted, and plain text is refused here; if it was written before encryption was \
                     turned on, add the provider identity behind the others until it has been rewritten",
                )),
                _ => Ok(stored),
            };
        }
        let mut refused = None;
        for key in self.keys(path) {
            let Some(body) = stored.strip_prefix(key.header().as_bytes()) else { continue };
            match key.open(path, body) {
                Some(value) => return Ok(value),
                None => refused = Some(key),
            }
        }
        Err(match refused {
            Some(key) => unreadable(
                path,
                format!(
                    "it does not open under the {} key {:?}: the key's bytes are not those that sealed it, or the \
                     value was changed or moved inside the store; restore it from a backup",
                    key.cipher(),
                    key.name()
                ),
            ),
            None => unreadable(path, self.missing(&stored)),
        })
    }

    /// Why no key fits the header of a sealed value.
    fn missing(&self, stored: &[u8]) -> String {
        let mut parts = stored[MARK.len()..].splitn(4, |byte| *byte == b':');
        let mut part = || parts.next().map(String::from_utf8_lossy).unwrap_or_default();
        let (provider, version, name) = (part(), part(), part());
        let known: Vec<String> = self.keys("").map(|key| format!("{}:{}", key.cipher(), key.name())).collect();
        match &*provider {
            "aesgcm" | "aescbc" | "secretbox" if version == "v1" => format!(
                "it is encrypted under the {provider} key {name:?}, which is not configured (there are: {}); add that \
                 key behind the others, and take it away only after a rewrite",
                known.join(", ")
            ),
            _ => format!("it is encrypted by the provider {provider:?} {version}, which Ferry does not know"),
        }
    }
}

fn unreadable(path: &str, reason: impl Into<String>) -> Error {
    Error::Unreadable { key: path.to_owned(), reason: reason.into() }
}
