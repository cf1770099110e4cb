//! The API server: one road for every object.
//!
//! Kubernetes calls this kube-apiserver. Nothing below (object model, catalogue, storage) may depend on it.

pub mod body;
pub mod request_info;
pub mod serving;
pub mod watch_cache;
