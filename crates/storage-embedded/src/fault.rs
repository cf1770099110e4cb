//! What goes wrong underneath, as the store's error, so that `?` works on redb's results.

use storage::Error;

/// A [`storage::Error`] that redb's errors turn into.
#[derive(Clone, Debug)]
pub(crate) struct Fault(pub Error);

pub(crate) type Result<T, E = Fault> = std::result::Result<T, E>;

/// The contents contradict the format.
pub(crate) fn damaged(what: impl Into<String>) -> Fault {
    Fault(Error::Corrupt(what.into()))
}

impl From<redb::Error> for Fault {
    fn from(error: redb::Error) -> Self {
        Fault(match error {
            redb::Error::Corrupted(what) => Error::Corrupt(what),
            redb::Error::PreviousIo => Error::Unavailable("an earlier write to the disk failed".into()),
            other => Error::Unavailable(other.to_string()),
        })
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

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}
