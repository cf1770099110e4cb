//! Is a store sound? Checksums find what the disk has damaged; a walk over all tables finds contents that contradict
//! each other.

use std::{
    collections::BTreeMap,
    fs::{File, TryLockError},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend};

use crate::{
    fault::Result,
    format::{EXPIRIES, GAPS, INDEX, META, OBJECTS, Record, Version, meta, split_index_key},
    history::History,
    log::LogFile,
    opening::{self, OpenError},
};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Versions of keys, all of which were looked at.
    pub versions: u64,
    /// What is wrong, at most [`Report::MAX_PROBLEMS`] of it. A sound store has none.
    pub problems: Vec<String>,
}

impl Report {
    pub const MAX_PROBLEMS: usize = 100;

    fn problem(&mut self, what: impl Into<String>) {
        if self.problems.len() < Self::MAX_PROBLEMS {
            self.problems.push(what.into());
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the check could not read everything: {0}")]
    Read(storage::Error),
}

/// Checks a store or a backup that is not in use, without changing it.
pub fn check(path: impl AsRef<Path>) -> Result<Report, CheckError> {
    let path = path.as_ref();
    let damaged = |what: String| Ok(Report { versions: 0, problems: vec![what] });
    let mut database = match open_untouched(path) {
        Ok(database) => database,
        Err(OpenError::Damaged { what, .. }) => return damaged(what),
        Err(other) => return Err(other.into()),
    };
    let mut problems = Vec::new();
    match database.check_integrity() {
        Ok(true) => {}
        Ok(false) => problems.push("the file's checksums or page accounts are wrong".to_owned()),
        Err(redb::DatabaseError::Storage(redb::StorageError::Corrupted(what))) => return damaged(what),
        Err(other) => return Err(OpenError::from_redb(path, other).into()),
    }
    if opening::check_format(&database, path)?.is_none() {
        return Err(OpenError::NotAStore { path: path.to_owned() }.into());
    }
    match replay_log(&database, path) {
        Err(OpenError::Damaged { what, .. }) => problems.push(what),
        Err(missing @ OpenError::NoLog { .. }) => problems.push(missing.to_string()),
        replayed => replayed?,
    }
    let mut report = structure(&database).map_err(|fault| CheckError::Read(fault.error))?;
    report.problems.splice(0..0, problems);
    Ok(report)
}

/// Checks that the tables agree with each other.
pub(crate) fn structure(database: &Database) -> Result<Report> {
    let snapshot = database.begin_read()?;
    let objects = snapshot.open_table(OBJECTS)?;
    let index = snapshot.open_table(INDEX)?;
    let expiries = snapshot.open_table(EXPIRIES)?;
    let compacted = snapshot.open_table(META)?.get(meta::COMPACTED)?.map_or(0, |value| value.value());
    let mut report = Report::default();
    let mut expiring = 0;
    // The version before in the index: the next newer one, if it is of the same key.
    let mut newer: Option<(String, Version)> = None;
    for entry in index.iter()? {
        let (found, value) = entry?;
        let (key, revision) = split_index_key(found.value())?;
        let version = Version::new(revision, value.value());
        report.versions += 1;
        match objects.get(version.position())? {
            None => report.problem(format!("{key} at revision {revision} has no record")),
            Some(found) => match Record::decode(found.value()) {
                Ok(record) if record.key == key && record.create == version.create => {}
                Ok(record) => {
                    report.problem(format!("{key} at revision {revision} points at a record of {}", record.key))
                }
                Err(fault) => report.problem(format!("{key} at revision {revision}: {}", fault.error)),
            },
        }
        let newer_version = newer.take().filter(|(newer, _)| newer == key).map(|(_, version)| version);
        check_succession(&mut report, key, &version, newer_version.as_ref(), compacted);
        if newer_version.is_none() && version.expiry != 0 {
            expiring += 1;
            if expiries.get((version.expiry, revision, version.sub))?.is_none() {
                report.problem(format!("{key} at revision {revision} expires, but nothing will delete it"));
            }
        }
        newer = Some((key.to_owned(), version));
    }
    if objects.len()? != report.versions {
        report.problem(format!("{} records for {} versions of keys", objects.len()?, report.versions));
    }
    if expiries.len()? != expiring {
        report.problem(format!("{} expiries for {expiring} keys that expire", expiries.len()?));
    }
    for entry in snapshot.open_table(GAPS)?.iter()? {
        let (last, first) = entry?;
        let (first, last) = (first.value(), last.value());
        if first > last || objects.range((first, 0)..=(last, u32::MAX))?.next().is_some() {
            report.problem(format!("records within the lost revisions {first} to {last}"));
        }
    }
    Ok(report)
}

fn check_succession(report: &mut Report, key: &str, version: &Version, newer: Option<&Version>, compacted: u64) {
    let revision = version.revision;
    if version.create > revision {
        report.problem(format!("{key} at revision {revision} was created later, at {}", version.create));
    }
    if version.is_deletion() && (version.expiry != 0 || revision <= compacted) {
        report.problem(format!("the deletion of {key} at revision {revision} should have been swept, or expires"));
    }
    if let Some(newer) = newer {
        let expected = if version.is_deletion() { newer.revision } else { version.create };
        if !newer.is_deletion() && newer.create != expected {
            report.problem(format!(
                "{key} at revision {} says created at {}, not {expected}",
                newer.revision, newer.create
            ));
        }
        if newer.is_deletion() && version.is_deletion() {
            report.problem(format!("{key} is deleted twice, at {revision} and {}", newer.revision));
        }
        if newer.revision <= compacted {
            report.problem(format!("{key} at revision {revision} should have been swept"));
        }
    }
}

/// Moves what is in the log of the store at `path` into `database`, which [`open_untouched`] has opened. A backup has no
/// log.
pub(crate) fn replay_log(database: &Database, path: &Path) -> Result<(), OpenError> {
    let fault = |fault| OpenError::from_fault(path, fault);
    if opening::is_backup(database).map_err(fault)? {
        return Ok(());
    }
    let open = |log: PathBuf| -> io::Result<Box<dyn LogFile>> {
        match File::open(log) {
            Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(Box::new(Missing)),
            opened => Ok(Box::new(opened?)),
        }
    };
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let [first, second] = opening::log_paths(path);
    let logs = [open(first).map_err(io)?, open(second).map_err(io)?];
    opening::check_log(database, &logs, path)?;
    let replay = || -> Result<()> {
        let options = opening::Options::new(path);
        let mut history = History::load(database, options.history, options.history_bytes)?;
        opening::recover(database, &logs, &mut history).map(drop)
    };
    replay().map_err(fault)
}

/// A file of the log that is not there.
#[derive(Debug)]
struct Missing;

impl LogFile for Missing {
    fn length(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the tables of a store, and recovers them if need be, without changing the file.
pub(crate) fn open_untouched(path: &Path) -> Result<Database, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let file = File::open(path).map_err(io)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let length = file.metadata().map_err(io)?.len();
    if length == 0 {
        return Err(OpenError::NotAStore { path: path.to_owned() });
    }
    let overlay = Overlay { file, state: Mutex::new(Written { length, readable: length, blocks: BTreeMap::new() }) };
    opening::open_backend(overlay, &opening::Options::new(path))
}

const BLOCK: u64 = 4096;

/// A file that is only read; what is written stays in memory, over it.
#[derive(Debug)]
struct Overlay {
    file: File,
    state: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    length: u64,
    /// How much of the file still shows: less than its length once the length was set lower.
    readable: u64,
    blocks: BTreeMap<u64, Box<[u8; BLOCK as usize]>>,
}

impl Overlay {
    fn state(&self) -> MutexGuard<'_, Written> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_file(&self, state: &Written, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let shown = state.readable.saturating_sub(offset).min(out.len() as u64) as usize;
        let (from_file, beyond) = out.split_at_mut(shown);
        beyond.fill(0);
        self.file.read_exact_at(from_file, offset)
    }
}

/// Calls `each` with the block number, the offset in the block and the part of the buffer, for every block touched.
fn by_block(
    offset: u64,
    length: usize,
    mut each: impl FnMut(u64, usize, std::ops::Range<usize>) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let part = (BLOCK as usize - within).min(length - done);
        each(at / BLOCK, within, done..done + part)?;
        done += part;
    }
    Ok(())
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if offset + out.len() as u64 > state.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        by_block(offset, out.len(), |block, within, part| match state.blocks.get(&block) {
            Some(bytes) => {
                let length = part.len();
                out[part].copy_from_slice(&bytes[within..within + length]);
                Ok(())
            }
            None => self.read_file(&state, block * BLOCK + within as u64, &mut out[part]),
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        state.length = length;
        state.readable = state.readable.min(length);
        let kept = length.div_ceil(BLOCK);
        state.blocks.retain(|block, _| *block < kept);
        if let Some(last) = state.blocks.get_mut(&(length / BLOCK)) {
            last[(length % BLOCK) as usize..].fill(0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        by_block(offset, data.len(), |block, within, part| {
            if !state.blocks.contains_key(&block) {
                let mut bytes = Box::new([0; BLOCK as usize]);
                self.read_file(&state, block * BLOCK, &mut bytes[..])?;
                state.blocks.insert(block, bytes);
            }
            if let Some(bytes) = state.blocks.get_mut(&block) {
                bytes[within..within + part.len()].copy_from_slice(&data[part]);
            }
            Ok(())
        })
    }
}
