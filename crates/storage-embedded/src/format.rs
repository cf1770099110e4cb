//! What is on disk: redb tables, and how keys and records are encoded. `docs/design/storage.md` describes it.

use bytes::Bytes;
use redb::TableDefinition;

use crate::fault::{Result, damaged};

/// The version of this format. A store written by a newer Ferry is refused.
pub(crate) const FORMAT: u64 = 1;

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
    /// No revision above this has been handed out without being durable.
    pub(crate) const RESERVED: &str = "reserved";
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

/// What [`OBJECTS`] holds: create revision (0 for a deletion), length of the key, key, value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub create: u64,
    pub key: &'a str,
    pub value: &'a [u8],
}

const RECORD_HEADER: usize = size_of::<u64>() + size_of::<u32>();

impl<'a> Record<'a> {
    pub(crate) fn encoded_len(&self) -> usize {
        RECORD_HEADER + self.key.len() + self.value.len()
    }

    /// Into a buffer of [`Self::encoded_len`] bytes.
    pub(crate) fn encode(&self, buffer: &mut [u8]) {
        let key_end = RECORD_HEADER + self.key.len();
        buffer[..8].copy_from_slice(&self.create.to_le_bytes());
        buffer[8..RECORD_HEADER].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        buffer[RECORD_HEADER..key_end].copy_from_slice(self.key.as_bytes());
        buffer[key_end..].copy_from_slice(self.value);
    }

    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let too_short = || damaged("a record is too short");
        let (create, rest) = bytes.split_first_chunk::<8>().ok_or_else(too_short)?;
        let (key_len, rest) = rest.split_first_chunk::<4>().ok_or_else(too_short)?;
        let (key, value) = rest.split_at_checked(u32::from_le_bytes(*key_len) as usize).ok_or_else(too_short)?;
        let key = std::str::from_utf8(key).map_err(|_| damaged("the key of a record is not text"))?;
        Ok(Self { create: u64::from_le_bytes(*create), key, value })
    }

    pub(crate) fn is_deletion(&self) -> bool {
        self.create == 0
    }

    pub(crate) fn to_change(self, revision: u64) -> storage::Change {
        let revision = storage::Revision(revision);
        let key = self.key.to_owned();
        if self.is_deletion() {
            return storage::Change::Delete { key, revision };
        }
        storage::Change::Put(storage::KeyValue {
            key,
            value: Bytes::copy_from_slice(self.value),
            create_revision: storage::Revision(self.create),
            mod_revision: revision,
        })
    }
}
