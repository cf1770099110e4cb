//! How a pod's network namespace gets its network: a seam, since networks are another crate's.

use std::net::IpAddr;

use async_trait::async_trait;

use super::types::PodSandboxConfig;

/// A sandbox as its network sees it.
#[derive(Debug, Clone, Copy)]
pub struct SandboxNetwork<'a> {
    pub pod_sandbox_id: &'a str,
    /// A path that opens the pod's network namespace while the sandbox is ready.
    pub netns: &'a str,
    pub config: &'a PodSandboxConfig,
}

/// Connects sandboxes that have a network namespace of their own. Loopback is up already.
#[async_trait]
pub trait PodNetwork: Send + Sync {
    /// Whether pods can be connected, or why not.
    fn ready(&self) -> Result<(), String>;
    /// Connects the pod; its addresses, the primary one first.
    async fn set_up(&self, sandbox: SandboxNetwork<'_>) -> Result<Vec<IpAddr>, String>;
    /// Takes back everything that `set_up` made, also where it failed halfway or the namespace is gone. Called at least
    /// once for each sandbox.
    async fn tear_down(&self, sandbox: SandboxNetwork<'_>) -> Result<(), String>;
}

/// Pods with loopback only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNetwork;

#[async_trait]
impl PodNetwork for NoNetwork {
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    async fn set_up(&self, _: SandboxNetwork<'_>) -> Result<Vec<IpAddr>, String> {
        Ok(Vec::new())
    }

    async fn tear_down(&self, _: SandboxNetwork<'_>) -> Result<(), String> {
        Ok(())
    }
}
