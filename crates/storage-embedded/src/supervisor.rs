//! Keeps the committer and the applier going. When the disk is full, redb accepts nothing more until the file is opened
//! again; so that is done, as after a crash, until it works. Meanwhile everything answers `Unavailable`. Watches stay open;
//! if something is lost that they may have seen, they then end with `Compacted`. After any other failure the store stays
//! down: what the system then says is in the file may not be on the disk, so the machine needs a look first.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use storage::Error;

use crate::{
    applier::Applier,
    committer::Committer,
    fault::{Cause, Fault, Result, damaged},
    handover::Stop,
    hub::End,
    opening::{Files, OpenError, Opened, Options},
    queue::{Gather, Queue},
    store::Shared,
};

const RETRY: Duration = Duration::from_secs(1);

pub(crate) type Reopen = Box<dyn Fn(&Options) -> Result<Files, OpenError> + Send>;

pub(crate) struct Supervisor {
    pub shared: Arc<Shared>,
    pub queue: Arc<Queue>,
    pub options: Options,
    /// Opens what exists; it never makes a new store.
    pub reopen: Reopen,
}

impl Supervisor {
    pub(crate) fn run(self, opened: Opened) {
        let ended = without_panic(|| self.keep_going(opened));
        self.shared.end(ended.map_or_else(|failure| End::Failed(failure.error), |()| End::Closed));
        self.queue.end();
    }

    fn keep_going(&self, mut opened: Opened) -> Result<()> {
        loop {
            let Err(failure) = self.commit(opened) else { return Ok(()) };
            tracing::error!(error = %failure.error, "the store cannot write");
            if failure.cause != Cause::DiskFull {
                return Err(failure);
            }
            self.shared.suspend(failure.error.clone());
            opened = self.recover().ok_or(failure)?;
            self.shared.resume(&opened);
            tracing::info!("the store can write again");
        }
    }

    /// Until the store is closed, or one of the two threads fails.
    fn commit(&self, opened: Opened) -> Result<()> {
        let applier = Applier::new(&self.shared, &self.options, &opened);
        let committer = Committer::new(&self.shared, &self.queue, &self.options, opened);
        let (handover, queue) = (&self.shared.handover, &self.queue);
        thread::scope(|scope| {
            let applying = thread::Builder::new().name("store-applier".into()).spawn_scoped(scope, move || {
                let applied = without_panic(|| applier.run());
                if applied.is_err() {
                    handover.applier_failed();
                    queue.interrupt();
                }
                applied
            })?;
            let committed = without_panic(|| committer.run());
            handover.stop(if committed.is_ok() { Stop::Clean } else { Stop::Now });
            let applied = without_panic(|| applying.join().unwrap_or(Ok(())));
            let failures = [applied.err(), committed.err()].into_iter().flatten();
            failures.max_by_key(|failure: &Fault| failure.cause).map_or(Ok(()), Err)
        })
    }

    /// Tries to open the store again until that works, or until the store is closed.
    fn recover(&self) -> Option<Opened> {
        let mut next_attempt = Instant::now();
        loop {
            let pause = next_attempt.saturating_duration_since(Instant::now());
            // Not replying says that it cannot be done now.
            drop(self.queue.take(Some(pause), Gather::default()));
            if self.queue.is_closing() {
                return None;
            }
            if Instant::now() < next_attempt {
                continue;
            }
            match (self.reopen)(&self.options).and_then(|files| Opened::new(files, &self.options)) {
                Ok(opened) => return Some(opened),
                Err(error) => {
                    tracing::warn!(%error, "the store cannot be opened again yet");
                    self.shared.suspend(Error::Unavailable(error.to_string()));
                }
            }
            next_attempt = Instant::now() + RETRY;
        }
    }
}

/// redb panics on some kinds of damage; nobody must wait for answers that will not come.
fn without_panic(run: impl FnOnce() -> Result<()>) -> Result<()> {
    panic::catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(damaged("writing panicked: check the store, and restore a backup if need be")))
}
