//! The write-ahead log: what was committed and may not be in the tables yet.
//!
//! Two files take turns. A file is used from its start, block after block; each batch is one block, and one `fdatasync`
//! makes all blocks before it durable. When everything in a file is durably in the tables, it is used again from its
//! start. Its bytes were all written before, so that a sync has no metadata to write.
//!
//! Each use of a file has a random salt and each block its number within the use, so what an earlier use has left is
//! never taken for a block of this one. `docs/design/storage.md` describes the format.

use std::{
    fmt,
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    os::unix::fs::FileExt,
};

use crate::{
    fault::{Result, damaged, sync_failed},
    format::Entry,
};

/// One file of the log. The tests bring a disk of their own.
pub trait LogFile: fmt::Debug + Send {
    fn length(&self) -> io::Result<u64>;
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Answers when everything written before is durable.
    fn sync(&self) -> io::Result<()>;
}

impl LogFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

pub(crate) type LogFiles = [Box<dyn LogFile>; 2];

pub(crate) const HEADER: usize = 64;
/// Blocks begin at multiples of this: writing one never touches a sector or a page of another.
pub(crate) const ALIGNMENT: usize = 4096;
/// A file grows by this much.
const GROWTH: usize = 256 << 10;
/// Where a block has the identity of its store.
const ID: std::ops::Range<usize> = 8..16;
/// A buffer for larger blocks is not kept.
const KEPT_BUFFER: usize = 1 << 20;

/// A number that nobody has used before.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// A block in the making: a header, to be filled in last, and entries.
#[derive(Debug)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    last_revision: u64,
}

impl Block {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; HEADER], last_revision: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.truncate(HEADER);
        self.bytes.shrink_to(KEPT_BUFFER);
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        let (version, replaced) = (&entry.version, &entry.replaced);
        self.last_revision = version.revision;
        for number in [version.revision, version.create, version.expiry, replaced.revision, replaced.expiry] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        for number in [version.sub, replaced.sub, entry.key.len() as u32, entry.value.len() as u32] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.bytes.extend_from_slice(entry.key.as_bytes());
        self.bytes.extend_from_slice(&entry.value);
    }
}

/// What the header of a block says beside its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamp {
    /// See `reserved` in [`crate::format::meta`].
    pub reserved: u64,
    /// When it was written, in milliseconds since the epoch.
    pub time: u64,
}

/// One use of a file.
#[derive(Debug)]
struct Use {
    salt: u64,
    generation: u64,
    /// Blocks in it, and how many of them are durable.
    blocks: u64,
    synced: u64,
    offset: u64,
    last_revision: u64,
}

impl Use {
    fn new(generation: u64) -> Self {
        Self { salt: random(), generation, blocks: 0, synced: 0, offset: 0, last_revision: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Log {
    id: u64,
    files: LogFiles,
    /// When a file has reached this size, the other one is next, if it is free.
    turn: u64,
    /// All that is in the file or was zeroed ahead, and how much of that is durable.
    lengths: [u64; 2],
    synced_lengths: [u64; 2],
    active: usize,
    current: Use,
    /// The last revision in the other file.
    other_last: u64,
}

impl Log {
    /// Of files from which everything is in the tables durably; `generation` is newer than any in them.
    pub(crate) fn new(id: u64, files: LogFiles, generation: u64, turn: u64) -> Result<Self> {
        let lengths = [claim(&*files[0], id)?, claim(&*files[1], id)?];
        let current = Use::new(generation);
        Ok(Self { id, files, turn, lengths, synced_lengths: lengths, active: 0, current, other_last: 0 })
    }

    /// How long each file is and will be, whatever happens to the machine.
    pub(crate) fn synced_lengths(&self) -> [u64; 2] {
        self.synced_lengths
    }

    /// Whether the tables must be durable up to a later revision than `checkpoint` before the other file is free.
    pub(crate) fn needs_checkpoint(&self, checkpoint: u64) -> bool {
        self.other_last > checkpoint
    }

    /// Whether nothing more should be appended before that.
    pub(crate) fn is_overfull(&self, checkpoint: u64) -> bool {
        self.current.offset >= 2 * self.turn && self.needs_checkpoint(checkpoint)
    }

    /// Appends a block, and makes everything so far durable if `sync` says so. Everything up to `checkpoint` is durable
    /// in the tables.
    pub(crate) fn append(&mut self, block: &mut Block, stamp: Stamp, sync: bool, checkpoint: u64) -> Result<()> {
        self.make_room(checkpoint)?;
        let length = u32::try_from(block.bytes.len()).map_err(|_| damaged("a batch is too large"))?;
        let Use { salt, generation, blocks, synced, offset, .. } = self.current;
        block.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        let fields = [self.id, salt, generation, blocks, synced, stamp.reserved, stamp.time];
        for (field, number) in block.bytes[8..HEADER].chunks_exact_mut(8).zip(fields) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&block.bytes[4..]);
        block.bytes[..4].copy_from_slice(&checksum.to_le_bytes());
        block.bytes.resize(block.bytes.len().next_multiple_of(ALIGNMENT), 0);
        let end = offset + block.bytes.len() as u64;
        self.grow(end)?;
        self.files[self.active].write(offset, &block.bytes)?;
        self.current.offset = end;
        self.current.blocks += 1;
        self.current.last_revision = block.last_revision;
        if sync { self.sync() } else { Ok(()) }
    }

    /// Makes everything appended so far durable.
    pub(crate) fn sync(&mut self) -> Result<()> {
        if self.current.synced < self.current.blocks {
            self.files[self.active].sync().map_err(sync_failed)?;
            self.current.synced = self.current.blocks;
            self.synced_lengths[self.active] = self.lengths[self.active];
        }
        Ok(())
    }

    /// Starts a file again if everything in it is in the tables.
    fn make_room(&mut self, checkpoint: u64) -> Result<()> {
        let next = self.current.generation + 1;
        if self.current.blocks > 0 && self.current.last_revision <= checkpoint {
            self.current = Use::new(next);
        } else if self.current.offset >= self.turn && !self.needs_checkpoint(checkpoint) {
            // Nothing of the new use may be durable before all of this one is.
            self.sync()?;
            self.other_last = self.current.last_revision;
            self.active = 1 - self.active;
            self.current = Use::new(next);
        }
        Ok(())
    }

    /// Writes zeros ahead, so that later writes find their place allocated.
    fn grow(&mut self, needed: u64) -> Result<()> {
        let length = &mut self.lengths[self.active];
        while *length < needed {
            self.files[self.active].write(*length, &vec![0; GROWTH])?;
            *length += GROWTH as u64;
        }
        Ok(())
    }
}

/// Whether `file` has at least `length` bytes and was made part of the log of the store `id`. Once it was, its first
/// sector has that identity always: whatever overwrites it has it, too.
pub(crate) fn is_claimed(file: &dyn LogFile, id: u64, length: u64) -> Result<bool> {
    if file.length()? < length.max(HEADER as u64) {
        return Ok(false);
    }
    let mut header = [0; HEADER];
    file.read(0, &mut header)?;
    Ok(header[ID] == id.to_le_bytes())
}

/// Makes `file` part of the log of the store `id`, with what looks like a torn block. Answers its length, which is durable.
fn claim(file: &dyn LogFile, id: u64) -> Result<u64> {
    if !is_claimed(file, id, GROWTH as u64)? {
        let mut empty = vec![0; GROWTH];
        empty[ID].copy_from_slice(&id.to_le_bytes());
        file.write(0, &empty)?;
    }
    file.sync().map_err(sync_failed)?;
    Ok(file.length()?)
}
