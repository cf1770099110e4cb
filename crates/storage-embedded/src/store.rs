//! The store itself: what the committer and the readers share, and the [`Store`] trait on top of it.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use async_trait::async_trait;
use redb::{Database, StorageBackend};
use storage::{At, Error, KeyValue, Outcome, Page, Range, Revision, Store, Transaction, Watch};
use tokio::sync::oneshot;

use crate::{
    backup::{self, BackupError},
    check::{self, Report},
    committer::Request,
    fault::Result,
    follow,
    hub::{End, Event, Hub},
    opening::{self, OpenError, Opened, Options},
    snapshot::Snapshot,
    supervisor::Supervisor,
};

/// A store in one file, used by one process. Dropping it closes it.
#[derive(Debug)]
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    requests: mpsc::Sender<Request>,
    committer: Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// `None` while the disk fails, and once closed.
    database: RwLock<Option<Arc<Database>>>,
    /// The newest revision. Set after its commit and before its acknowledgement.
    current: AtomicU64,
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
        let database = opening::open_or_create_file(&options)?;
        Self::start(database, options, opening::open_file)
    }

    /// On another disk than a file, which `backend` answers whenever it is asked; its `path` is used in messages only.
    pub fn open_on<B: StorageBackend>(
        backend: impl Fn() -> B + Send + 'static,
        options: Options,
    ) -> Result<Self, OpenError> {
        let open = move |options: &Options| opening::open_backend(backend(), options);
        Self::start(open(&options)?, options, open)
    }

    fn start(
        database: Database,
        options: Options,
        reopen: impl Fn(&Options) -> Result<Database, OpenError> + Send + 'static,
    ) -> Result<Self, OpenError> {
        let opened = Opened::new(database, &options)?;
        let shared = Arc::new(Shared {
            database: RwLock::new(Some(opened.database.clone())),
            current: AtomicU64::new(opened.numbers.current),
            oldest: AtomicU64::new(opened.numbers.compacted),
            gaps: RwLock::new(opened.numbers.gaps.clone()),
            in_flight: AtomicUsize::new(0),
            hub: Hub::new(opened.numbers.current),
            failure: Mutex::new(None),
        });
        let (requests, receiver) = mpsc::channel();
        let path = options.path.clone();
        let supervisor = Supervisor { shared: shared.clone(), requests: receiver, options, reopen: Box::new(reopen) };
        let committer = thread::Builder::new()
            .name("store".into())
            .spawn(move || supervisor.run(opened))
            .map_err(|source| OpenError::Io { path, source })?;
        Ok(Self { shared, requests, committer: Mutex::new(Some(committer)) })
    }

    /// Makes everything durable and gives the file up, as soon as reads that are under way have ended.
    pub async fn close(&self) -> Result<(), Error> {
        let committer = self.stop();
        tokio::task::spawn_blocking(move || join(committer)).await.map_err(|stopped| unavailable(&stopped))?;
        self.shared.failure().map_or(Ok(()), Err)
    }

    fn stop(&self) -> Option<thread::JoinHandle<()>> {
        // Fails if the committer has ended already.
        let _ = self.requests.send(Request::Close);
        self.committer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Copies the store as it is now to a new file, while it is in use. See [`crate::restore`].
    pub async fn backup(&self, to: impl AsRef<Path>) -> Result<Revision, BackupError> {
        let (shared, to) = (self.shared.clone(), to.as_ref().to_owned());
        let copy = tokio::task::spawn_blocking(move || backup::backup(&*shared.database()?, &to));
        copy.await.map_err(|stopped| BackupError::from(unavailable(&stopped)))?
    }

    /// Checks that the contents agree with each other, while the store is in use. [`crate::check`] also finds damage by
    /// checksums, in a store that is closed.
    pub async fn check(&self) -> Result<Report, Error> {
        let shared = self.shared.clone();
        let checked = tokio::task::spawn_blocking(move || check::structure(&*shared.database()?));
        Ok(checked.await.map_err(|stopped| unavailable(&stopped))??)
    }

    fn send(&self, request: Request) -> Result<(), Error> {
        self.requests.send(request).map_err(|_| self.shared.stopped())
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

    pub(crate) fn raise_oldest(&self, revision: u64) {
        self.oldest.fetch_max(revision, Ordering::AcqRel);
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
        *self.gaps.write().unwrap_or_else(PoisonError::into_inner) = opened.numbers.gaps.clone();
        self.current.store(opened.numbers.current, Ordering::Release);
        *self.database.write().unwrap_or_else(PoisonError::into_inner) = Some(opened.database.clone());
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.hub.resume(opened.numbers.current);
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

    /// A snapshot in which the events after `revision` are complete.
    pub(crate) fn snapshot_after(&self, revision: u64) -> Result<Snapshot> {
        Ok(self.snapshot(Some(Revision(revision)))?.0)
    }

    /// A snapshot, and the revision to read in it.
    fn snapshot(&self, revision: Option<Revision>) -> Result<(Snapshot, u64)> {
        loop {
            let wanted = revision.map_or_else(|| self.current(), |revision| revision.0);
            let snapshot = Snapshot::open(&*self.database()?)?;
            // Only now: what was swept before the snapshot was taken shows in the oldest revision by now.
            match self.check_revision(wanted) {
                Ok(()) => return Ok((snapshot, wanted)),
                // What was current has been compacted since.
                Err(_) if revision.is_none() => continue,
                Err(refused) => return Err(refused),
            }
        }
    }

    fn get(&self, key: &str, revision: Option<Revision>) -> Result<At<Option<KeyValue>>> {
        let (snapshot, revision) = self.snapshot(revision)?;
        Ok(At { revision: Revision(revision), value: snapshot.get(key, revision)? })
    }

    fn range(&self, range: &Range) -> Result<At<Page>> {
        let (snapshot, revision) = self.snapshot(range.revision)?;
        let value = snapshot.range(&range.prefix, range.after.as_deref(), range.limit, revision)?;
        Ok(At { revision: Revision(revision), value })
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
        self.send(Request::Commit { transaction, reply })?;
        outcome.await.map_err(|_| self.shared.stopped())
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
        let oldest = self.shared.past_gap(revision.0);
        self.shared.raise_oldest(oldest);
        self.send(Request::Compact(oldest))
    }
}
