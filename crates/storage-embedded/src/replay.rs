//! Reads back what the log holds, after a crash and for a check.
//!
//! A file is valid up to the first block that is torn, missing or left over from an earlier use. Unless a block behind it
//! that is needed says that it was durable: then the disk has lost what it had promised to keep, and that is damage.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    fault::{Result, damaged},
    format::{Entry, Fields, Replaced, Version},
    log::{ALIGNMENT, HEADER, LogFile, Stamp},
};

/// A valid block.
#[derive(Debug)]
pub(crate) struct Replayed {
    pub stamp: Stamp,
    pub entries: Vec<Arc<Entry>>,
}

/// What a log holds that is not in the tables.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub blocks: Vec<Replayed>,
    /// Greater than that of any block, also of one that is not valid.
    pub next_generation: u64,
}

/// Reads the blocks of the store `id` with revisions after `checkpoint`, the last that the tables have. Nothing is needed
/// of uses before that with `generation`.
pub(crate) fn replay(files: &[Box<dyn LogFile>], id: u64, checkpoint: u64, generation: u64) -> Result<Replay> {
    let mut uses = Vec::new();
    for file in files {
        let mut blocks = Vec::new();
        let (file, length) = (&**file, file.length()?);
        let mut reader = Reader { file, length, id, checkpoint, generation, offset: 0, place: None };
        while let Some(mut block) = reader.next()? {
            block.entries.retain(|entry| entry.version.revision > checkpoint);
            if !block.entries.is_empty() {
                blocks.push(block);
            }
        }
        uses.extend(reader.place.map(|place| (place.generation, blocks)));
    }
    uses.sort_by_key(|(generation, _)| *generation);
    let newest = uses.last().map_or(generation, |(newest, _)| *newest);
    let mut replay = Replay { next_generation: newest + 1, ..Replay::default() };
    let mut expected = checkpoint + 1;
    for block in uses.into_iter().flat_map(|(_, blocks)| blocks) {
        for entry in &block.entries {
            let Version { revision, sub, .. } = entry.version;
            if revision != expected && (revision + 1 != expected || sub == 0) {
                return Err(damaged(format!("the log continues at revision {revision} instead of {expected}")));
            }
            expected = revision + 1;
        }
        replay.blocks.push(block);
    }
    Ok(replay)
}

/// The use of a file and the place in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    salt: u64,
    generation: u64,
    block: u64,
}

struct Reader<'a> {
    file: &'a dyn LogFile,
    length: u64,
    id: u64,
    checkpoint: u64,
    generation: u64,
    offset: u64,
    /// Of the last valid block.
    place: Option<Place>,
}

struct Found {
    place: Place,
    synced: u64,
    stamp: Stamp,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<Option<Replayed>> {
        let found = self.read(self.offset)?.filter(|found| match self.place {
            None => found.place.block == 0,
            Some(last) => self.is_of(&last, found) && found.place.block == last.block + 1,
        });
        let Some(found) = found else {
            self.check_rest()?;
            return Ok(None);
        };
        self.offset += found.bytes.len().next_multiple_of(ALIGNMENT) as u64;
        self.place = Some(found.place);
        let bytes = Bytes::from(found.bytes);
        Ok(Some(Replayed { stamp: found.stamp, entries: entries(&bytes)? }))
    }

    fn is_of(&self, last: &Place, found: &Found) -> bool {
        (found.place.salt, found.place.generation) == (last.salt, last.generation)
    }

    /// Whether anything behind the first invalid block says that it was durable. Only if it is not in the tables: the
    /// next use may have begun to overwrite one that is. If not even the first block is valid, what is not in the tables
    /// can only be of the last use.
    fn check_rest(&self) -> Result<()> {
        let invalid = self.place.map_or(0, |last| last.block + 1);
        let mut offset = self.offset + ALIGNMENT as u64;
        while offset < self.length {
            let of_use = |later: &Found| self.place.is_none_or(|last| self.is_of(&last, later));
            let later = self.read(offset)?.filter(|later| of_use(later) && later.synced > invalid);
            if let Some(later) = later
                && entries(&later.bytes.into())?.iter().any(|entry| entry.version.revision > self.checkpoint)
            {
                return Err(damaged(format!("the log lost its block {invalid}, which was durable")));
            }
            offset += ALIGNMENT as u64;
        }
        Ok(())
    }

    /// The block at `offset`, if it is one of this store, whole, and not of a use that is over.
    fn read(&self, offset: u64) -> Result<Option<Found>> {
        if offset + HEADER as u64 > self.length {
            return Ok(None);
        }
        let mut header = [0; HEADER];
        self.file.read(offset, &mut header)?;
        let mut fields = Fields(&header);
        let (checksum, length) = (fields.u32()?, fields.u32()? as usize);
        if fields.u64()? != self.id || length < HEADER || offset + length as u64 > self.length {
            return Ok(None);
        }
        let mut bytes = vec![0; length];
        self.file.read(offset, &mut bytes)?;
        if crc32fast::hash(&bytes[4..]) != checksum {
            return Ok(None);
        }
        let place = Place { salt: fields.u64()?, generation: fields.u64()?, block: fields.u64()? };
        if place.generation < self.generation {
            return Ok(None);
        }
        let synced = fields.u64()?;
        let stamp = Stamp { reserved: fields.u64()?, time: fields.u64()? };
        Ok(Some(Found { place, synced, stamp, bytes }))
    }
}

fn entries(block: &Bytes) -> Result<Vec<Arc<Entry>>> {
    let mut fields = Fields(&block[HEADER..]);
    let mut entries = Vec::new();
    while !fields.0.is_empty() {
        let (revision, create, expiry) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (replaced_revision, replaced_expiry) = (fields.u64()?, fields.u64()?);
        let (sub, replaced_sub) = (fields.u32()?, fields.u32()?);
        let (key_length, value_length) = (fields.u32()? as usize, fields.u32()? as usize);
        let key = fields.text(key_length)?.into();
        let value = block.slice_ref(fields.bytes(value_length)?);
        let replaced = Replaced { revision: replaced_revision, sub: replaced_sub, expiry: replaced_expiry };
        entries.push(Arc::new(Entry { key, version: Version { revision, sub, create, expiry }, replaced, value }));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests;
