//! Opening a store: settings, files, the lock, the format version, and recovery after a crash.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, TableHandle, WriteTransaction,
    backends::FileBackend,
};

use crate::{
    apply::apply,
    backend::{Strict, Unwritten},
    clock::{Clock, SystemClock},
    fault::Fault,
    format::{EXPIRIES, FORMAT, GAPS, HISTORY, INDEX, META, OBJECTS, meta},
    history::History,
    log::{Log, LogFile, LogFiles, is_claimed, random},
    overlay::Load,
    replay::{Replay, replay},
};

/// How a store behaves. The defaults are for a single machine that mostly idles.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file; its folder must exist. Its log is beside it, in files with `.log-0` and `.log-1` added to its name.
    pub path: PathBuf,
    /// Memory for pages of the file.
    pub cache_bytes: usize,
    /// How long history is kept, for watches that resume and for lists that continue …
    pub history: Duration,
    /// … and how many bytes of it at most.
    pub history_bytes: u64,
    /// This long after a commit at the latest, the store settles: relaxed commits are durable even if no durable one came
    /// along, and opening after a crash is quick.
    pub relaxed_delay: Duration,
    /// How many bytes of changes are in the log only before they are moved to the tables. Up to 16 times as many are
    /// held in memory, then writers wait.
    pub overlay_bytes: usize,
    /// How large each of the two files of the log gets before the other one is used.
    pub log_bytes: u64,
    pub clock: Arc<dyn Clock>,
}

impl Options {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache_bytes: 1 << 20,
            history: Duration::from_secs(300),
            history_bytes: 64 << 20,
            relaxed_delay: Duration::from_secs(3),
            overlay_bytes: 1 << 20,
            log_bytes: 16 << 20,
            clock: Arc::new(SystemClock),
        }
    }
}

/// Why a store could not be opened, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open the store {path}: {source}; check that its folder exists and that this user may write there")]
    Io { path: PathBuf, source: io::Error },
    #[error("the store {path} is in use by another process; stop that one first")]
    InUse { path: PathBuf },
    #[error("{path} is not a store; give another path, or move that file away")]
    NotAStore { path: PathBuf },
    #[error(
        "the store {path} has format {found}, written by a newer version; this version reads up to format \
         {supported}: start the newer version, or restore a backup made by this one"
    )]
    NewerFormat { path: PathBuf, found: u64, supported: u64 },
    #[error("the store {path} has format {found} of an early version that this one cannot read; use that version")]
    OlderFormat { path: PathBuf, found: u64 },
    #[error("{path} is a backup; restore it to a new path and open that")]
    IsBackup { path: PathBuf },
    #[error(
        "the store {path} was not closed, and {log}, which has its newest writes, is missing, cut short or of another \
         store; put that file back, or restore the last backup"
    )]
    NoLog { path: PathBuf, log: PathBuf },
    #[error("the store {path} is damaged ({what}); restore the last backup")]
    Damaged { path: PathBuf, what: String },
}

impl OpenError {
    pub(crate) fn from_redb(path: &Path, error: redb::DatabaseError) -> Self {
        use redb::{DatabaseError, StorageError};
        let path = path.to_owned();
        match error {
            DatabaseError::DatabaseAlreadyOpen => Self::InUse { path },
            DatabaseError::UpgradeRequired(_) => Self::NotAStore { path },
            DatabaseError::Storage(StorageError::Io(source)) if source.kind() == io::ErrorKind::InvalidData => {
                Self::NotAStore { path }
            }
            DatabaseError::Storage(StorageError::Io(source)) => Self::Io { path, source },
            other => Self::Damaged { path, what: other.to_string() },
        }
    }

    pub(crate) fn from_fault(path: &Path, fault: Fault) -> Self {
        let path = path.to_owned();
        match fault.error {
            storage::Error::Corrupt(what) => Self::Damaged { path, what },
            other => Self::Io { path, source: io::Error::other(other.to_string()) },
        }
    }
}

/// How far ahead revisions are reserved. After a crash, this many may be skipped.
pub(crate) const RESERVE: u64 = 1024;

/// The numbers of a store that was just opened.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub id: u64,
    pub current: u64,
    pub compacted: u64,
    pub reserved: u64,
    /// See [`meta::LOG_LENGTHS`].
    pub log_lengths: [u64; 2],
    /// See [`meta::LOG_GENERATION`].
    pub log_generation: u64,
    /// First and last of each run of revisions that may have been lost.
    pub gaps: Vec<(u64, u64)>,
    pub next_expiry: Option<u64>,
}

/// What a store is made of.
pub(crate) struct Files {
    pub database: Database,
    pub logs: LogFiles,
}

pub(crate) fn open_or_create_file(options: &Options) -> Result<Files, OpenError> {
    match open_file(options) {
        Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let database = create_file(options, create)?;
            Ok(Files { database, logs: open_logs(&options.path)? })
        }
        opened => opened,
    }
}

pub(crate) fn open_file(options: &Options) -> Result<Files, OpenError> {
    let path = &options.path;
    let file = OpenOptions::new().read(true).write(true).open(path);
    let io = |source| OpenError::Io { path: path.clone(), source };
    let file = file.map_err(io)?;
    if file.metadata().map_err(io)?.len() == 0 {
        // Somebody emptied it: a store has its name only once it is complete.
        return Err(OpenError::NotAStore { path: path.clone() });
    }
    // This locks it, and with it the log.
    let database = open_tables(file, options)?;
    Ok(Files { database, logs: open_logs(path)? })
}

pub(crate) fn log_paths(path: &Path) -> [PathBuf; 2] {
    [".log-0", ".log-1"].map(|suffix| with_suffix(path, suffix))
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The log of the store at `path`; made if it is not there.
fn open_logs(path: &Path) -> Result<LogFiles, OpenError> {
    let open = |path: PathBuf| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
    };
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let [first, second] = log_paths(path);
    let logs: LogFiles = [Box::new(open(first).map_err(io)?), Box::new(open(second).map_err(io)?)];
    sync_folder(path).map_err(io)?;
    Ok(logs)
}

/// Makes the names of new files durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Makes a new file, which gets its name only once `fill` has filled it: whatever happens, a store is there whole or not
/// at all.
pub(crate) fn create_file(
    options: &Options,
    fill: impl FnOnce(&Database) -> Result<(), Fault>,
) -> Result<Database, OpenError> {
    let path = &options.path;
    let io = |source| OpenError::Io { path: path.clone(), source };
    let unfinished = with_suffix(path, ".unfinished");
    let mut new = OpenOptions::new();
    // Values are secrets of the whole cluster: nobody else may read them.
    let file = new.read(true).write(true).create(true).truncate(false).mode(0o600).open(&unfinished).map_err(io)?;
    // Somebody else may be at it; if not, it is what a crash has left.
    match file.try_lock() {
        Ok(()) => file.set_len(0).map_err(io)?,
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.clone() }),
        Err(TryLockError::Error(source)) => return Err(io(source)),
    }
    let database = open_tables(file, options)?;
    fill(&database).map_err(|fault| OpenError::from_fault(path, fault))?;
    // Unlike a rename, a link does not replace what somebody may have put there meanwhile.
    fs::hard_link(&unfinished, path).and_then(|()| fs::remove_file(&unfinished)).map_err(io)?;
    sync_folder(path).map_err(io)?;
    Ok(database)
}

pub(crate) fn open_backend(backend: impl StorageBackend, options: &Options) -> Result<Database, OpenError> {
    open_strict(Strict { backend, unwritten: None }, options)
}

fn open_tables(file: File, options: &Options) -> Result<Database, OpenError> {
    let same = file.try_clone().map_err(|source| OpenError::Io { path: options.path.clone(), source })?;
    let backend = FileBackend::new(file).map_err(|error| OpenError::from_redb(&options.path, error))?;
    open_strict(Strict { backend, unwritten: Unwritten::of(same) }, options)
}

fn open_strict(backend: Strict<impl StorageBackend>, options: &Options) -> Result<Database, OpenError> {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(options.cache_bytes);
    builder.create_with_backend(backend).map_err(|error| OpenError::from_redb(&options.path, error))
}

/// A store that is ready.
#[derive(Debug)]
pub(crate) struct Opened {
    pub database: Arc<Database>,
    pub log: Log,
    pub numbers: Numbers,
    pub history: History,
}

impl Opened {
    /// Checks the format, or writes it into a new file; then recovers from a crash if there was one.
    pub(crate) fn new(files: Files, options: &Options) -> Result<Self, OpenError> {
        let Files { database, logs } = files;
        let path = &options.path;
        if check_format(&database, path)?.is_none() {
            create(&database).map_err(|fault| OpenError::from_fault(path, fault))?;
        }
        let fault = |fault| OpenError::from_fault(path, fault);
        if is_backup(&database).map_err(fault)? {
            return Err(OpenError::IsBackup { path: path.clone() });
        }
        check_log(&database, &logs, path)?;
        let recover = || -> Result<Self, Fault> {
            let mut history = History::load(&database, options.history, options.history_bytes)?;
            let (id, next_generation) = recover(&database, &logs, &mut history)?;
            let numbers = read_numbers(&database)?;
            let log = Log::new(id, logs, next_generation, options.log_bytes)?;
            let mut transaction = database.begin_write()?;
            transaction.set_quick_repair(true);
            transaction.open_table(META)?.insert(meta::LOG_GENERATION, next_generation)?;
            require_log(&transaction, log.synced_lengths())?;
            transaction.commit()?;
            Ok(Self { database: Arc::new(database), log, numbers, history })
        };
        recover().map_err(fault)
    }
}

/// From now on the store is not complete without its log.
pub(crate) fn require_log(transaction: &WriteTransaction, lengths: [u64; 2]) -> Result<(), Fault> {
    let mut numbers = transaction.open_table(META)?;
    for (name, length) in meta::LOG_LENGTHS.into_iter().zip(lengths) {
        numbers.insert(name, length)?;
    }
    Ok(())
}

/// Whether the log that the tables need is there.
pub(crate) fn check_log(database: &Database, logs: &[Box<dyn LogFile>; 2], path: &Path) -> Result<(), OpenError> {
    let missing = || -> Result<Option<PathBuf>, Fault> {
        let numbers = read_numbers(database)?;
        for ((file, length), log) in logs.iter().zip(numbers.log_lengths).zip(log_paths(path)) {
            if length > 0 && !is_claimed(&**file, numbers.id, length)? {
                return Ok(Some(log));
            }
        }
        Ok(None)
    };
    match missing() {
        Ok(None) => Ok(()),
        Ok(Some(log)) => Err(OpenError::NoLog { path: path.to_owned(), log }),
        Err(fault) => Err(OpenError::from_fault(path, fault)),
    }
}

/// Moves what is in the log into the tables, and skips the revisions that may have been seen by somebody and are lost:
/// nobody continues from them and nothing is written with them. The revision after that gap is current then, and has no
/// changes. Answers the identity of the store, and the next generation of its log.
pub(crate) fn recover(
    database: &Database,
    logs: &[Box<dyn LogFile>],
    history: &mut History,
) -> Result<(u64, u64), Fault> {
    let numbers = read_numbers(database)?;
    let Replay { blocks, next_generation } = replay(logs, numbers.id, numbers.current, numbers.log_generation)?;
    let mut load = Load { entries: Vec::new(), samples: Vec::new(), until: numbers.current };
    let mut reserved = numbers.reserved;
    for block in blocks {
        reserved = reserved.max(block.stamp.reserved);
        load.until = block.entries.last().map_or(load.until, |entry| entry.version.revision);
        let bytes = block.entries.iter().map(|entry| entry.record().encoded_len() as u64).sum();
        load.samples.extend(history.record(load.until, bytes, block.stamp.time));
        load.entries.extend(block.entries);
    }
    let gap = (reserved > load.until).then_some((load.until + 1, reserved));
    if gap.is_some() || !load.entries.is_empty() {
        let mut transaction = database.begin_write()?;
        // If the machine crashes again, it need not be repaired again.
        transaction.set_quick_repair(true);
        apply(&transaction, &load, gap.map_or(reserved, |(_, last)| last + 1 + RESERVE), || {})?;
        if let Some((first, last)) = gap {
            transaction.open_table(GAPS)?.insert(last, first)?;
        }
        transaction.commit()?;
    }
    Ok((numbers.id, next_generation))
}

/// Answers whether the file has a format, which is then this one, or has no tables yet.
pub(crate) fn check_format(database: &Database, path: &Path) -> Result<Option<()>, OpenError> {
    let path = path.to_owned();
    match format_of(database, &path)? {
        None => Ok(None),
        Some(FORMAT) => Ok(Some(())),
        Some(found) if found < FORMAT => Err(OpenError::OlderFormat { path, found }),
        Some(found) => Err(OpenError::NewerFormat { path, found, supported: FORMAT }),
    }
}

/// The format version, or `None` of a file without tables.
pub(crate) fn format_of(database: &Database, path: &Path) -> Result<Option<u64>, OpenError> {
    let read = || -> Result<Option<Option<u64>>, Fault> {
        let transaction = database.begin_read()?;
        let tables: Vec<String> = transaction.list_tables()?.map(|table| table.name().to_owned()).collect();
        if tables.is_empty() {
            return Ok(None);
        }
        if !tables.iter().any(|table| table == META.name()) {
            return Ok(Some(None));
        }
        let table = transaction.open_table(META)?;
        Ok(Some(table.get(meta::FORMAT)?.map(|value| value.value())))
    };
    match read().map_err(|fault| OpenError::from_fault(path, fault))? {
        None => Ok(None),
        Some(Some(format)) => Ok(Some(format)),
        Some(None) => Err(OpenError::NotAStore { path: path.to_owned() }),
    }
}

/// All tables, empty, so that readers find them. One commit: a crash leaves all of it or an empty file.
pub(crate) fn create(database: &Database) -> Result<(), Fault> {
    let transaction = database.begin_write()?;
    {
        let mut numbers = transaction.open_table(META)?;
        numbers.insert(meta::FORMAT, FORMAT)?;
        numbers.insert(meta::ID, random())?;
    }
    transaction.open_table(OBJECTS)?;
    transaction.open_table(INDEX)?;
    transaction.open_table(EXPIRIES)?;
    transaction.open_table(GAPS)?;
    transaction.open_table(HISTORY)?;
    Ok(transaction.commit()?)
}

pub(crate) fn is_backup(database: &Database) -> Result<bool, Fault> {
    Ok(database.begin_read()?.open_table(META)?.get(meta::BACKUP)?.is_some_and(|value| value.value() != 0))
}

fn read_numbers(database: &Database) -> Result<Numbers, Fault> {
    let transaction = database.begin_read()?;
    let numbers = transaction.open_table(META)?;
    let number = |name| Ok::<_, Fault>(numbers.get(name)?.map_or(0, |value| value.value()));
    let mut gaps = Vec::new();
    for entry in transaction.open_table(GAPS)?.iter()? {
        let (last, first) = entry?;
        gaps.push((first.value(), last.value()));
    }
    Ok(Numbers {
        id: number(meta::ID)?,
        current: current_revision(&transaction)?,
        compacted: number(meta::COMPACTED)?,
        reserved: number(meta::RESERVED)?,
        log_generation: number(meta::LOG_GENERATION)?,
        log_lengths: [number(meta::LOG_LENGTHS[0])?, number(meta::LOG_LENGTHS[1])?],
        gaps,
        next_expiry: transaction.open_table(EXPIRIES)?.first()?.map(|(key, _)| key.value().0),
    })
}

/// The newest revision in a snapshot. The newest record may have been swept, but then everything up to the compaction
/// revision was there.
pub(crate) fn current_revision(snapshot: &ReadTransaction) -> Result<u64, Fault> {
    let newest = snapshot.open_table(OBJECTS)?.last()?.map_or(0, |(position, _)| position.value().0);
    let compacted = snapshot.open_table(META)?.get(meta::COMPACTED)?.map_or(0, |value| value.value());
    let past_gaps = snapshot.open_table(GAPS)?.last()?.map_or(0, |(last, _)| last.value() + 1);
    Ok(newest.max(compacted).max(past_gaps))
}
