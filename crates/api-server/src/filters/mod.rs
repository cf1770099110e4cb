//! What is done to requests and answers on the way in and out. [`crate::chain`] has the order.

pub mod compression;
pub mod impersonation;
pub mod warnings;
