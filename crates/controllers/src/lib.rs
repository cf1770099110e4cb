//! The controllers: what makes declared objects come true, one file or folder each, all listed in [`all`].
//!
//! Kubernetes calls this kube-controller-manager. Each controller acts under the identity that Kubernetes' bootstrap
//! policy has for it, and reads from caches that all of them share. Nothing here knows the API server: only `ferry` and
//! `testing` bring the two together.

pub mod all;
mod discovered;
mod garbage_collector;
mod namespace;
mod root_ca;
mod service_accounts;
mod setting;

pub use all::run;
pub use setting::Setting;
