//! Reads. Each opens a redb read transaction, which sees one committed state and blocks nobody, and picks from the
//! versions in it those of the revision asked for.

use std::ops::Bound;

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable};
use storage::{KeyValue, Page, Revision, WatchEvent};

use crate::{
    fault::{Result, damaged},
    format::{INDEX, IndexValue, OBJECTS, Position, Record, Version, index_key, split_index_key},
};

/// The newest version of `key` that is not newer than `revision`; it may be a deletion.
pub(crate) fn version_at(
    index: &impl ReadableTable<&'static [u8], IndexValue>,
    key: &str,
    revision: u64,
) -> Result<Option<Version>> {
    let (newest, oldest) = (index_key(key, revision), index_key(key, 0));
    let Some(entry) = index.range(newest.as_slice()..=oldest.as_slice())?.next() else { return Ok(None) };
    let (found, value) = entry?;
    let (_, revision) = split_index_key(found.value())?;
    Ok(Some(Version::new(revision, value.value())))
}

/// The contents of a version that is not a deletion.
pub(crate) fn load(
    objects: &impl ReadableTable<Position, &'static [u8]>,
    key: &str,
    version: &Version,
) -> Result<KeyValue> {
    let Some(found) = objects.get(version.position())? else {
        return Err(damaged(format!("the record of {key} at revision {} is missing", version.revision)));
    };
    let record = Record::decode(found.value())?;
    if record.key != key || record.create != version.create {
        return Err(damaged(format!("the record of {key} at revision {} belongs elsewhere", version.revision)));
    }
    Ok(KeyValue {
        key: key.to_owned(),
        value: Bytes::copy_from_slice(record.value),
        create_revision: Revision(version.create),
        mod_revision: Revision(version.revision),
    })
}

/// One committed state of the store. Holds the pages that it may read, so it should be short-lived.
pub(crate) struct Snapshot {
    index: ReadOnlyTable<&'static [u8], IndexValue>,
    objects: ReadOnlyTable<Position, &'static [u8]>,
}

impl Snapshot {
    pub(crate) fn open(database: &Database) -> Result<Self> {
        let transaction = database.begin_read()?;
        Ok(Self { index: transaction.open_table(INDEX)?, objects: transaction.open_table(OBJECTS)? })
    }

    pub(crate) fn get(&self, key: &str, revision: u64) -> Result<Option<KeyValue>> {
        match version_at(&self.index, key, revision)? {
            Some(version) if !version.is_deletion() => load(&self.objects, key, &version).map(Some),
            _ => Ok(None),
        }
    }

    pub(crate) fn range(&self, prefix: &str, after: Option<&str>, limit: Option<usize>, revision: u64) -> Result<Page> {
        let mut page = Page::default();
        let behind = after.filter(|after| *after >= prefix).map(|after| index_key(after, 0));
        let start = behind.as_deref().map_or(Bound::Included(prefix.as_bytes()), Bound::Excluded);
        // The versions of a key follow each other, newest first: the first that is old enough decides.
        let mut decided = Vec::new();
        for entry in self.index.range::<&[u8]>((start, Bound::Unbounded))? {
            let (found, value) = entry?;
            let (key, written) = split_index_key(found.value())?;
            if !key.starts_with(prefix) {
                break;
            }
            if written > revision || decided == key.as_bytes() {
                continue;
            }
            decided.clear();
            decided.extend_from_slice(key.as_bytes());
            let version = Version::new(written, value.value());
            if version.is_deletion() {
                continue;
            }
            if limit.is_some_and(|limit| page.items.len() >= limit) {
                page.remaining += 1;
            } else {
                page.items.push(load(&self.objects, key, &version)?);
            }
        }
        Ok(page)
    }

    /// The events after `after` and up to `until` of keys with `prefix`; and up to which revision they are complete,
    /// which is less than `until` once the events have `enough` bytes.
    pub(crate) fn events(&self, prefix: &str, after: u64, until: u64, enough: usize) -> Result<(Vec<WatchEvent>, u64)> {
        let mut events: Vec<WatchEvent> = Vec::new();
        let mut bytes = 0;
        for entry in self.objects.range((after + 1, 0)..=(until, u32::MAX))? {
            let (position, found) = entry?;
            let (at, _) = position.value();
            let record = Record::decode(found.value())?;
            if !record.key.starts_with(prefix) {
                continue;
            }
            let change = record.to_change(at);
            match events.last_mut() {
                Some(WatchEvent::Changes { revision, changes }) if revision.0 == at => changes.push(change),
                _ if bytes >= enough => return Ok((events, at - 1)),
                _ => events.push(WatchEvent::Changes { revision: Revision(at), changes: vec![change] }),
            }
            bytes += record.encoded_len();
        }
        Ok((events, until))
    }
}
