//! Kubernetes' validation rules, as pure functions over values.
//!
//! A validator takes a [`Field`]: a value together with where it stands and the list its problems go to. It says every
//! problem it finds, in Kubernetes' order and words, and returns nothing. Values are canonical and defaulted before
//! they come here, so a missing field reads as its zero value.
//!
//! What several kinds share lives in this module's files (metadata, selectors, addresses, the pod specification, …);
//! what only one kind needs lives in that kind's file under [`crate::kinds`].

mod amounts;
mod equality;
mod field;
mod rules;

pub mod addresses;
pub mod go_form;
pub mod meta;
pub mod node_selector;
pub mod paths;
pub mod pem;
pub mod pod;
pub mod resources;
pub mod selectors;
pub mod webhooks;

pub use equality::{same, same_at};
pub use field::{Field, Problems, quantity};
pub use rules::IMMUTABLE;
