//! The agent's server: logs, exec, attach, port-forward, figures, over TLS, for whom the API server lets.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use crate::Settings;

/// What the server asks of the agent.
pub trait Host: Send + Sync + 'static {
    /// The node's pods, with their status as the agent knows it.
    fn pods(&self) -> Vec<Arc<Pod>>;
    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>>;
    /// The runtime's id of a pod's sandbox.
    fn sandbox(&self, uid: &str) -> Option<String>;
    /// The runtime's id of a container of a pod: the one that runs or ran last, or the one before it.
    fn container(&self, uid: &str, name: &str, previous: bool) -> Option<String>;
}

/// Serves until it is told to stop.
pub async fn serve(settings: Settings, host: Arc<dyn Host>, stop: CancellationToken) -> std::io::Result<()> {
    let _ = (settings, host);
    stop.cancelled().await;
    Ok(())
}
