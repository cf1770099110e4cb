//! The thread that changes the tables: it moves what was logged into them, many batches at a time, and sweeps history.
//!
//! It sleeps until the overlay or the log is large, or until something has been there for a while; then it settles: all
//! is in the tables, durable, and opening after a crash is quick. An idle store is settled.

use std::{sync::Arc, time::Duration};

use redb::{Database, WriteTransaction};

use crate::{
    apply::apply,
    fault::Result,
    format::{META, meta},
    handover::{Hurry, Order, Settling, Stop},
    opening::{Opened, Options, require_log},
    store::Shared,
    stretch::Stretch,
    sweep,
};

/// How much goes into one redb transaction.
const LOAD_BYTES: usize = 8 << 20;
/// How many records are swept at a time.
const SWEEP_RECORDS: usize = 1024;

/// How a change of the tables is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    /// With a later one. The log has what a crash takes back, or sweeping does it again.
    Later,
    Now,
    /// Now, and with redb's account of free pages. That costs a second sync, but opening after a crash need not read the
    /// whole file then.
    Settled,
}

pub(crate) struct Applier<'a> {
    shared: &'a Shared,
    database: Arc<Database>,
    relaxed_delay: Duration,
    /// The tables have everything up to here.
    applied: u64,
    /// History is swept up to here.
    swept: u64,
    /// Something was committed that is not settled.
    unsettled: bool,
    settling: Vec<Settling>,
    /// Somebody waits for what is done now, or soon will: it makes no pauses.
    hurried: bool,
}

impl<'a> Applier<'a> {
    pub(crate) fn new(shared: &'a Shared, options: &Options, opened: &Opened) -> Self {
        Self {
            shared,
            database: opened.database.clone(),
            relaxed_delay: options.relaxed_delay,
            applied: opened.numbers.current,
            swept: opened.numbers.compacted,
            unsettled: false,
            settling: Vec::new(),
            hurried: false,
        }
    }

    pub(crate) fn run(mut self) -> Result<()> {
        loop {
            let order = self.shared.handover.next(self.relaxed_delay, || self.sweep_target() > self.swept);
            self.hurried = match &order {
                Order::Load(hurry) => *hurry == Hurry::Log,
                Order::Settle(requests) => !requests.is_empty(),
                Order::Sweep => false,
                Order::Stop(_) => true,
            };
            match order {
                Order::Load(Hurry::Overlay) => self.load(Durable::Later)?,
                Order::Load(Hurry::Log) => self.load(Durable::Now)?,
                Order::Settle(requests) => {
                    self.settling.extend(requests);
                    self.settle()?;
                }
                Order::Sweep => self.sweep()?,
                Order::Stop(Stop::Clean) => return self.close(),
                Order::Stop(Stop::Now) => return Ok(()),
            }
            let (applied, swept) = (self.applied, self.swept);
            for settled in self.settling.extract_if(.., |request| request.until <= applied && request.oldest <= swept) {
                // Whoever does not wait any more need not be told.
                let _ = settled.done.send(());
            }
        }
    }

    fn sweep_target(&self) -> u64 {
        self.shared.oldest().min(self.applied)
    }

    /// Moves the oldest entries of the overlay into the tables.
    fn load(&mut self, durable: Durable) -> Result<()> {
        let load = self.shared.overlay.load(self.shared.current(), LOAD_BYTES);
        if load.entries.is_empty() && (durable == Durable::Later || !self.unsettled) {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        if !load.entries.is_empty() {
            apply(&transaction, &load, self.shared.reserved(), self.pace())?;
            require_log(&transaction, self.shared.log_lengths())?;
            self.applied = load.until;
        }
        // More than comes in, so that sweeping keeps up.
        let swept = self.sweep_in(&transaction, SWEEP_RECORDS + 2 * load.entries.len())?;
        self.commit(transaction, durable)?;
        self.swept = swept;
        self.shared.overlay.unload(load);
        self.shared.handover.made_room();
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        let current = self.shared.current();
        while self.shared.overlay.bytes() > LOAD_BYTES && self.applied < current {
            self.load(Durable::Later)?;
        }
        self.load(Durable::Settled)
    }

    fn sweep(&mut self) -> Result<()> {
        let transaction = self.database.begin_write()?;
        let swept = self.sweep_in(&transaction, SWEEP_RECORDS)?;
        self.commit(transaction, Durable::Later)?;
        self.swept = swept;
        Ok(())
    }

    /// Others need the processor, above all the committer, unless that waits for this.
    fn pace(&self) -> impl FnMut() + use<'a> {
        let (shared, hurried) = (self.shared, self.hurried);
        let mut stretch = Stretch::begin();
        move || {
            if !hurried && !shared.handover.is_awaited() {
                stretch.go_on();
            }
        }
    }

    fn sweep_in(&self, transaction: &WriteTransaction, limit: usize) -> Result<u64> {
        match self.sweep_target() {
            target if target > self.swept => sweep::step(transaction, self.swept, target, limit, self.pace()),
            _ => Ok(self.swept),
        }
    }

    fn commit(&mut self, mut transaction: WriteTransaction, durable: Durable) -> Result<()> {
        match durable {
            Durable::Later => transaction.set_durability(redb::Durability::None)?,
            Durable::Now => {}
            Durable::Settled => transaction.set_quick_repair(true),
        }
        transaction.commit()?;
        if durable != Durable::Later {
            self.shared.checkpointed(self.applied);
        }
        self.unsettled = durable != Durable::Settled;
        if self.unsettled {
            self.shared.handover.unsettled();
        }
        Ok(())
    }

    /// Everything is in the tables and the log is not needed, and no revision stays reserved: the next opening continues
    /// without a gap.
    fn close(mut self) -> Result<()> {
        let current = self.shared.current();
        while self.applied < current {
            self.load(Durable::Later)?;
        }
        let transaction = self.database.begin_write()?;
        transaction.open_table(META)?.insert(meta::RESERVED, current)?;
        require_log(&transaction, [0; 2])?;
        self.commit(transaction, Durable::Settled)
    }
}
