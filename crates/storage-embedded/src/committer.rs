//! The one thread that writes.
//!
//! Group commit: everything that waits goes into one redb transaction, then all of it is acknowledged. A batch with a
//! durable change is synced before anybody sees it. A batch of relaxed changes only is visible at once and synced with
//! the next durable one, or when the store settles after a while. Between batches the thread deletes keys whose time has come and sweeps history,
//! a little at a time. It sleeps until the next request or deadline, so an idle store does nothing.
//!
//! Revisions that are visible before they are durable are always reserved: `reserved`, which is on disk, is not below
//! them. See `docs/design/storage.md` for why that makes a crash safe.

use std::{
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    },
    time::{Duration, Instant},
};

use redb::Database;
use storage::{Durability, Outcome, Transaction};
use tokio::sync::oneshot;

use crate::{
    batch::Batch,
    clock::{Clock, millis},
    fault::Result,
    format::{META, meta},
    history::History,
    opening::{Opened, Options, RESERVE},
    store::Shared,
    sweep,
};

/// What the committer is asked to do.
pub(crate) enum Request {
    /// A valid transaction.
    Commit {
        transaction: Transaction,
        reply: oneshot::Sender<Outcome>,
    },
    /// History below this revision may go.
    Compact(u64),
    Close,
}

/// How much goes into one redb transaction.
const BATCH_TRANSACTIONS: usize = 1024;
const BATCH_BYTES: usize = 8 << 20;
/// The longest wait for writers that are expected to come back, when a sync is slow.
const GATHER: Duration = Duration::from_micros(500);
/// How many expired keys are deleted, or records swept, before writers get their turn.
const EXPIRE_KEYS: usize = 256;
const SWEEP_RECORDS: usize = 256;

pub(crate) struct Committer<'a> {
    shared: &'a Shared,
    requests: &'a Receiver<Request>,
    clock: &'a dyn Clock,
    relaxed_delay: Duration,
    database: Arc<Database>,
    history: History,
    reserved: u64,
    next_expiry: Option<u64>,
    /// History is swept up to here …
    swept: u64,
    /// … and shall be up to here.
    sweep_target: u64,
    /// Since when something was committed that is not settled: durable, and quick to recover after a crash.
    unsettled: Option<Instant>,
    pace: Pace,
    closing: bool,
}

/// How many writers there seem to be, and how long a durable commit takes. If the next batch began with the first
/// request, half of the writers would always wait for the sync of the other half.
#[derive(Debug, Default)]
struct Pace {
    writers: usize,
    sync: Duration,
}

type Waiting = (Transaction, oneshot::Sender<Outcome>);

impl<'a> Committer<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        requests: &'a Receiver<Request>,
        options: &'a Options,
        opened: Opened,
    ) -> Self {
        let Opened { database, numbers, history } = opened;
        Self {
            shared,
            requests,
            clock: &*options.clock,
            relaxed_delay: options.relaxed_delay,
            database,
            history,
            reserved: numbers.reserved,
            next_expiry: numbers.next_expiry,
            swept: numbers.compacted,
            sweep_target: shared.oldest(),
            unsettled: None,
            pace: Pace::default(),
            closing: false,
        }
    }

    /// Until the store is closed, or something fails. What is not answered then has an unknown outcome.
    pub(crate) fn run(mut self) -> Result<()> {
        while !self.closing {
            let waiting = self.wait();
            self.work(waiting)?;
        }
        self.close()
    }

    /// Sleeps until there is a request or something is due. Answers the transactions that wait.
    fn wait(&mut self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        let mut bytes = 0;
        let mut durable = false;
        let mut gathering = None;
        let mut next = match self.pause() {
            Some(pause) if pause.is_zero() => self.requests.try_recv().map_err(|error| error == TryRecvError::Empty),
            Some(pause) => self.requests.recv_timeout(pause).map_err(|error| error == RecvTimeoutError::Timeout),
            None => self.requests.recv().map_err(|_| false),
        };
        loop {
            match next {
                Ok(Request::Commit { transaction, reply }) => {
                    durable |= transaction.durability == Durability::Durable;
                    bytes += transaction.operations.iter().map(operation_bytes).sum::<usize>();
                    waiting.push((transaction, reply));
                }
                Ok(Request::Compact(revision)) => self.sweep_target = self.sweep_target.max(revision),
                Ok(Request::Close) | Err(false) => self.closing = true,
                Err(true) => return waiting,
            }
            if self.closing || waiting.len() >= BATCH_TRANSACTIONS || bytes >= BATCH_BYTES {
                return waiting;
            }
            next = self.requests.try_recv().map_err(|error| error == TryRecvError::Empty);
            if matches!(next, Err(true)) && durable && waiting.len() < self.pace.writers {
                let until = *gathering.get_or_insert_with(|| Instant::now() + GATHER.min(self.pace.sync / 4));
                let rest = until.saturating_duration_since(Instant::now());
                next = self.requests.recv_timeout(rest).map_err(|error| error == RecvTimeoutError::Timeout);
            }
        }
    }

    /// How long nothing is due; `None` is forever.
    fn pause(&self) -> Option<Duration> {
        if self.swept < self.sweep_target {
            return Some(Duration::ZERO);
        }
        let now = millis(self.clock.now());
        let settle = self.unsettled.map(|since| self.relaxed_delay.saturating_sub(since.elapsed()));
        let timers = [self.next_expiry, self.history.next_trim()].into_iter().flatten();
        let until = timers.map(|due| Duration::from_millis(due.saturating_sub(now)));
        // An hour at most: the wall clock may be set while we sleep.
        until.chain(settle).min().map(|pause| pause.min(Duration::from_secs(3600)))
    }

    fn work(&mut self, waiting: Vec<Waiting>) -> Result<()> {
        let now = millis(self.clock.now());
        let expiring = self.next_expiry.is_some_and(|due| due <= now);
        if expiring || !waiting.is_empty() {
            self.commit(waiting, now, expiring)?;
        }
        if self.unsettled.is_some_and(|since| since.elapsed() >= self.relaxed_delay) {
            self.settle(self.database.begin_write()?)?;
        }
        if let Some(target) = self.history.trim(now) {
            self.sweep_target = self.sweep_target.max(target);
            self.shared.raise_oldest(target);
        }
        if self.swept < self.sweep_target {
            self.sweep()?;
        }
        Ok(())
    }

    fn commit(&mut self, waiting: Vec<Waiting>, now: u64, expiring: bool) -> Result<()> {
        let before = self.shared.current();
        let watched = self.shared.hub.is_watched();
        let transaction = self.database.begin_write()?;
        let mut batch = Batch::new(&transaction, before, now, watched)?;
        let mut must_sync = false;
        let mut replies = Vec::with_capacity(waiting.len());
        for (transaction, reply) in waiting {
            let durable = transaction.durability == Durability::Durable;
            let revision = batch.revision();
            replies.push((reply, batch.apply(transaction)?));
            must_sync |= durable && batch.revision() > revision;
        }
        if expiring {
            self.next_expiry = batch.expire(EXPIRE_KEYS)?;
        }
        let done = batch.finish();
        if let Some(expiry) = done.earliest_expiry {
            self.next_expiry = Some(self.next_expiry.map_or(expiry, |next| next.min(expiry)));
        }
        if done.revision > before {
            self.history.record(&transaction, done.revision, done.bytes, now)?;
            must_sync |= done.revision > self.reserved;
            let mut reserved = self.reserved;
            if must_sync && done.revision + RESERVE / 2 > reserved {
                reserved = done.revision + RESERVE;
                transaction.open_table(META)?.insert(meta::RESERVED, reserved)?;
            }
            self.finish(transaction, must_sync)?;
            self.reserved = reserved;
            self.shared.advance(done.revision, watched.then_some(done.events));
        } else {
            transaction.abort()?;
        }
        self.pace.writers = self.shared.in_flight.load(Ordering::Relaxed);
        for (reply, outcome) in replies {
            // Whoever does not wait for the answer any more does not want it.
            let _ = reply.send(outcome);
        }
        Ok(())
    }

    fn finish(&mut self, mut transaction: redb::WriteTransaction, sync: bool) -> Result<()> {
        if sync {
            let begun = Instant::now();
            transaction.commit()?;
            self.pace.sync = begun.elapsed();
        } else {
            transaction.set_durability(redb::Durability::None)?;
            transaction.commit()?;
        }
        self.unsettled.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Makes all that was committed durable, together with redb's account of free pages: it costs a second sync, but
    /// opening after a crash need not read the whole file then.
    fn settle(&mut self, mut transaction: redb::WriteTransaction) -> Result<()> {
        transaction.set_quick_repair(true);
        transaction.commit()?;
        self.unsettled = None;
        Ok(())
    }

    /// One step. It need not be durable: sweeping again what a crash brought back does no harm.
    fn sweep(&mut self) -> Result<()> {
        let transaction = self.database.begin_write()?;
        let reached = sweep::step(&transaction, self.swept, self.sweep_target, SWEEP_RECORDS)?;
        self.finish(transaction, false)?;
        self.swept = reached;
        Ok(())
    }

    /// Everything is made durable, and no revision stays reserved: the next opening continues without a gap.
    fn close(&mut self) -> Result<()> {
        let current = self.shared.current();
        if self.unsettled.is_some() || self.reserved != current {
            let transaction = self.database.begin_write()?;
            transaction.open_table(META)?.insert(meta::RESERVED, current)?;
            self.settle(transaction)?;
        }
        Ok(())
    }
}

fn operation_bytes(operation: &storage::Operation) -> usize {
    match operation {
        storage::Operation::Put { key, value, .. } => key.len() + value.len(),
        storage::Operation::Delete { key } => key.len(),
    }
}
