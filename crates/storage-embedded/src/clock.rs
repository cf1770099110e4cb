//! Wall-clock time, injected so that tests decide when it passes.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The time by which keys expire and history ages. It survives a restart, so it is the wall clock. The store looks at it
/// when it is written to and when a deadline that it computed from it has passed.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Since the Unix epoch.
    fn now(&self) -> Duration;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// Whole milliseconds, as times are stored.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
