//! Applies transactions to the newest state. Each sees the effects of those before it; what the batch did becomes visible
//! to anybody else only when the current revision is raised.

use std::sync::Arc;

use redb::{Database, ReadableDatabase, ReadableTable};
use storage::{At, Expected, KeyValue, Lifetime, Operation, Outcome, Revision, Transaction};

use crate::{
    clock::millis,
    fault::{Result, damaged},
    format::{EXPIRIES, Entry, OBJECTS, Record, Version},
    hub::Event,
    log::Block,
    overlay::Overlay,
    snapshot::Snapshot,
};

pub(crate) struct Batch<'a> {
    overlay: &'a Overlay,
    database: &'a Database,
    /// Of the tables, and the base of the overlay that it goes with.
    snapshot: Option<(Snapshot, u64)>,
    block: &'a mut Block,
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

/// Where the newest version of a key is.
enum Newest {
    Overlay(Arc<Entry>),
    Tables(Version),
}

impl Newest {
    fn version(&self) -> Version {
        match self {
            Self::Overlay(entry) => entry.version,
            Self::Tables(version) => *version,
        }
    }
}

impl<'a> Batch<'a> {
    /// `now` in milliseconds since the epoch.
    pub(crate) fn new(
        overlay: &'a Overlay,
        database: &'a Database,
        block: &'a mut Block,
        revision: u64,
        now: u64,
        watched: bool,
    ) -> Self {
        let done = Done { revision, ..Done::default() };
        Self { overlay, database, snapshot: None, block, now, done, watched }
    }

    /// A valid transaction (see [`Transaction::validate`]).
    pub(crate) fn apply(&mut self, transaction: Transaction) -> Result<Outcome> {
        for compare in &transaction.compares {
            let current = self.newest(&compare.key)?.map(|newest| Revision(newest.version().revision));
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
            let replaced = self.newest(operation.key())?.map(|newest| newest.version());
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
        // In this order: what leaves the overlay in between is in the tables then.
        let (due, mut next) = self.overlay.expiring(self.now);
        let mut expired: Vec<Effective> = Vec::new();
        for entry in due {
            if expired.len() >= limit {
                next = Some(self.now);
                break;
            }
            self.add_expired(&mut expired, &entry.key, entry.version)?;
        }
        let tables = self.database.begin_read()?;
        let objects = tables.open_table(OBJECTS)?;
        for entry in tables.open_table(EXPIRIES)?.iter()? {
            let (expiry, revision, sub) = entry?.0.value();
            if expired.len() >= limit || expiry > self.now {
                next = Some(next.map_or(expiry, |next| next.min(expiry)));
                break;
            }
            let Some(found) = objects.get((revision, sub))? else {
                return Err(damaged(format!("an expiry points at a missing record of revision {revision}")));
            };
            let record = Record::decode(found.value())?;
            self.add_expired(&mut expired, record.key, Version { revision, sub, create: record.create, expiry })?;
        }
        if !expired.is_empty() {
            self.write(expired)?;
        }
        Ok(next)
    }

    /// Unless it has been replaced since, or is known: it may be in the overlay and in the tables.
    fn add_expired(&mut self, expired: &mut Vec<Effective>, key: &str, version: Version) -> Result<()> {
        let is_known = expired.iter().any(|(_, known)| *known == Some(version));
        if !is_known && self.newest(key)?.map(|newest| newest.version()) == Some(version) {
            expired.push((Operation::Delete { key: key.to_owned() }, Some(version)));
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Done {
        self.done
    }

    fn write(&mut self, operations: Vec<Effective>) -> Result<()> {
        let revision = self.done.revision + 1;
        let mut event = self.watched.then(|| Event::new(revision));
        for (sub, (operation, replaced)) in operations.into_iter().enumerate() {
            let sub = u32::try_from(sub).map_err(|_| damaged("a transaction has too many operations"))?;
            let (key, value, create, expiry) = match operation {
                Operation::Put { key, value, lifetime } => {
                    let create = replaced.map_or(revision, |replaced| replaced.create);
                    let expiry = match lifetime {
                        Lifetime::Endless => 0,
                        // `now` was rounded down to whole milliseconds: one more, lest a key expire early.
                        Lifetime::For(ttl) => self.now.saturating_add(millis(ttl)).saturating_add(1),
                        Lifetime::Kept => replaced.map_or(0, |replaced| replaced.expiry),
                    };
                    (key, value, create, expiry)
                }
                Operation::Delete { key } => (key, bytes::Bytes::new(), 0, 0),
            };
            let version = Version { revision, sub, create, expiry };
            let entry = Entry { key: key.into(), version, replaced: replaced.into(), value };
            if let Some(event) = &mut event {
                event.push(entry.change());
            }
            if expiry != 0 {
                let earliest = self.done.earliest_expiry.get_or_insert(expiry);
                *earliest = expiry.min(*earliest);
            }
            self.done.bytes += entry.record().encoded_len() as u64;
            self.block.push(&entry);
            self.overlay.push(Arc::new(entry));
        }
        self.done.revision = revision;
        self.done.events.extend(event.map(Arc::new));
        Ok(())
    }

    /// The newest version of `key`, unless it is a deletion.
    fn newest(&mut self, key: &str) -> Result<Option<Newest>> {
        let newest = match self.overlay.find(key, u64::MAX) {
            (Some(entry), _) => Some(Newest::Overlay(entry)),
            (None, base) => self.tables(base)?.version_at(key, u64::MAX)?.map(Newest::Tables),
        };
        Ok(newest.filter(|newest| !newest.version().is_deletion()))
    }

    /// A snapshot of the tables that has everything up to `base`.
    fn tables(&mut self, base: u64) -> Result<&Snapshot> {
        if self.snapshot.as_ref().is_some_and(|(_, known)| *known != base) {
            self.snapshot = None;
        }
        match &mut self.snapshot {
            Some((snapshot, _)) => Ok(snapshot),
            none => Ok(&none.insert((Snapshot::open(self.database)?, base)).0),
        }
    }

    fn current(&mut self, key: &str) -> Result<Option<KeyValue>> {
        match self.newest(key)? {
            None => Ok(None),
            Some(Newest::Overlay(entry)) => Ok(entry.live()),
            Some(Newest::Tables(version)) => {
                let base = self.overlay.base();
                self.tables(base)?.load(key, &version).map(Some)
            }
        }
    }
}
