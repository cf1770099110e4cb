//! Reads. Each looks at the overlay, then opens a redb read transaction, which sees one committed state and blocks nobody,
//! and picks from the versions in both those of the revision asked for.

use std::{iter::Peekable, ops::Bound, sync::Arc, vec};

use bytes::Bytes;
use redb::{Database, ReadOnlyTable, ReadableDatabase};
use storage::{Change, KeyValue, Page, Revision, WatchEvent};

use crate::{
    fault::{Result, damaged},
    format::{Entry, INDEX, IndexValue, OBJECTS, Position, Record, Version, index_key, split_index_key},
};

/// One committed state of the tables. Holds the pages that it may read, so it should be short-lived.
pub(crate) struct Snapshot {
    index: ReadOnlyTable<&'static [u8], IndexValue>,
    objects: ReadOnlyTable<Position, &'static [u8]>,
}

impl Snapshot {
    pub(crate) fn open(database: &Database) -> Result<Self> {
        let transaction = database.begin_read()?;
        Ok(Self { index: transaction.open_table(INDEX)?, objects: transaction.open_table(OBJECTS)? })
    }

    /// The newest version of `key` that is not newer than `revision`; it may be a deletion.
    pub(crate) fn version_at(&self, key: &str, revision: u64) -> Result<Option<Version>> {
        let (newest, oldest) = (index_key(key, revision), index_key(key, 0));
        let Some(entry) = self.index.range(newest.as_slice()..=oldest.as_slice())?.next() else { return Ok(None) };
        let (found, value) = entry?;
        let (_, revision) = split_index_key(found.value())?;
        Ok(Some(Version::new(revision, value.value())))
    }

    /// The contents of a version that is not a deletion.
    pub(crate) fn load(&self, key: &str, version: &Version) -> Result<KeyValue> {
        let Some(found) = self.objects.get(version.position())? else {
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

    pub(crate) fn get(&self, key: &str, revision: u64) -> Result<Option<KeyValue>> {
        match self.version_at(key, revision)? {
            Some(version) if !version.is_deletion() => self.load(key, &version).map(Some),
            _ => Ok(None),
        }
    }

    /// The keys with `prefix` after `after`, at `revision`; `overlay` has those that may be newer than here.
    pub(crate) fn range(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: Option<usize>,
        revision: u64,
        overlay: Vec<Arc<Entry>>,
    ) -> Result<Page> {
        let mut merge = Merge { page: Page::default(), limit, overlay: overlay.into_iter().peekable() };
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
            merge.overlay_before(Some(key))?;
            if let Some(newer) = merge.overlay.next_if(|entry| &*entry.key == key) {
                merge.push_entry(&newer)?;
                continue;
            }
            let version = Version::new(written, value.value());
            if !version.is_deletion() {
                merge.push(|| self.load(key, &version))?;
            }
        }
        merge.overlay_before(None)?;
        Ok(merge.page)
    }

    /// The events after `after` and up to `until` of keys with `prefix`; and up to which revision they are complete,
    /// which is less than `until` once the events have `enough` bytes.
    pub(crate) fn events(&self, prefix: &str, after: u64, until: u64, enough: usize) -> Result<(Events, u64)> {
        let mut events = Events::default();
        for entry in self.objects.range((after + 1, 0)..=(until, u32::MAX))? {
            let (position, found) = entry?;
            let (at, _) = position.value();
            let record = Record::decode(found.value())?;
            if !record.key.starts_with(prefix) {
                continue;
            }
            if events.bytes >= enough && events.last != at {
                return Ok((events, at - 1));
            }
            events.push(at, record.to_change(at), record.encoded_len());
        }
        Ok((events, until))
    }
}

/// A page in the making, from the tables and the overlay. Where both have a key, the overlay decides.
struct Merge {
    page: Page,
    limit: Option<usize>,
    overlay: Peekable<vec::IntoIter<Arc<Entry>>>,
}

impl Merge {
    fn push(&mut self, load: impl FnOnce() -> Result<KeyValue>) -> Result<()> {
        if self.limit.is_some_and(|limit| self.page.items.len() >= limit) {
            self.page.remaining += 1;
        } else {
            self.page.items.push(load()?);
        }
        Ok(())
    }

    fn push_entry(&mut self, entry: &Entry) -> Result<()> {
        if let Some(live) = entry.live() {
            self.push(|| Ok(live))?;
        }
        Ok(())
    }

    /// What the overlay has before `key`, or all that is left.
    fn overlay_before(&mut self, key: Option<&str>) -> Result<()> {
        while let Some(entry) = self.overlay.next_if(|entry| key.is_none_or(|key| &*entry.key < key)) {
            self.push_entry(&entry)?;
        }
        Ok(())
    }
}

/// Changes, gathered by their revisions.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub events: Vec<WatchEvent>,
    pub bytes: usize,
    last: u64,
}

impl Events {
    pub(crate) fn push(&mut self, at: u64, change: Change, bytes: usize) {
        match self.events.last_mut() {
            Some(WatchEvent::Changes { revision, changes }) if revision.0 == at => changes.push(change),
            _ => self.events.push(WatchEvent::Changes { revision: Revision(at), changes: vec![change] }),
        }
        self.last = at;
        self.bytes += bytes;
    }
}
