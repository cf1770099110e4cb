//! Server-side apply: who owns which field of an object, and what an applied configuration makes of it.
//!
//! Kubernetes calls this `structured-merge-diff` and `managedfields`. Everything is a pure function of schemas, values
//! and a time given by the caller. From the bottom up:
//!
//! - [`Element`], [`Set`] and FieldsV1 ([`decode_fields`], [`encode_fields`]): paths and sets of fields;
//! - [`field_set`], [`compare`], [`merge`], [`remove_items`], [`extract_items`], [`validate`]: walks over a value along
//!   its schema;
//! - [`Managed`]: the entries of `metadata.managedFields`;
//! - [`FieldManager`]: what a create, update or apply does to an object and its entries.

mod cap;
mod compare;
mod conflict;
mod element;
mod empty;
mod error;
mod fields_v1;
mod filter;
mod json;
mod last_applied;
mod managed;
mod manager;
mod merge;
mod problems;
mod remove;
mod scale;
mod schema_sets;
mod set;
mod timestamps;
mod validate;
mod versions;
mod view;

pub use compare::{Comparison, compare, field_set};
pub use conflict::{Conflict, Conflicts};
pub use element::{BadElement, Element, same};
pub use empty::empty_object;
pub use error::ApplyError;
pub use fields_v1::{BadFields, decode as decode_fields, encode as encode_fields, text as fields_text};
pub use filter::Filter;
pub use last_applied::LAST_APPLIED;
pub use managed::{BadManagedFields, Entry, Managed, Manager, Operation, of_object as managed_of};
pub use manager::{Applied, FieldManager};
pub use merge::merge;
pub use problems::Problems;
pub use remove::{extract_items, remove_items};
pub use scale::ScaleMapping;
pub use schema_sets::{reconcile, with_named_fields};
pub use set::{FieldPath, Set};
pub use timestamps::keep_times;
pub use validate::{Duplicates, validate};
pub use versions::{OneVersion, Versions};

#[cfg(test)]
mod tests;
