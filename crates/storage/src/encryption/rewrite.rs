//! Bringing what was written earlier into the form in which it would be written now.

use super::{Encrypted, Rules};
use crate::{Error, Expected, KeyValue, Lifetime, Operation, Outcome, Range, Transaction};

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
    /// Writes every value below `prefix` anew that is not in the form of now. Each by compare-and-commit, so nobody's
    /// write is undone; what others write meanwhile follows the rules of now already. Values that expire do so when they
    /// would have. May be interrupted and run again.
    ///
    /// When nothing is left unreadable, older keys are no longer needed for what is current. Take them away once history
    /// has been compacted, too: older revisions keep their older form.
    pub async fn rewrite(&self, prefix: &str) -> Result<Rewritten, Error> {
        let rules = self.layer.rules();
        let mut done = Rewritten::default();
        let mut range = Range { limit: Some(PAGE), ..Range::prefix(prefix) };
        loop {
            let page = self.inner.range(range.clone()).await?.value;
            range.after = page.items.last().map(|kv| kv.key.clone());
            for kv in page.items {
                done.seen += 1;
                match self.rewrite_one(&rules, kv).await {
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

    async fn rewrite_one(&self, rules: &Rules, mut kv: KeyValue) -> Result<bool, Error> {
        while !rules.is_due(&kv.key, &kv.value) {
            let value = rules.written(&kv.key, rules.opened(&kv.key, kv.value)?)?;
            let mut renewal = Transaction::default().require(kv.key.as_str(), Expected::ModRevision(kv.mod_revision));
            renewal.operations.push(Operation::Put { key: kv.key, value, lifetime: Lifetime::Kept });
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
