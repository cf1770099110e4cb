//! The way of a pod from a chosen node to a bound one, beside the next cycles.
//!
//! The pod is assumed on its node while this goes on. Whatever the end, the scheduler is told of it.

use crate::{
    framework::{BindError, Framework},
    pod::PodInfo,
};

#[cfg(test)]
mod tests;

/// Permits, prepares and binds.
pub async fn bind(framework: &Framework, pod: &PodInfo, node: &str) -> Result<(), BindError> {
    for plugin in &framework.permit {
        plugin.permit(pod, node).await.map_err(BindError::Rejected)?;
    }
    for plugin in &framework.pre_bind {
        plugin.pre_bind(pod, node).await?;
    }
    framework.bind.bind(pod, node).await?;
    framework.post_bind.iter().for_each(|plugin| plugin.post_bind(pod, node));
    Ok(())
}
