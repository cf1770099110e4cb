//! What an agent is told at its start.

use std::{collections::BTreeMap, net::IpAddr, path::PathBuf, sync::Arc};

use container_runtime::{
    cgroups::Layout,
    services::{ImageService, RuntimeService},
};
use controller_runtime::Clock;
use k8s_openapi::api::core::v1::Taint;
use kube::Client;
use tokio::sync::watch;

pub use crate::eviction::Thresholds;

/// What an agent is told at its start.
#[derive(Clone)]
pub struct Settings {
    pub node_name: String,
    /// The node's addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// Where the folders of pods are: `pods/<uid>/…`, as below Kubernetes' `--root-dir`; and the logs of pods, below `logs`.
    pub root: PathBuf,
    /// Where the agent's server listens, on all addresses of the node.
    pub port: u16,
    /// The server's certificate; clients may show one, too.
    pub tls: Arc<rustls::ServerConfig>,
    /// Acts as `system:node:<name>`.
    pub client: Client,
    pub runtime: Arc<dyn RuntimeService>,
    pub images: Arc<dyn ImageService>,
    /// Whether pods can be given a network, or why not yet.
    pub network: watch::Receiver<Result<(), String>>,
    /// Where pods with the policy ClusterFirst ask for names.
    pub cluster_dns: Vec<IpAddr>,
    pub cluster_domain: String,
    /// Given to the node when it registers.
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub max_pods: u32,
    /// The machine's control groups, whose classes of pods the agent weighs; none where it must not touch them.
    pub control_groups: Option<Layout>,
    /// When the node is short of something.
    pub thresholds: Thresholds,
    pub clock: Arc<dyn Clock>,
}
