//! Brings the parts of the agent together.

use tokio_util::sync::CancellationToken;

use crate::Settings;

/// Runs the agent until it is told to stop. Pods go on when it stops.
pub async fn run(settings: Settings, stop: CancellationToken) {
    let _ = settings;
    stop.cancelled().await;
}
