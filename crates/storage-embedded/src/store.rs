//! The store itself: what the committer and the readers share, and the [`Store`] trait on top of it.

use std::{
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
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
    committer::{Committer, Pace, Request},
    fault::Result,
    follow,
    history::History,
    hub::{End, Event, Hub},
    opening::{self, OpenError, Options},
    snapshot::Snapshot,
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
    /// `None` once closed.
    database: RwLock<Option<Arc<Database>>>,
    /// The newest revision. Set after its commit and before its acknowledgement.
    current: AtomicU64,
    /// Reads below this revision are refused. Raised before the sweep that makes it necessary.
    oldest: AtomicU64,
    gaps: Vec<(u64, u64)>,
    /// Transactions that wait for the committer or are in its hands.
    pub in_flight: AtomicUsize,
    pub hub: Hub,
    failure: OnceLock<Error>,
}

impl EmbeddedStore {
    /// Opens the store at `options.path`, or makes a new one there. Blocks on the disk.
    pub fn open(options: Options) -> Result<Self, OpenError> {
        Self::start(opening::open_file(&options)?, options)
    }

    /// On another disk than a file; its `path` is used in messages only.
    pub fn open_on(backend: impl StorageBackend, options: Options) -> Result<Self, OpenError> {
        Self::start(opening::open_backend(backend, &options)?, options)
    }

    fn start(database: Database, options: Options) -> Result<Self, OpenError> {
        let numbers = opening::prepare(&database, &options.path)?;
        let history = History::load(&database, options.history, options.history_bytes)
            .map_err(|fault| OpenError::from_fault(&options.path, fault))?;
        let database = Arc::new(database);
        let shared = Arc::new(Shared {
            database: RwLock::new(Some(database.clone())),
            current: AtomicU64::new(numbers.current),
            oldest: AtomicU64::new(numbers.compacted),
            gaps: numbers.gaps,
            in_flight: AtomicUsize::new(0),
            hub: Hub::new(numbers.current),
            failure: OnceLock::new(),
        });
        let (requests, receiver) = mpsc::channel();
        let committer = Committer {
            shared: shared.clone(),
            database,
            requests: receiver,
            clock: options.clock,
            relaxed_delay: options.relaxed_delay,
            history,
            reserved: numbers.reserved,
            next_expiry: numbers.next_expiry,
            swept: numbers.compacted,
            sweep_target: numbers.compacted,
            unsettled: None,
            pace: Pace::default(),
        };
        let committer = thread::Builder::new()
            .name("store".into())
            .spawn(move || run(committer))
            .map_err(|source| OpenError::Io { path: options.path, source })?;
        Ok(Self { shared, requests, committer: Mutex::new(Some(committer)) })
    }

    /// Makes everything durable and gives the file up, as soon as reads that are under way have ended.
    pub async fn close(&self) -> Result<(), Error> {
        let committer = self.stop();
        tokio::task::spawn_blocking(move || join(committer)).await.map_err(|stopped| unavailable(&stopped))?;
        match self.shared.failure.get() {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
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

/// redb panics on some kinds of damage; nobody must wait for answers that will not come.
fn run(committer: Committer) {
    let shared = committer.shared.clone();
    if panic::catch_unwind(AssertUnwindSafe(|| committer.run())).is_err() {
        shared.end(End::Failed(Error::Corrupt(
            "writing panicked; check the store, and restore a backup if need be".into(),
        )));
    }
}

fn join(committer: Option<thread::JoinHandle<()>>) {
    if let Some(committer) = committer {
        // A panic in there has been reported as the failure of the store.
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

    /// Nothing will be written any more.
    pub(crate) fn end(&self, end: End) {
        match &end {
            End::Closed => *self.database.write().unwrap_or_else(PoisonError::into_inner) = None,
            End::Failed(error) => drop(self.failure.set(error.clone())),
        }
        self.hub.end(end);
    }

    fn stopped(&self) -> Error {
        self.failure.get().cloned().unwrap_or_else(|| Error::Unavailable("the store is closed".into()))
    }

    fn database(&self) -> Result<Arc<Database>> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        database.clone().ok_or_else(|| self.stopped().into())
    }

    /// Whether the state at this revision is known.
    fn check_revision(&self, requested: u64) -> Result<()> {
        let compacted = |oldest| Error::Compacted { requested: Revision(requested), oldest: Revision(oldest) };
        let oldest = self.oldest.load(Ordering::Acquire);
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
        let gap = self.gaps.iter().find(|(first, last)| (*first..=*last).contains(&revision));
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
        self.shared.in_flight.fetch_add(1, Ordering::Relaxed);
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
