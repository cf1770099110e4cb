//! What a store is: the trait that every storage engine fulfils, and the suite that every engine passes.
//!
//! Kubernetes calls this `storage.Interface` over etcd3. Here the trait speaks revisions only and knows neither API
//! objects nor an engine. Nothing in this crate may depend on `storage-embedded`, `storage-etcd` or on anything above.
//!
//! # The model
//!
//! - A store is an ordered map from keys (`/`-separated text) to opaque bytes.
//! - There is one monotonic [`Revision`] for the whole store. Every transaction that changes something takes the next
//!   one; all its changes carry it. A revision is never used for two contents, not even across a crash.
//! - Values do not contain their own revision: it is known only at commit, and readers take it from
//!   [`KeyValue::mod_revision`].
//! - History is kept back to the compaction revision. Reading or watching below it answers [`Error::Compacted`].
//! - Conflict is an outcome ([`Outcome::Conflict`]), absence is `None`; [`Error`] is for the rest.

pub mod encryption;
mod model;
#[cfg(feature = "suite")]
pub mod suite;

pub use model::*;
