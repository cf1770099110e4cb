//! Encryption at rest, as a layer: a [`Store`] over a [`Store`] that holds only sealed values.
//!
//! Kubernetes calls this an encryption configuration. What is written below the chosen prefixes is sealed under the
//! first key of the [`Keyring`]; what is read may be sealed under any of its keys, or plain text from before
//! encryption. Keys, revisions and sizes are not hidden. See `docs/design/encryption.md` for how to rotate keys.
//!
//! - A sealed value opens only at its own path: nobody who can write to the store below can swap two secrets.
//! - Plain text is accepted until [`Encrypted::refusing_plain_text`], since otherwise the first key could never be
//!   introduced. Whoever writes to the store below can plant plain text until then.
//! - A value that does not open is an error ([`Error::Unreadable`]) of the read that meets it, never empty or skipped.
//!   It can still be deleted.

mod keys;
mod rewrite;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use self::keys::{MARK, Stored, stored};
pub use self::{
    keys::{Key, KeyError, Keyring},
    rewrite::Rewritten,
};
use crate::{
    At, Change, Error, KeyValue, MAX_VALUE_BYTES, Operation, Outcome, Page, Range, Revision, Store, Transaction, Watch,
    WatchEvent,
};

/// A store whose values are sealed in the store below.
pub struct Encrypted {
    inner: Arc<dyn Store>,
    rules: Arc<Rules>,
}

/// Which values are sealed, and how.
struct Rules {
    keys: Keyring,
    prefixes: Vec<String>,
    refuse_plain_text: bool,
}

impl Encrypted {
    /// Seals the values of keys that start with one of `prefixes`. With none, it only reads what was sealed before.
    pub fn new(inner: Arc<dyn Store>, keys: Keyring, prefixes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let prefixes = prefixes.into_iter().map(Into::into).collect();
        Self { inner, rules: Arc::new(Rules { keys, prefixes, refuse_plain_text: false }) }
    }

    /// Reads nothing below the prefixes that is not sealed. For when all of it has been rewritten.
    pub fn refusing_plain_text(self) -> Self {
        let Rules { keys, prefixes, .. } = &*self.rules;
        let rules = Rules { keys: keys.clone(), prefixes: prefixes.clone(), refuse_plain_text: true };
        Self { inner: self.inner, rules: Arc::new(rules) }
    }

    /// The largest value that still fits in the store below when sealed.
    pub fn largest_value(&self) -> usize {
        MAX_VALUE_BYTES - self.rules.keys.overhead()
    }
}

impl Rules {
    fn seals(&self, path: &str) -> bool {
        self.prefixes.iter().any(|prefix| path.starts_with(prefix))
    }

    /// A value as it is stored. Plain text that looks like a sealed value is sealed wherever it is, or it could not be
    /// read again.
    fn outgoing(&self, path: &str, value: Bytes) -> Result<Bytes, Error> {
        if self.seals(path) || value.starts_with(MARK) { self.keys.seal(path, &value) } else { Ok(value) }
    }

    fn incoming(&self, mut kv: KeyValue) -> Result<KeyValue, Error> {
        kv.value = self.value(&kv.key, kv.value)?;
        Ok(kv)
    }

    fn value(&self, path: &str, value: Bytes) -> Result<Bytes, Error> {
        match stored(path, &value)? {
            Stored::Sealed { key, body } => self.keys.open(path, key, &body),
            Stored::Plain if self.refuse_plain_text && self.seals(path) => Err(Error::Unreadable {
                key: path.to_owned(),
                reason: "it is not encrypted, and plain text is refused here; if it was written before encryption \
                         was turned on, accept plain text and rewrite it"
                    .into(),
            }),
            Stored::Plain => Ok(value),
        }
    }

    fn event(&self, event: WatchEvent) -> Result<WatchEvent, Error> {
        let WatchEvent::Changes { revision, changes } = event else { return Ok(event) };
        let opened = changes.into_iter().map(|change| match change {
            Change::Put(kv) => self.incoming(kv).map(Change::Put),
            delete @ Change::Delete { .. } => Ok(delete),
        });
        Ok(WatchEvent::Changes { revision, changes: opened.collect::<Result<_, _>>()? })
    }
}

#[async_trait]
impl Store for Encrypted {
    async fn current_revision(&self) -> Result<Revision, Error> {
        self.inner.current_revision().await
    }

    async fn get(&self, key: &str, revision: Option<Revision>) -> Result<At<Option<KeyValue>>, Error> {
        let At { revision, value } = self.inner.get(key, revision).await?;
        Ok(At { revision, value: value.map(|kv| self.rules.incoming(kv)).transpose()? })
    }

    async fn range(&self, range: Range) -> Result<At<Page>, Error> {
        let At { revision, value: Page { items, remaining } } = self.inner.range(range).await?;
        let items = items.into_iter().map(|kv| self.rules.incoming(kv)).collect::<Result<_, _>>()?;
        Ok(At { revision, value: Page { items, remaining } })
    }

    async fn commit(&self, mut transaction: Transaction) -> Result<Outcome, Error> {
        transaction.validate()?;
        for operation in &mut transaction.operations {
            if let Operation::Put { key, value, .. } = operation {
                *value = self.rules.outgoing(key, std::mem::take(value))?;
            }
        }
        match self.inner.commit(transaction).await? {
            Outcome::Conflict(At { revision, value }) => {
                let opened = value.into_iter().map(|kv| kv.map(|kv| self.rules.incoming(kv)).transpose());
                Ok(Outcome::Conflict(At { revision, value: opened.collect::<Result<_, _>>()? }))
            }
            committed => Ok(committed),
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        let rules = self.rules.clone();
        Ok(self.inner.watch(prefix, after).await?.translated(move |event| rules.event(event)))
    }

    async fn request_progress(&self) -> Result<(), Error> {
        self.inner.request_progress().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.inner.compact(revision).await
    }
}
