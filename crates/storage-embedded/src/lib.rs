//! The default storage engine: an embedded, crash-safe store in one file, on redb.
//!
//! `docs/design/storage.md` has the format on disk, the invariants and the reasoning about crashes. In short:
//!
//! - [`format`]: the tables and the encoding of keys and records; every value is stored once.
//! - [`snapshot`]: reads, at any kept revision, from redb's read transactions.
//! - [`batch`]: applies transactions inside one redb write transaction.
//! - [`committer`]: the one thread that writes: group commit, syncing of relaxed commits, expiry; [`sweep`] is compaction,
//!   [`history`] decides how far; [`supervisor`] opens the file again when the disk has failed.
//! - [`hub`]: what was committed lately, and who watches; [`follow`]: feeds one watch, from the hub or, if it fell behind,
//!   from disk.
//! - [`opening`]: format version, recovery after a crash; [`backup`] and [`check`]: copies of a store and its soundness.
//!
//! Nothing but the binary that wires components may depend on this crate; the API server knows only `storage::Store`.

mod backup;
mod batch;
mod check;
mod clock;
mod committer;
mod fault;
mod follow;
mod format;
mod history;
mod hub;
mod opening;
mod snapshot;
mod store;
mod supervisor;
mod sweep;

pub use self::{
    backup::{BackupError, restore},
    check::{CheckError, Report, check},
    clock::{Clock, SystemClock},
    opening::{OpenError, Options},
    store::EmbeddedStore,
};
