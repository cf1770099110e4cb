//! The thread that commits.
//!
//! Group commit: everything that waits goes into one block of the log, then all of it is acknowledged. A batch with a
//! durable change is synced before anybody sees it. A batch of relaxed changes only is visible at once and durable with
//! the next durable one, or when the applier has moved it into the tables. Between batches the thread deletes keys whose
//! time has come. It sleeps until the next request or deadline, so an idle store does nothing.
//!
//! Revisions that are visible before they are durable are always reserved: `reserved`, which is on disk, is not below
//! them. See `docs/design/storage.md` for why that makes a crash safe.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use redb::Database;
use storage::{Durability, Outcome};

use crate::{
    batch::Batch,
    clock::{Clock, millis},
    fault::Result,
    handover::Hurry,
    history::History,
    log::{Block, Log, Stamp},
    opening::{Opened, Options, RESERVE},
    queue::{Gather, Queue, Waiting},
    store::Shared,
};

/// The committer waits for the applier when the overlay is so many times as large as it should be.
const FULL: usize = 16;
/// The longest wait for writers that are expected to come back, when a sync is slow.
const GATHER: Duration = Duration::from_micros(500);
/// How many expired keys are deleted before writers get their turn.
const EXPIRE_KEYS: usize = 256;

pub(crate) struct Committer<'a> {
    shared: &'a Shared,
    queue: &'a Queue,
    clock: &'a dyn Clock,
    database: Arc<Database>,
    log: Log,
    block: Block,
    history: History,
    next_expiry: Option<u64>,
    overlay_bytes: usize,
    /// How many writers there seem to be, and how long a sync takes. If the next batch began with the first request, half
    /// of the writers would always wait for the sync of the other half.
    pace: Gather,
}

impl<'a> Committer<'a> {
    pub(crate) fn new(shared: &'a Shared, queue: &'a Queue, options: &'a Options, opened: Opened) -> Self {
        Self {
            shared,
            queue,
            clock: &*options.clock,
            database: opened.database,
            log: opened.log,
            block: Block::new(),
            history: opened.history,
            next_expiry: opened.numbers.next_expiry,
            overlay_bytes: options.overlay_bytes,
            pace: Gather::default(),
        }
    }

    /// Until the store is closed, or something fails. What is not answered then has an unknown outcome.
    pub(crate) fn run(mut self) -> Result<()> {
        loop {
            let waiting = self.queue.take(self.pause(), self.pace);
            let (log, shared, overlay_bytes) = (&self.log, self.shared, self.overlay_bytes);
            shared.handover.wait_for_room(|| {
                let log_full = log.is_overfull(shared.checkpoint()).then_some(Hurry::Log);
                log_full.or_else(|| (shared.overlay.bytes() >= FULL * overlay_bytes).then_some(Hurry::Overlay))
            });
            if shared.handover.has_applier_failed() {
                return Ok(());
            }
            let closing = waiting.is_empty() && self.queue.is_closing();
            self.work(waiting)?;
            if closing {
                return Ok(());
            }
        }
    }

    /// How long nothing is due; `None` is forever.
    fn pause(&self) -> Option<Duration> {
        let now = millis(self.clock.now());
        let timers = [self.next_expiry, self.history.next_trim()].into_iter().flatten();
        let until = timers.map(|due| Duration::from_millis(due.saturating_sub(now)));
        // An hour at most: the wall clock may be set while we sleep.
        until.min().map(|pause| pause.min(Duration::from_secs(3600)))
    }

    fn work(&mut self, waiting: Vec<Waiting>) -> Result<()> {
        let now = millis(self.clock.now());
        let expiring = self.next_expiry.is_some_and(|due| due <= now);
        if expiring || !waiting.is_empty() {
            self.commit(waiting, now, expiring)?;
        }
        if let Some(target) = self.history.trim(now) {
            self.shared.raise_oldest(target);
        }
        Ok(())
    }

    fn commit(&mut self, waiting: Vec<Waiting>, now: u64, expiring: bool) -> Result<()> {
        let before = self.shared.current();
        let watched = self.shared.hub.is_watched();
        self.block.clear();
        let mut batch = Batch::new(&self.shared.overlay, &self.database, &mut self.block, before, now, watched);
        let mut must_sync = false;
        let mut replies = Vec::with_capacity(waiting.len());
        for (transaction, reply) in waiting {
            let durable = transaction.durability == Durability::Durable;
            let outcome = batch.apply(transaction)?;
            // Also if it found everything as it should be: a relaxed one may have done that.
            must_sync |= durable && matches!(outcome, Outcome::Committed(_));
            replies.push((reply, outcome));
        }
        if expiring {
            self.next_expiry = batch.expire(EXPIRE_KEYS)?;
        }
        let done = batch.finish();
        if let Some(expiry) = done.earliest_expiry {
            self.next_expiry = Some(self.next_expiry.map_or(expiry, |next| next.min(expiry)));
        }
        if done.revision > before {
            self.log(done.revision, must_sync, now)?;
            if let Some(sample) = self.history.record(done.revision, done.bytes, now) {
                self.shared.overlay.push_sample(sample);
            }
            self.shared.advance(done.revision, watched.then_some(done.events));
        } else if must_sync {
            self.log.sync()?;
        }
        self.pace.writers = self.shared.in_flight.load(Ordering::Relaxed);
        for (reply, outcome) in replies {
            // Whoever does not wait for the answer any more does not want it.
            let _ = reply.send(outcome);
        }
        if done.revision > before {
            let log = self.log.needs_checkpoint(self.shared.checkpoint()).then_some(Hurry::Log);
            let large = || (self.shared.overlay.bytes() >= self.overlay_bytes).then_some(Hurry::Overlay);
            self.shared.handover.committed(log.or_else(large));
        }
        Ok(())
    }

    /// Appends the batch that ends at `revision` to the log.
    fn log(&mut self, revision: u64, must_sync: bool, time: u64) -> Result<()> {
        let mut reserved = self.shared.reserved();
        let sync = must_sync || revision > reserved;
        if sync && revision + RESERVE / 2 > reserved {
            reserved = revision + RESERVE;
        }
        let begun = Instant::now();
        self.log.append(&mut self.block, Stamp { reserved, time }, sync, self.shared.checkpoint())?;
        if sync {
            self.pace.at_most = GATHER.min(begun.elapsed());
        }
        self.shared.reserve(reserved);
        self.shared.log_synced(self.log.synced_lengths());
        Ok(())
    }
}
