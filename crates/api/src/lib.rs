//! The catalogue of built-in kinds: their names, versions, subresources, schemas, defaults, validation, columns.
//!
//! Kubernetes keeps these in `pkg/apis` and `pkg/registry`. Pure data and pure functions over values; no I/O. Depends on
//! `object-model` only.

pub mod columns;
pub mod conversion;
pub mod defaults;
pub mod kinds;
pub mod resources;
pub mod schemas;
pub mod validation;
pub mod warnings;
