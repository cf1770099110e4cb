//! Applies transactions to the tables of one redb write transaction. Each sees the effects of those before it; what the
//! batch did becomes visible to anybody else only when the redb transaction commits.

use std::sync::Arc;

use redb::{ReadableTable, Table, WriteTransaction};
use storage::{At, Change, Expected, KeyValue, Operation, Outcome, Revision, Transaction};

use crate::{
    clock::millis,
    fault::{Result, damaged},
    format::{EXPIRIES, INDEX, IndexValue, OBJECTS, Position, Record, Version, index_key},
    hub::Event,
    snapshot::{load, version_at},
};

pub(crate) struct Batch<'t> {
    objects: Table<'t, Position, &'static [u8]>,
    index: Table<'t, &'static [u8], IndexValue>,
    expiries: Table<'t, (u64, u64, u32), ()>,
    now: u64,
    done: Done,
    /// Whether anybody is there to receive the events.
    watched: bool,
}

/// What a batch has done so far.
#[derive(Debug, Default)]
pub(crate) struct Done {
    /// The revision of the newest change.
    pub revision: u64,
    /// Bytes of the records written.
    pub bytes: u64,
    pub events: Vec<Arc<Event>>,
    /// The earliest expiry among the puts.
    pub earliest_expiry: Option<u64>,
}

/// An operation that changes something, and the live version it replaces.
type Effective = (Operation, Option<Version>);

impl<'t> Batch<'t> {
    /// `now` in milliseconds since the epoch.
    pub(crate) fn new(transaction: &'t WriteTransaction, revision: u64, now: u64, watched: bool) -> Result<Self> {
        Ok(Self {
            objects: transaction.open_table(OBJECTS)?,
            index: transaction.open_table(INDEX)?,
            expiries: transaction.open_table(EXPIRIES)?,
            now,
            done: Done { revision, ..Done::default() },
            watched,
        })
    }

    /// The revision of the newest change so far.
    pub(crate) fn revision(&self) -> u64 {
        self.done.revision
    }

    /// A valid transaction (see [`Transaction::validate`]).
    pub(crate) fn apply(&mut self, transaction: Transaction) -> Result<Outcome> {
        for compare in &transaction.compares {
            let current = self.live_version(&compare.key)?.map(|version| Revision(version.revision));
            let holds = match compare.expected {
                Expected::Absent => current.is_none(),
                Expected::ModRevision(revision) => current == Some(revision),
            };
            if !holds {
                let actual = transaction.compares.iter().map(|compare| self.current(&compare.key));
                let value = actual.collect::<Result<_>>()?;
                return Ok(Outcome::Conflict(At { revision: Revision(self.done.revision), value }));
            }
        }
        let mut effective: Vec<Effective> = Vec::with_capacity(transaction.operations.len());
        for operation in transaction.operations {
            let replaced = self.live_version(operation.key())?;
            if replaced.is_some() || matches!(operation, Operation::Put { .. }) {
                effective.push((operation, replaced));
            }
        }
        if !effective.is_empty() {
            self.write(effective)?;
        }
        Ok(Outcome::Committed(Revision(self.done.revision)))
    }

    /// Deletes up to `limit` keys whose time has come, at one revision. Says when the next one is due.
    pub(crate) fn expire(&mut self, limit: usize) -> Result<Option<u64>> {
        let mut expired: Vec<Effective> = Vec::new();
        let mut next = None;
        for entry in self.expiries.iter()? {
            let (expiry, revision, sub) = entry?.0.value();
            if expiry > self.now || expired.len() == limit {
                next = Some(expiry);
                break;
            }
            let Some(found) = self.objects.get((revision, sub))? else {
                return Err(damaged(format!("an expiry points at a missing record of revision {revision}")));
            };
            let record = Record::decode(found.value())?;
            let version = Version { revision, sub, create: record.create, expiry };
            expired.push((Operation::Delete { key: record.key.to_owned() }, Some(version)));
        }
        if !expired.is_empty() {
            self.write(expired)?;
        }
        Ok(next)
    }

    pub(crate) fn finish(self) -> Done {
        self.done
    }

    fn write(&mut self, operations: Vec<Effective>) -> Result<()> {
        let revision = self.done.revision + 1;
        let mut event = Event::new(revision);
        for (sub, (operation, replaced)) in operations.into_iter().enumerate() {
            let sub = u32::try_from(sub).map_err(|_| damaged("a transaction has too many operations"))?;
            if let Some(replaced) = replaced.filter(|replaced| replaced.expiry != 0) {
                self.expiries.remove((replaced.expiry, replaced.revision, replaced.sub))?;
            }
            let change = match operation {
                Operation::Put { key, value, ttl } => {
                    let create = replaced.map_or(revision, |replaced| replaced.create);
                    let expiry = ttl.map_or(0, |ttl| self.now.saturating_add(millis(ttl)).max(1));
                    self.insert(&Version { revision, sub, create, expiry }, &key, &value)?;
                    let (create_revision, mod_revision) = (Revision(create), Revision(revision));
                    Change::Put(KeyValue { key, value, create_revision, mod_revision })
                }
                Operation::Delete { key } => {
                    self.insert(&Version { revision, sub, create: 0, expiry: 0 }, &key, &[])?;
                    Change::Delete { key, revision: Revision(revision) }
                }
            };
            if self.watched {
                event.push(change);
            }
        }
        self.done.revision = revision;
        if self.watched {
            self.done.events.push(Arc::new(event));
        }
        Ok(())
    }

    fn insert(&mut self, version: &Version, key: &str, value: &[u8]) -> Result<()> {
        let record = Record { create: version.create, key, value };
        let length = record.encoded_len();
        record.encode(self.objects.insert_reserve(version.position(), length)?.as_mut());
        self.index.insert(index_key(key, version.revision).as_slice(), version.index_value())?;
        if version.expiry != 0 {
            self.expiries.insert((version.expiry, version.revision, version.sub), ())?;
            let earliest = self.done.earliest_expiry.get_or_insert(version.expiry);
            *earliest = version.expiry.min(*earliest);
        }
        self.done.bytes += length as u64;
        Ok(())
    }

    fn live_version(&self, key: &str) -> Result<Option<Version>> {
        Ok(version_at(&self.index, key, u64::MAX)?.filter(|version| !version.is_deletion()))
    }

    fn current(&self, key: &str) -> Result<Option<KeyValue>> {
        self.live_version(key)?.map(|version| load(&self.objects, key, &version)).transpose()
    }
}
