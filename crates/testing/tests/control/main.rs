//! Controllers and what they stand on, against a whole API server.

mod controllers;
mod cron_jobs;
mod daemon_sets;
mod deployments;
mod disruption;
mod endpoints;
mod informers;
mod jobs;
mod leader;
mod lost_nodes;
mod node_ipam;
mod nodes;
mod pod_garbage_collector;
mod protection;
mod replica_sets;
mod replication_controllers;
mod rollouts;
mod scheduling;
mod stateful_sets;

use std::time::Duration;

use controller_runtime::transport;
use kube::Client;
use testing::TestServer;

/// The administrator, over HTTPS.
async fn client(server: &TestServer) -> Client {
    transport::from_kubeconfig(&server.kubeconfig(), "test").await.expect("a client")
}

/// Waits for what must come true, however long a busy machine takes.
async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    for _ in 0..6000 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never seen: {what}");
}
