//! SPDY/3.1, as Kubernetes' clients and agents speak it.
//!
//! Streams are opened by the client only, each with headers that say what it is for. As with Go's implementation, there is
//! no flow control per stream: one that is not read holds up the whole connection.

mod compression;
mod connection;
pub mod frame;

pub use connection::{Client, Stream, connect, serve};

/// The protocol's name in the `Upgrade` header.
pub const NAME: &str = "SPDY/3.1";

/// Names and values, the names in lower case.
pub type Headers = Vec<(String, String)>;

/// What makes a connection unusable.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("not SPDY version 3")]
    Version,
    #[error("a frame of type {0} is too short or too long")]
    Length(u16),
    #[error("compressed headers are broken")]
    Compression,
    #[error("headers are larger than {} bytes", compression::HEADER_BYTES)]
    TooLarge,
    #[error("headers are not in the form of SPDY/3")]
    Headers,
    #[error("stream {0} cannot be opened")]
    Stream(u32),
}
