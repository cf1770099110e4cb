//! What is in the tables of redb, and how keys and records are encoded. `docs/design/storage.md` describes it.

use std::sync::Arc;

use bytes::Bytes;
use redb::TableDefinition;
use storage::{Change, KeyValue, Revision};

use crate::fault::{Result, damaged};

/// The version of this format. A store written by a newer Ferry is refused.
pub(crate) const FORMAT: u64 = 2;

/// Named numbers; see the constants of [`meta`].
pub(crate) const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
/// Every kept version of every key: position → record. In revision order, so it is also the log that watches replay.
pub(crate) const OBJECTS: TableDefinition<Position, &[u8]> = TableDefinition::new("objects");
/// Where the versions of a key are: (key, revision descending) → (create revision or 0 if deleted, expiry or 0, sub-index).
pub(crate) const INDEX: TableDefinition<&[u8], IndexValue> = TableDefinition::new("index");
/// The current versions that expire: (expiry, revision, sub-index), earliest first.
pub(crate) const EXPIRIES: TableDefinition<(u64, u64, u32), ()> = TableDefinition::new("expiries");
/// Revisions that may have been handed out and lost in a crash: last → first.
pub(crate) const GAPS: TableDefinition<u64, u64> = TableDefinition::new("gaps");
/// When revisions were written: revision → (time, bytes of history written until then), sparsely.
pub(crate) const HISTORY: TableDefinition<u64, (u64, u64)> = TableDefinition::new("history");

/// The keys of [`META`].
pub(crate) mod meta {
    pub(crate) const FORMAT: &str = "format";
    /// History below this revision is swept.
    pub(crate) const COMPACTED: &str = "compacted";
    /// No revision above this has been handed out without being durable in this file or in the log.
    pub(crate) const RESERVED: &str = "reserved";
    /// Random: tells the log of this store from that of another.
    pub(crate) const ID: &str = "id";
    /// How long each file of the log is at least. Zero if nothing in it is needed: the store was closed.
    pub(crate) const LOG_LENGTHS: [&str; 2] = ["log-0", "log-1"];
    /// Everything that is needed of uses of the log with smaller generations is in the tables.
    pub(crate) const LOG_GENERATION: &str = "log-generation";
    /// Present in a backup: it must be restored, not opened.
    pub(crate) const BACKUP: &str = "backup";
}

/// Revision, and the number of the change within it.
pub(crate) type Position = (u64, u32);
pub(crate) type IndexValue = (u64, u64, u32);

/// One version of a key, as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub revision: u64,
    pub sub: u32,
    /// Zero for a deletion.
    pub create: u64,
    /// Milliseconds since the epoch; zero for never.
    pub expiry: u64,
}

impl Version {
    pub(crate) fn new(revision: u64, (create, expiry, sub): IndexValue) -> Self {
        Self { revision, sub, create, expiry }
    }

    pub(crate) fn index_value(&self) -> IndexValue {
        (self.create, self.expiry, self.sub)
    }

    pub(crate) fn position(&self) -> Position {
        (self.revision, self.sub)
    }

    pub(crate) fn is_deletion(&self) -> bool {
        self.create == 0
    }
}

/// The live version that a version replaced, if it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// Zero for none.
    pub revision: u64,
    pub sub: u32,
    pub expiry: u64,
}

impl From<Option<Version>> for Replaced {
    fn from(version: Option<Version>) -> Self {
        version.map_or_else(Self::default, |Version { revision, sub, expiry, .. }| Self { revision, sub, expiry })
    }
}

/// One change with all that is known of it, on its way from the log to the tables.
#[derive(Debug)]
pub(crate) struct Entry {
    pub key: Arc<str>,
    pub version: Version,
    pub replaced: Replaced,
    pub value: Bytes,
}

impl Entry {
    pub(crate) fn record(&self) -> Record<'_> {
        let replaced = (self.replaced.revision, self.replaced.sub);
        Record { create: self.version.create, replaced, key: &self.key, value: &self.value }
    }

    /// As it was, unless it is a deletion.
    pub(crate) fn live(&self) -> Option<KeyValue> {
        (!self.version.is_deletion()).then(|| KeyValue {
            key: self.key.to_string(),
            value: self.value.clone(),
            create_revision: Revision(self.version.create),
            mod_revision: Revision(self.version.revision),
        })
    }

    pub(crate) fn change(&self) -> Change {
        let deletion = || Change::Delete { key: self.key.to_string(), revision: Revision(self.version.revision) };
        self.live().map_or_else(deletion, Change::Put)
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        2 * size_of::<Self>() + self.key.len() + self.value.len()
    }
}

const REVISION_SUFFIX: usize = 1 + size_of::<u64>();

/// The index key of a version: the key, a NUL (which no key contains, so that keys keep their order) and the revision's
/// complement (so that the newest version comes first).
pub(crate) fn index_key(key: &str, revision: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(key.len() + REVISION_SUFFIX);
    bytes.extend_from_slice(key.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&(!revision).to_be_bytes());
    bytes
}

pub(crate) fn split_index_key(bytes: &[u8]) -> Result<(&str, u64)> {
    let (key, suffix) = bytes
        .len()
        .checked_sub(REVISION_SUFFIX)
        .and_then(|at| bytes.split_at_checked(at))
        .ok_or_else(|| damaged("an index entry is too short"))?;
    let revision = suffix.iter().skip(1).fold(0, |number, byte| number << 8 | u64::from(*byte));
    let key = std::str::from_utf8(key).map_err(|_| damaged("a key in the index is not text"))?;
    Ok((key, !revision))
}

/// What [`OBJECTS`] holds: create revision (0 for a deletion), position of the version replaced, length of the key, key,
/// value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub create: u64,
    /// Revision 0 for none.
    pub replaced: Position,
    pub key: &'a str,
    pub value: &'a [u8],
}

const RECORD_HEADER: usize = 2 * size_of::<u64>() + 2 * size_of::<u32>();

impl<'a> Record<'a> {
    pub(crate) fn encoded_len(&self) -> usize {
        RECORD_HEADER + self.key.len() + self.value.len()
    }

    /// Into a buffer of [`Self::encoded_len`] bytes.
    pub(crate) fn encode(&self, buffer: &mut [u8]) {
        let key_end = RECORD_HEADER + self.key.len();
        buffer[..8].copy_from_slice(&self.create.to_le_bytes());
        buffer[8..16].copy_from_slice(&self.replaced.0.to_le_bytes());
        buffer[16..20].copy_from_slice(&self.replaced.1.to_le_bytes());
        buffer[20..RECORD_HEADER].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        buffer[RECORD_HEADER..key_end].copy_from_slice(self.key.as_bytes());
        buffer[key_end..].copy_from_slice(self.value);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut fields = Fields(bytes);
        let (create, replaced) = (fields.u64()?, (fields.u64()?, fields.u32()?));
        let length = fields.u32()? as usize;
        let key = fields.text(length)?;
        Ok(Self { create, replaced, key, value: fields.0 })
    }

    pub(crate) fn is_deletion(&self) -> bool {
        self.create == 0
    }

    pub(crate) fn to_change(self, revision: u64) -> Change {
        let revision = Revision(revision);
        let key = self.key.to_owned();
        if self.is_deletion() {
            return Change::Delete { key, revision };
        }
        Change::Put(KeyValue {
            key,
            value: Bytes::copy_from_slice(self.value),
            create_revision: Revision(self.create),
            mod_revision: revision,
        })
    }
}

/// Reads little-endian numbers and text from the front.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or_else(|| damaged("a record is too short"))?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(length).ok_or_else(|| damaged("a record is too short"))?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn text(&mut self, length: usize) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(length)?).map_err(|_| damaged("the key of a record is not text"))
    }
}
