//! Copies of a store: a consistent backup of one that is in use, and its restoration.

use std::path::{Path, PathBuf};

use redb::{Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, Value, WriteTransaction};
use storage::{Error, Revision};

use crate::{
    check::{self, CheckError},
    fault::{Fault, Result},
    format::{EXPIRIES, GAPS, HISTORY, INDEX, META, OBJECTS, meta},
    log::random,
    opening::{self, OpenError, Options},
};

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0} exists already; give a path that does not")]
    Exists(PathBuf),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Check(#[from] CheckError),
    #[error("the backup {path} is damaged ({first}); use an older one")]
    Damaged { path: PathBuf, first: String },
    #[error("copying failed: {0}")]
    Store(#[from] Error),
}

impl From<Fault> for BackupError {
    fn from(fault: Fault) -> Self {
        Self::Store(fault.error)
    }
}

/// A restored store continues this far above the revision of its backup. What the original wrote after the backup was
/// made is lost, but those revisions were seen: they are not used again, and nobody continues from them.
const REVISIONS_SKIPPED: u64 = 1_000_000_000;

/// How much goes into one commit of the copy.
const CHUNK_BYTES: usize = 4 << 20;

pub(crate) fn backup(database: &Database, to: &Path) -> Result<Revision, BackupError> {
    let snapshot = database.begin_read().map_err(Fault::from)?;
    copy(&snapshot, to, |_, transaction| {
        transaction.open_table(META)?.insert(meta::BACKUP, 1)?;
        Ok(())
    })
}

/// Makes a store at the new path `to` from a backup, after checking it. Answers the revision that the store is at.
/// Clients that know a revision which the backup has not are told to list again.
pub fn restore(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Revision, BackupError> {
    let from = from.as_ref();
    if let Some(first) = check::check(from)?.problems.into_iter().next() {
        return Err(BackupError::Damaged { path: from.to_owned(), first });
    }
    let database = check::open_untouched(from)?;
    check::replay_log(&database, from)?;
    let snapshot = database.begin_read().map_err(Fault::from)?;
    copy(&snapshot, to.as_ref(), |current, transaction| {
        let (first, last) = (current + 1, current + REVISIONS_SKIPPED);
        transaction.open_table(GAPS)?.insert(last, first)?;
        let mut numbers = transaction.open_table(META)?;
        numbers.remove(meta::BACKUP)?;
        numbers.insert(meta::RESERVED, last + 1)?;
        Ok(())
    })
    .map(|revision| Revision(revision.0 + REVISIONS_SKIPPED + 1))
}

/// Copies what `snapshot` sees to a new file. `mark` is given the revision of the snapshot and the last transaction of the
/// copy.
fn copy(
    snapshot: &ReadTransaction,
    to: &Path,
    mark: impl FnOnce(u64, &WriteTransaction) -> Result<()>,
) -> Result<Revision, BackupError> {
    if to.exists() {
        return Err(BackupError::Exists(to.to_owned()));
    }
    let current = opening::current_revision(snapshot)?;
    opening::create_file(&Options::new(to), |copy| {
        copy_table(snapshot, copy, OBJECTS, |value| value.len())?;
        copy_table(snapshot, copy, INDEX, |_| 64)?;
        copy_table(snapshot, copy, EXPIRIES, |_| 32)?;
        copy_table(snapshot, copy, GAPS, |_| 16)?;
        copy_table(snapshot, copy, HISTORY, |_| 32)?;
        copy_table(snapshot, copy, META, |_| 32)?;
        let last = copy.begin_write()?;
        // A copy has a log of its own.
        opening::require_log(&last, [0; 2])?;
        last.open_table(META)?.insert(meta::ID, random())?;
        mark(current, &last)?;
        Ok(last.commit()?)
    })?;
    Ok(Revision(current))
}

fn copy_table<K: Key + 'static, V: Value + 'static>(
    snapshot: &ReadTransaction,
    copy: &Database,
    definition: TableDefinition<K, V>,
    size: impl Fn(&V::SelfType<'_>) -> usize,
) -> Result<()> {
    let source = snapshot.open_table(definition)?;
    let mut entries = source.iter()?.peekable();
    loop {
        let transaction = copy.begin_write()?;
        {
            let mut table = transaction.open_table(definition)?;
            let mut bytes = 0;
            while bytes < CHUNK_BYTES
                && let Some(entry) = entries.next()
            {
                let (key, value) = entry?;
                bytes += size(&value.value());
                table.insert(key.value(), value.value())?;
            }
        }
        transaction.commit()?;
        if entries.peek().is_none() {
            return Ok(());
        }
    }
}
