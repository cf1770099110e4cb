//! The store itself: what the committer and the readers share, and the [`Store`] trait on top of it.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use async_trait::async_trait;
use redb::{Database, StorageBackend};
use storage::{At, Error, KeyValue, Outcome, Page, Range, Revision, Store, Transaction, Watch, WatchEvent};
use tokio::sync::oneshot;

use crate::{
    backup::{self, BackupError},
    check::{self, Report},
    fault::Result,
    follow,
    handover::{Handover, Settling},
    hub::{End, Event, Hub},
    log::LogFile,
    opening::{self, Files, OpenError, Opened, Options},
    overlay::Overlay,
    queue::Queue,
    snapshot::{Events, Snapshot},
    supervisor::Supervisor,
};

/// A store in a file and its log, used by one process. Dropping it closes it.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    committer: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` while the disk fails, and once closed.
    database: RwLock<Option<Arc<Database>>>,
    /// What is committed and not in the database yet.
    pub overlay: Overlay,
    pub handover: Handover,
    /// The newest revision. Set after its commit and before its acknowledgement.
    current: AtomicU64,
    /// Everything up to this revision is durably in the database.
    checkpoint: AtomicU64,
    /// The revision that no visible commit exceeds unless it is durable.
    reserved: AtomicU64,
    /// How long the files of the log are durably.
    log_lengths: [AtomicU64; 2],
    /// Reads below this revision are refused. Raised before the sweep that makes it necessary.
    oldest: AtomicU64,
    gaps: RwLock<Vec<(u64, u64)>>,
    /// Transactions that wait for the committer or are in its hands.
    pub in_flight: AtomicUsize,
    pub hub: Hub,
    failure: Mutex<Option<Error>>,
}

impl EmbeddedStore {
    /// Opens the store at `options.path`, or makes a new one there. Blocks on the disk.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        let files = opening::open_or_create_file(&options)?;
        Self::start(files, options, opening::open_file)
    }

    /// On another disk than files, which `disk` answers whenever it is asked: the place of the tables, and the two of
    /// the log. The `path` of the options is used in messages only.
    pub fn open_on<B: StorageBackend>(
        disk: impl Fn() -> (B, [Box<dyn LogFile>; 2]) + Send + 'static,
        options: Options,
    ) -> Result<Self, OpenError> {
        let open = move |options: &Options| {
            let (backend, logs) = disk();
            Ok(Files { database: opening::open_backend(backend, options)?, logs })
        };
        Self::start(open(&options)?, options, open)
    }

    fn start(
        files: Files,
        options: Options,
        reopen: impl Fn(&Options) -> Result<Files, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let opened = Opened::new(files, &options)?;
        let numbers = &opened.numbers;
        let shared = Arc::new(Shared {
            database: RwLock::new(Some(opened.database.clone())),
            overlay: Overlay::new(numbers.current),
            handover: Handover::default(),
            current: AtomicU64::new(numbers.current),
            checkpoint: AtomicU64::new(numbers.current),
            reserved: AtomicU64::new(numbers.reserved),
            log_lengths: opened.log.synced_lengths().map(AtomicU64::new),
            oldest: AtomicU64::new(numbers.compacted),
            gaps: RwLock::new(numbers.gaps.clone()),
            in_flight: AtomicUsize::new(0),
            hub: Hub::new(numbers.current),
            failure: Mutex::new(None),
        });
        let queue = Arc::new(Queue::default());
        let path = options.path.clone();
        let supervisor = Supervisor { shared: shared.clone(), queue: queue.clone(), options, reopen: Box::new(reopen) };
        let committer = thread::Builder::new()
            .name("store".into())
            .spawn(move || supervisor.run(opened))
            .map_err(|source| OpenError::Io { path, source })?;
        Ok(Self { shared, queue, committer: Mutex::new(Some(committer)) })
    }

    /// Makes everything durable and gives the file up, as soon as reads that are under way have ended.
    pub async fn close(&self) -> Result<(), Error> {
        let committer = self.stop();
        tokio::task::spawn_blocking(move || join(committer)).await.map_err(|stopped| unavailable(&stopped))?;
        self.shared.failure().map_or(Ok(()), Err)
    }

    fn stop(&self) -> Option<thread::JoinHandle<()>> {
        self.queue.close();
        self.committer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Copies the store as it is now to a new file, while it is in use. See [`crate::restore`].
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<Revision, BackupError> {
        self.settle().await?;
        let (shared, to) = (self.shared.clone(), to.as_ref().to_owned());
        let copy = tokio::task::spawn_blocking(move || backup::backup(&*shared.database()?, &to));
        copy.await.map_err(|stopped| BackupError::from(unavailable(&stopped)))?
    }

    /// Checks that the contents agree with each other, while the store is in use. [`crate::check`] also finds damage by
    /// checksums, in a store that is closed.
    pub async fn check(&self) -> Result<Report, Error> {
        self.settle().await?;
        let shared = self.shared.clone();
        let checked = tokio::task::spawn_blocking(move || check::structure(&*shared.database()?));
        Ok(checked.await.map_err(|stopped| unavailable(&stopped))??)
    }

    /// Everything up to now is in the database, and swept.
    async fn settle(&self) -> Result<(), Error> {
        let (done, settled) = oneshot::channel();
        let request = Settling { until: self.shared.current(), oldest: self.shared.oldest(), done };
        self.shared.handover.settle(request);
        settled.await.map_err(|_| self.shared.stopped())
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        join(self.stop());
    }
}

fn join(committer: Option<thread::JoinHandle<()>>) {
    if let Some(committer) = committer {
        // It catches panics and reports them as the failure of the store.
        let _ = committer.join();
    }
}

fn unavailable(stopped: &tokio::task::JoinError) -> Error {
    Error::Unavailable(stopped.to_string())
}

impl Shared {
    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    /// A batch is committed.
    pub(crate) fn advance(&self, current: u64, events: Option<Vec<Arc<Event>>>) {
        self.current.store(current, Ordering::Release);
        self.hub.publish(events, current);
    }

    pub(crate) fn checkpoint(&self) -> u64 {
        self.checkpoint.load(Ordering::Acquire)
    }

    pub(crate) fn checkpointed(&self, revision: u64) {
        self.checkpoint.store(revision, Ordering::Release);
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// That no visible commit exceeds this unless it is durable is on disk.
    pub(crate) fn reserve(&self, revision: u64) {
        self.reserved.store(revision, Ordering::Release);
    }

    pub(crate) fn log_lengths(&self) -> [u64; 2] {
        self.log_lengths.each_ref().map(|length| length.load(Ordering::Acquire))
    }

    pub(crate) fn log_synced(&self, lengths: [u64; 2]) {
        for (known, length) in self.log_lengths.iter().zip(lengths) {
            known.store(length, Ordering::Release);
        }
    }

    /// History below `revision` is not served any more, and may be swept.
    pub(crate) fn raise_oldest(&self, revision: u64) {
        if self.oldest.fetch_max(revision, Ordering::AcqRel) < revision {
            self.handover.wake_applier();
        }
    }

    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// Nothing can be read or written for now.
    pub(crate) fn suspend(&self, failure: Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The store has been opened again.
    pub(crate) fn resume(&self, opened: &Opened) {
        let numbers = &opened.numbers;
        self.overlay.reset(numbers.current);
        self.handover.reset();
        *self.gaps.write().unwrap_or_else(PoisonError::into_inner) = numbers.gaps.clone();
        self.checkpointed(numbers.current);
        self.reserve(numbers.reserved);
        self.log_synced(opened.log.synced_lengths());
        self.current.store(numbers.current, Ordering::Release);
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = Some(opened.database.clone());
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.hub.resume(numbers.current);
    }

    /// Nothing will be read or written any more.
    pub(crate) fn end(&self, end: End) {
        match &end {
            End::Closed => *self.database.write().unwrap_or_else(PoisonError::into_inner) = None,
            End::Failed(failure) => self.suspend(failure.clone()),
        }
        self.hub.end(end);
    }

    fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn stopped(&self) -> Error {
        self.failure().unwrap_or_else(|| Error::Unavailable("the store is closed".into()))
    }

    fn database(&self) -> Result<Arc<Database>> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        database.clone().ok_or_else(|| self.stopped().into())
    }

    /// Whether the state at this revision is known.
    fn check_revision(&self, requested: u64) -> Result<()> {
        let compacted = |oldest| Error::Compacted { requested: Revision(requested), oldest: Revision(oldest) };
        let oldest = self.oldest();
        if requested < oldest {
            return Err(compacted(oldest).into());
        }
        let current = self.current();
        if requested > current {
            return Err(Error::FutureRevision { requested: Revision(requested), current: Revision(current) }.into());
        }
        match self.past_gap(requested) {
            known if known == requested => Ok(()),
            oldest => Err(compacted(oldest).into()),
        }
    }

    /// The first revision from this one on that was not lost in a crash.
    fn past_gap(&self, revision: u64) -> u64 {
        let gaps = self.gaps.read().unwrap_or_else(PoisonError::into_inner);
        let gap = gaps.iter().find(|(first, last)| (*first..=*last).contains(&revision));
        gap.map_or(revision, |(_, last)| last + 1)
    }

    /// Reads at a revision, by default the current one. `read` is given the revision; it looks at the overlay before it
    /// opens a snapshot.
    fn read<T>(&self, revision: Option<Revision>, read: impl Fn(&Database, u64) -> Result<T>) -> Result<At<T>> {
        loop {
            let wanted = revision.map_or_else(|| self.current(), |revision| revision.0);
            let value = read(&*self.database()?, wanted);
            // Only now: what was swept before the snapshot was taken shows in the oldest revision by now.
            match self.check_revision(wanted) {
                Ok(()) => return Ok(At { revision: Revision(wanted), value: value? }),
                // What was current has been compacted since.
                Err(_) if revision.is_none() => continue,
                Err(refused) => return Err(refused),
            }
        }
    }

    fn get(&self, key: &str, revision: Option<Revision>) -> Result<At<Option<KeyValue>>> {
        self.read(revision, |database, at| match self.overlay.find(key, at) {
            (Some(entry), _) => Ok(entry.live()),
            (None, _) => Snapshot::open(database)?.get(key, at),
        })
    }

    fn range(&self, range: &Range) -> Result<At<Page>> {
        let after = range.after.as_deref();
        self.read(range.revision, |database, at| {
            let overlay = self.overlay.range(&range.prefix, after, at);
            Snapshot::open(database)?.range(&range.prefix, after, range.limit, at, overlay)
        })
    }

    /// The events after `after` and up to `until` of keys with `prefix`; and up to which revision they are complete,
    /// which is less than `until` once the events have `enough` bytes.
    pub(crate) fn events(&self, prefix: &str, after: u64, until: u64, enough: usize) -> Result<(Vec<WatchEvent>, u64)> {
        let read = self.read(Some(Revision(after)), |database, after| {
            let (entries, base) = self.overlay.entries(after, until, enough);
            let (mut events, mut reached) = (Events::default(), after);
            if after < base {
                let until = until.min(base);
                (events, reached) = Snapshot::open(database)?.events(prefix, after, until, enough)?;
                if reached < until {
                    return Ok((events.events, reached));
                }
            }
            for entry in &entries {
                reached = entry.version.revision;
                if entry.key.starts_with(prefix) {
                    events.push(reached, entry.change(), entry.bytes());
                }
            }
            Ok((events.events, reached))
        });
        Ok(read?.value)
    }
}

/// Counts while it lives.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn current_revision(&self) -> Result<Revision, Error> {
        Ok(Revision(self.shared.current()))
    }

    async fn get(&self, key: &str, revision: Option<Revision>) -> Result<At<Option<KeyValue>>, Error> {
        // A few pages, mostly cached: cheaper than another thread.
        Ok(self.shared.get(key, revision)?)
    }

    async fn range(&self, range: Range) -> Result<At<Page>, Error> {
        let shared = self.shared.clone();
        let read = tokio::task::spawn_blocking(move || shared.range(&range));
        Ok(read.await.map_err(|stopped| unavailable(&stopped))??)
    }

    async fn commit(&self, transaction: Transaction) -> Result<Outcome, Error> {
        transaction.validate()?;
        let (reply, outcome) = oneshot::channel();
        let _in_flight = InFlight::enter(&self.shared.in_flight);
        if !self.queue.push((transaction, reply)) {
            return Err(self.shared.stopped());
        }
        let unknown = || Error::Unavailable("the store stopped; the write may or may not be there".into());
        outcome.await.map_err(|_| self.shared.failure().unwrap_or_else(unknown))
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        self.shared.check_revision(after.0)?;
        Ok(follow::watch(self.shared.clone(), prefix, after.0))
    }

    async fn request_progress(&self) -> Result<(), Error> {
        self.shared.hub.request_progress();
        Ok(())
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let current = self.shared.current();
        if revision.0 > current {
            return Err(Error::FutureRevision { requested: revision, current: Revision(current) });
        }
        self.shared.raise_oldest(self.shared.past_gap(revision.0));
        Ok(())
    }
}
