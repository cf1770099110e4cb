//! Bringing what was written earlier under the rules of now: sealed by the first key, or plain where nothing is sealed.

use bytes::Bytes;

use super::{
    Encrypted, Rules,
    keys::{MARK, Stored, stored},
};
use crate::{Error, Expected, KeyValue, Outcome, Range, Transaction};

const PAGE: usize = 500;

/// What [`Encrypted::rewrite`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// How many keys were looked at.
    pub seen: u64,
    /// How many of them were written anew.
    pub rewritten: u64,
    /// Values that could not be opened, and why. They are as before.
    pub unreadable: Vec<Error>,
}

impl Encrypted {
    /// Writes every value below `prefix` anew that is not sealed by the first key (or, where nothing is sealed, that
    /// is). Each by compare-and-commit, so nobody's write is undone; what others write meanwhile follows the rules of
    /// now already. May be interrupted and run again.
    ///
    /// When nothing is left unreadable, the older keys are no longer needed for what is current. Take them away once
    /// history has been compacted, too: older revisions keep their older form. A value with a time to live loses it when
    /// rewritten: leave out prefixes with such keys, they expire by themselves.
    pub async fn rewrite(&self, prefix: &str) -> Result<Rewritten, Error> {
        let mut done = Rewritten::default();
        let mut range = Range { limit: Some(PAGE), ..Range::prefix(prefix) };
        loop {
            let page = self.inner.range(range.clone()).await?.value;
            range.after = page.items.last().map(|kv| kv.key.clone());
            for kv in page.items {
                done.seen += 1;
                match self.rewrite_one(kv).await {
                    Ok(written) => done.rewritten += u64::from(written),
                    Err(unreadable @ Error::Unreadable { .. }) => done.unreadable.push(unreadable),
                    Err(error) => return Err(error),
                }
            }
            if page.remaining == 0 {
                return Ok(done);
            }
        }
    }

    async fn rewrite_one(&self, mut kv: KeyValue) -> Result<bool, Error> {
        while let Some(value) = self.rules.renewed(&kv.key, &kv.value)? {
            let renewal = Transaction::default()
                .require(kv.key.as_str(), Expected::ModRevision(kv.mod_revision))
                .put(kv.key.as_str(), value);
            match self.inner.commit(renewal).await? {
                Outcome::Committed(_) => return Ok(true),
                Outcome::Conflict(actual) => match actual.value.into_iter().next().flatten() {
                    Some(changed) => kv = changed,
                    None => return Ok(false),
                },
            }
        }
        Ok(false)
    }
}

impl Rules {
    /// The stored form that a stored value should have, unless it has it.
    fn renewed(&self, path: &str, value: &Bytes) -> Result<Option<Bytes>, Error> {
        let plain = match stored(path, value)? {
            Stored::Plain if !self.seals(path) => return Ok(None),
            Stored::Plain => value.clone(),
            Stored::Sealed { key, .. } if key == self.keys.first().name() && self.seals(path) => return Ok(None),
            Stored::Sealed { key, body } => {
                let plain = self.keys.open(path, key, &body)?;
                if key == self.keys.first().name() && plain.starts_with(MARK) {
                    return Ok(None);
                }
                plain
            }
        };
        self.outgoing(path, plain).map(Some)
    }
}
