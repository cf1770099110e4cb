//! Between the served versions of a kind, through the one that is stored. Custom kinds differ by name only.

pub use api::conversion::convert;
