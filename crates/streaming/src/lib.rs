//! The protocols in which a terminal, a process or a port is carried over an upgraded HTTP connection.
//!
//! Kubernetes has grown many: SPDY/3.1 with streams for stdin, stdout and so on; WebSockets whose messages begin with the
//! number of a channel, raw or in base64, in five versions; and SPDY inside of a WebSocket. They all come down to the same
//! few byte streams. [`remote_command`] (exec and attach) and [`port_forward`] give these to a server, whichever protocol
//! its client speaks; the API server uses the same parts to pass connections on to a node's agent.
//!
//! Nothing in here trusts its peer: what is held in memory for a connection is bounded, whatever comes in.
//!
//! This crate knows nothing of objects, nodes or containers, and must not.

pub mod port_forward;
pub mod remote_command;
pub mod spdy;
pub mod upgrade;
pub mod websocket;
mod wire;

pub use wire::{Closed, Connection, Io, Sink, Source};
