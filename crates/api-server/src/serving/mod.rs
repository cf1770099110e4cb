//! Listening: TLS with certificates of our own, HTTP/1.1 and HTTP/2.

pub mod authority;
pub mod kubeconfig;
mod listener;
mod tls;
pub(crate) mod turns;

pub use listener::{Handler, Peer, serve};
pub use tls::{ServerCertificate, server_config};
pub use turns::idle;
