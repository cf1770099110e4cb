//! The Container Runtime Interface on a socket: what crictl and other agents speak to our runtime, and how our own commands do.
//!
//! The messages are CRI v1's ([`wire`]). Streams of exec, attach and port-forward are fetched from a URL on loopback
//! (`streams`), as CRI has it. What CRI does not have, pushing and importing images, progress, and an exec without a
//! second connection, is a service of our own on the same socket, `ferry.v1.Ferry`.

pub mod client;
mod convert;
mod grpc;
mod server;
mod streams;
pub mod wire;

pub use server::serve;

/// The name of the socket in a node's folder.
pub const SOCKET: &str = "ferry-cri.sock";
