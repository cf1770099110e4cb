//! Label and field selectors: which objects a list, a watch, a Service or a controller is about.

pub mod field;
pub mod label;
mod parse;

pub use field::{BadFieldSelector, FieldSelector, FieldTerm};
pub use label::{BadSelector, LabelSelector, Operator, Requirement};

#[cfg(test)]
mod tests;
