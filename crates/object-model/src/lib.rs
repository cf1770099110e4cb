//! What an API object is. No I/O.
//!
//! Kubernetes calls this `apimachinery`, `structured-merge-diff` and `kube-openapi`. Objects are `serde_json` values;
//! everything that can be said of a kind in general is said by its [`schema`]. This crate knows no concrete kind (the
//! catalogue of built-in kinds is `api`) and depends on no other crate of the workspace.

pub mod apply;
pub mod codec;
pub mod field;
pub mod go_text;
pub mod identity;
pub mod int_or_string;
pub mod meta;
pub mod names;
pub mod patch;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod status;
pub mod time;
pub mod value;
