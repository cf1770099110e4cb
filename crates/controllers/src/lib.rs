//! The controllers: what makes declared objects come true, one file or folder each, all listed in [`all`].
//!
//! Kubernetes calls this kube-controller-manager. Each controller acts under the identity that Kubernetes' bootstrap
//! policy has for it, and reads from caches that all of them share. Nothing here knows the API server: only `ferry` and
//! `testing` bring the two together.

pub mod all;
mod bootstrap_signer;
mod cron_job;
mod daemon_set;
mod deployment;
mod discovered;
mod disruption;
mod endpoint_slice_mirroring;
mod endpoint_slices;
mod endpoints;
mod ephemeral_volumes;
mod garbage_collector;
mod history;
mod job;
mod namespace;
mod node_ipam;
mod node_lifecycle;
mod owners;
mod pod_garbage_collector;
mod pod_writes;
mod pods;
mod replica_set;
mod revision_hash;
mod root_ca;
mod service_accounts;
mod service_cidrs;
mod service_pods;
mod setting;
mod share;
mod stateful_set;
mod status_writes;
mod storage_protection;
mod taint_eviction;
mod token_cleaner;
mod ttl;
mod ttl_after_finished;

pub use all::run;
pub use node_ipam::{BlocksError, PodBlocks};
pub use node_lifecycle::NodeGrace;
pub use setting::Setting;

/// What the server said, without what the client adds.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
