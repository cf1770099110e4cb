//! The default storage engine: an embedded, crash-safe store, in tables of redb and a write-ahead log in front of them.
//!
//! `docs/design/storage.md` has the format on disk, the invariants and the reasoning about crashes. In short:
//!
//! - [`format`]: the tables and the encoding of keys and records; every value is stored once.
//! - [`queue`], [`committer`], [`batch`], [`log`]: how a transaction is committed: one thread validates all that wait
//!   against the newest state and appends them to the log; one sync makes them durable.
//! - [`overlay`]: what is committed and not in the tables yet; [`handover`], [`applier`], [`apply`]: a second thread moves
//!   it there. [`sweep`] is compaction, [`history`] decides how far.
//! - [`snapshot`]: reads, at any kept revision, from the overlay and from redb's read transactions.
//! - [`supervisor`]: opens the store again when the disk was full; [`backend`]: but not when a sync failed, and a sync of the
//!   tables does not keep that of the log waiting.
//! - [`hub`]: what was committed lately, and who watches; [`follow`]: feeds one watch, from the hub or, if it fell behind,
//!   from history.
//! - [`opening`], [`replay`]: format version, recovery after a crash; [`backup`] and [`check`]: copies of a store and its
//!   soundness.
//!
//! Nothing but the binary that wires components may depend on this crate; the API server knows only `storage::Store`.

mod applier;
mod apply;
mod backend;
mod backup;
mod batch;
mod check;
mod clock;
mod committer;
mod fault;
mod follow;
mod format;
mod handover;
mod history;
mod hub;
mod log;
mod opening;
mod overlay;
mod queue;
mod replay;
mod snapshot;
mod store;
mod stretch;
mod supervisor;
mod sweep;

pub use self::{
    backup::{BackupError, restore},
    check::{CheckError, Report, check},
    clock::{Clock, SystemClock},
    log::LogFile,
    opening::{OpenError, Options},
    store::EmbeddedStore,
};
