//! What goes wrong underneath, as the store's error, so that `?` works on redb's results.

use std::io;

use storage::Error;

/// A [`storage::Error`] that redb's errors turn into.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub error: Error,
    pub cause: Cause,
}

/// Of two failures at the same time, the greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// An earlier failure, which was reported to somebody else.
    Earlier,
    /// A write failed for lack of space: it has left no trace, and will work when there is space again.
    DiskFull,
    /// Of other failures of a disk nothing is known; in particular, what it was to sync may seem to be there and not be.
    Other,
}

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

/// The contents contradict the format.
pub(crate) fn damaged(what: impl Into<String>) -> Fault {
    Error::Corrupt(what.into()).into()
}

/// What a sync that failed has left is not known, whatever the reason it gives: even if that is a full disk, it is not
/// [`Cause::DiskFull`].
pub(crate) fn sync_failed(error: io::Error) -> io::Error {
    io::Error::other(format!("a sync failed: {error}"))
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        let cause = match &error {
            redb::Error::PreviousIo => Cause::Earlier,
            redb::Error::Io(source) if full.contains(&source.kind()) => Cause::DiskFull,
            _ => Cause::Other,
        };
        let error = match error {
            redb::Error::Corrupted(what) => Error::Corrupt(what),
            redb::Error::PreviousIo => Error::Unavailable("an earlier write to the disk failed".into()),
            other => Error::Unavailable(other.to_string()),
        };
        Fault { error, cause }
    }
}

macro_rules! from_redb {
    ($($error:ident)*) => {
        $(impl From<redb::$error> for Fault {
            fn from(error: redb::$error) -> Self {
                redb::Error::from(error).into()
            }
        })*
    };
}

from_redb!(StorageError TableError TransactionError CommitError DatabaseError SetDurabilityError);

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        redb::Error::Io(error).into()
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault { error, cause: Cause::Other }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error
    }
}
