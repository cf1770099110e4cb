//! Keeps the committer going. When the disk is full, redb accepts nothing more until the file is opened again; so that is
//! done, as after a crash, until it works. Meanwhile everything answers `Unavailable`. Watches stay open; if something is
//! lost that they may have seen, they then end with `Compacted`. After any other failure the store stays down: what the
//! system then says is in the file may not be on the disk, so the machine needs a look first.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use redb::Database;
use storage::Error;

use crate::{
    committer::{Committer, Request},
    fault::{Result, damaged},
    hub::End,
    opening::{OpenError, Opened, Options},
    store::Shared,
};

const RETRY: Duration = Duration::from_secs(1);

pub(crate) type Reopen = Box<dyn Fn(&Options) -> Result<Database, OpenError> + Send>;

pub(crate) struct Supervisor {
    pub shared: Arc<Shared>,
    pub requests: Receiver<Request>,
    pub options: Options,
    /// Opens what exists; it never makes a new store.
    pub reopen: Reopen,
}

impl Supervisor {
    pub(crate) fn run(self, mut opened: Opened) {
        let end = loop {
            let failure = match self.commit(opened) {
                Ok(()) => break End::Closed,
                Err(failure) => failure,
            };
            tracing::error!(error = %failure.error, "the store cannot write");
            if !failure.disk_full {
                break End::Failed(failure.error);
            }
            self.shared.suspend(failure.error.clone());
            opened = match self.recover() {
                Some(opened) => opened,
                None => break End::Failed(failure.error),
            };
            self.shared.resume(&opened);
            tracing::info!("the store can write again");
        };
        self.shared.end(end);
    }

    fn commit(&self, opened: Opened) -> Result<()> {
        let committer = Committer::new(&self.shared, &self.requests, &self.options, opened);
        // redb panics on some kinds of damage; nobody must wait for answers that will not come.
        panic::catch_unwind(AssertUnwindSafe(|| committer.run()))
            .unwrap_or_else(|_| Err(damaged("writing panicked: check the store, and restore a backup if need be")))
    }

    /// Tries to open the store again until that works, or until the store is closed.
    fn recover(&self) -> Option<Opened> {
        let mut next_attempt = Instant::now();
        loop {
            match self.requests.recv_timeout(next_attempt.saturating_duration_since(Instant::now())) {
                Ok(Request::Close) | Err(RecvTimeoutError::Disconnected) => return None,
                // Not replying says that it cannot be done now.
                Ok(Request::Commit { .. }) => continue,
                // Remembered as the oldest revision that is served.
                Ok(Request::Compact(_)) => continue,
                Err(RecvTimeoutError::Timeout) => {}
            }
            match (self.reopen)(&self.options).and_then(|database| Opened::new(database, &self.options)) {
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
