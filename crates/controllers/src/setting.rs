//! What every controller is given.

use std::sync::Arc;

use controller_runtime::{Clock, Informers, events::Recorder};
use kube::Client;

use crate::{NodeGrace, PodBlocks};

/// How all controllers reach the cluster.
pub struct Setting {
    /// Gives a client under the identity of a service account in kube-system, such as `replicaset-controller`.
    pub client_of: Box<dyn Fn(&str) -> Client + Send + Sync>,
    /// What all controllers know of the cluster, read as `system:kube-controller-manager`.
    pub informers: Informers,
    pub clock: Arc<dyn Clock>,
    /// The certificate by which pods know the API server.
    pub root_ca: String,
    /// Whether other API servers share the store. They learn of a deleted namespace a little later.
    pub several_servers: bool,
    /// Where pods have their addresses from. Every node gets a part.
    pub pod_blocks: PodBlocks,
    /// For how long nodes may be silent.
    pub node_grace: NodeGrace,
}

impl Setting {
    pub fn client(&self, account: &str) -> Client {
        (self.client_of)(account)
    }

    /// Records events as `component` says them, written by a service account.
    pub fn recorder(&self, account: &str, component: &str) -> Recorder {
        Recorder::new(self.client(account), component, self.clock.clone())
    }
}
