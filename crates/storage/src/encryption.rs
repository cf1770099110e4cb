//! Encryption at rest, as a layer: a [`Store`] over a [`Store`] that holds sealed values.
//!
//! Kubernetes calls this an encryption configuration; the stored form is Kubernetes' own. [`Rules`] say which values are
//! written how, and what else may be read. Keys, revisions and sizes are not hidden. See `docs/design/encryption.md` for
//! how to rotate keys.
//!
//! - A value sealed with AES-GCM opens only at its own path: nobody who can write to the store below can swap two secrets.
//! - Plain text is accepted only where the rules say so. Whoever writes to the store below can plant it there.
//! - A value that does not open is an error ([`Error::Unreadable`]) of the read that meets it, never empty or skipped.
//!   It can still be deleted.

mod keys;
mod rewrite;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;

pub use self::{
    keys::{Cipher, Key, KeyError},
    rewrite::Rewritten,
    rules::{Form, Rule, Rules},
};
use crate::{
    At, Change, Error, KeyValue, Operation, Outcome, Page, Range, Revision, Store, Transaction, Watch, WatchEvent,
};

/// A store whose values are sealed in the store below.
pub struct Encrypted {
    inner: Arc<dyn Store>,
    layer: Arc<Layer>,
}

/// The rules of now, and whether something was read that they would write otherwise.
struct Layer {
    rules: RwLock<Arc<Rules>>,
    stale: AtomicBool,
}

impl Encrypted {
    pub fn new(inner: Arc<dyn Store>, rules: Rules) -> Self {
        let layer = Layer { rules: RwLock::new(Arc::new(rules)), stale: AtomicBool::new(false) };
        Self { inner, layer: Arc::new(layer) }
    }

    /// Goes by other rules from now on, open watches included.
    pub fn replace(&self, rules: Rules) {
        *self.layer.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// Whether something has been read since the store was made that is not in the form in which it would be written now:
    /// [`Encrypted::rewrite`] has something to do.
    pub fn has_read_stale(&self) -> bool {
        self.layer.stale.load(Ordering::Relaxed)
    }
}

impl Layer {
    fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn incoming(&self, rules: &Rules, mut kv: KeyValue) -> Result<KeyValue, Error> {
        if !rules.is_due(&kv.key, &kv.value) {
            self.stale.store(true, Ordering::Relaxed);
        }
        kv.value = rules.opened(&kv.key, kv.value)?;
        Ok(kv)
    }

    fn event(&self, event: WatchEvent) -> Result<WatchEvent, Error> {
        let WatchEvent::Changes { revision, changes } = event else { return Ok(event) };
        let rules = self.rules();
        let opened = changes.into_iter().map(|change| match change {
            Change::Put(kv) => self.incoming(&rules, kv).map(Change::Put),
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
        Ok(At { revision, value: value.map(|kv| self.layer.incoming(&self.layer.rules(), kv)).transpose()? })
    }

    async fn range(&self, range: Range) -> Result<At<Page>, Error> {
        let At { revision, value: Page { items, remaining } } = self.inner.range(range).await?;
        let rules = self.layer.rules();
        let items = items.into_iter().map(|kv| self.layer.incoming(&rules, kv)).collect::<Result<_, _>>()?;
        Ok(At { revision, value: Page { items, remaining } })
    }

    async fn commit(&self, mut transaction: Transaction) -> Result<Outcome, Error> {
        transaction.validate()?;
        let rules = self.layer.rules();
        for operation in &mut transaction.operations {
            if let Operation::Put { key, value, .. } = operation {
                *value = rules.written(key, std::mem::take(value))?;
            }
        }
        match self.inner.commit(transaction).await? {
            Outcome::Conflict(At { revision, value }) => {
                let opened = value.into_iter().map(|kv| kv.map(|kv| self.layer.incoming(&rules, kv)).transpose());
                Ok(Outcome::Conflict(At { revision, value: opened.collect::<Result<_, _>>()? }))
            }
            committed => Ok(committed),
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        let layer = self.layer.clone();
        Ok(self.inner.watch(prefix, after).await?.translated(move |event| layer.event(event)))
    }

    async fn request_progress(&self) -> Result<(), Error> {
        self.inner.request_progress().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.inner.compact(revision).await
    }
}
