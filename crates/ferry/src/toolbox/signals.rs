//! Waiting for signals. The first process of a container gets none that it did not ask for, not even SIGTERM.

use std::{ptr, time::Duration};

/// The signals that end a program.
pub struct Ending(libc::sigset_t);

impl Ending {
    /// From here on, this thread and those it starts are not ended by these signals.
    pub fn block() -> Self {
        // SAFETY: the set is made by the first call before the others use it; the calls change nothing else of ours.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGTERM);
            libc::sigaddset(&raw mut set, libc::SIGINT);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
            Self(set)
        }
    }

    /// Waits for one of them, for as long as is said; its number.
    pub fn wait(&self, limit: Option<Duration>) -> Option<u8> {
        let limit = limit.map(|limit| libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        loop {
            // SAFETY: the set is initialised, and the limit is null or lives here.
            let signal = unsafe { libc::sigtimedwait(&raw const self.0, ptr::null_mut(), limit) };
            if let Ok(signal) = u8::try_from(signal) {
                return Some(signal);
            }
            if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
                return None;
            }
        }
    }
}
