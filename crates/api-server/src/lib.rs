//! The API server: one road for every object.
//!
//! Kubernetes calls this kube-apiserver. A request passes the filters of [`chain`], finds its resource in the
//! [`catalogue`] and its handler in `handlers`; the [`registry`] carries out every verb on every object, with
//! [`admission`] on the way; the [`watch_cache`] answers what is read. Nothing below (object model, catalogue of kinds,
//! storage) may depend on this crate.

pub mod admission;
pub mod audit;
pub mod authentication;
pub mod authorization;
pub mod body;
mod bootstrap;
mod builtin;
pub mod catalogue;
pub mod certificates;
mod chain;
pub mod clock;
pub mod config_file;
pub mod context;
mod conversion;
mod discovery;
pub mod encryption;
pub mod expression;
pub mod fairness;
mod filters;
mod handlers;
mod health;
mod metrics;
mod negotiation;
mod openapi;
mod options;
pub mod outbound;
mod own_endpoints;
mod ownership;
pub mod registry;
mod request_info;
mod server;
pub mod serving;
mod settings;
pub mod streaming;
pub mod watch_cache;

pub use server::Server;
pub use settings::Settings;
