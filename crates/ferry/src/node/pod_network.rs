//! The network of a node's pods, as the container runtime asks for it. It exists as soon as the cluster has given the node
//! a block of addresses, which is remembered for the next start: pods of the last one are to be found again before anything
//! answers.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use async_trait::async_trait;
use container_runtime::services::{PodNetwork, PodSandboxConfig, SandboxNetwork};
use controller_runtime::Informer;
use k8s_openapi::api::core::v1::Node;
use network::pods::{HostPort, Pods, Settings};
use tokio::sync::{OnceCell, watch};
use tokio_util::sync::CancellationToken;

use super::{CLUSTER_CIDR, NetworkState};

const NOT_YET: &str = "the node has no block of addresses for pods yet";

pub struct NodeNetwork {
    folder: PathBuf,
    pods: OnceCell<Arc<Pods>>,
    state: watch::Sender<Result<(), String>>,
}

impl NodeNetwork {
    /// With the block that the node had before, if it had one.
    pub async fn open(folder: &Path) -> anyhow::Result<Self> {
        let network = Self {
            folder: folder.join("network"),
            pods: OnceCell::new(),
            state: watch::Sender::new(Err(NOT_YET.into())),
        };
        fs::create_dir_all(&network.folder).with_context(|| format!("cannot make {}", network.folder.display()))?;
        if let Ok(block) = fs::read_to_string(network.remembered()) {
            network.begin(block.trim()).await?;
        }
        Ok(network)
    }

    fn remembered(&self) -> PathBuf {
        self.folder.join("block")
    }

    pub fn state(&self) -> NetworkState {
        self.state.subscribe()
    }

    /// Begins when the node gets its block.
    pub async fn follow(&self, own: &Informer<Node>, stop: &CancellationToken) {
        let (tell, mut told) = watch::channel(None);
        own.on_change(move |change| {
            let block = change.object().spec.as_ref().and_then(|spec| spec.pod_cidr.clone());
            if block.is_some() {
                tell.send_replace(block);
            }
        });
        while self.pods.get().is_none() {
            let changed = stop.run_until_cancelled(told.changed()).await;
            if !matches!(changed, Some(Ok(()))) {
                return;
            }
            let Some(block) = told.borrow_and_update().clone() else { continue };
            if let Err(error) = self.begin(&block).await {
                tracing::error!(error = format!("{error:#}"), "pods have no network");
                let _ = self.state.send_replace(Err(format!("{error:#}")));
            }
        }
    }

    async fn begin(&self, block: &str) -> anyhow::Result<()> {
        let settings =
            Settings { state: self.folder.join("pods"), pod_cidr: block.to_owned(), cluster_cidr: CLUSTER_CIDR.into() };
        fs::write(self.remembered(), block)?;
        let pods = Pods::open(settings).await.context("cannot make the pod network")?;
        let _ = self.pods.set(Arc::new(pods));
        let _ = self.state.send_replace(Ok(()));
        Ok(())
    }

    /// Takes back everything that was made for pods.
    pub async fn purge(self) -> anyhow::Result<()> {
        let Some(pods) = self.pods.into_inner() else { return Ok(()) };
        let pods = Arc::into_inner(pods).context("the network is still in use")?;
        pods.purge().await.context("cannot remove the pod network")
    }
}

#[async_trait]
impl PodNetwork for NodeNetwork {
    fn ready(&self) -> Result<(), String> {
        self.state.borrow().clone()
    }

    async fn set_up(&self, sandbox: SandboxNetwork<'_>) -> Result<Vec<IpAddr>, String> {
        let pods = self.pods.get().ok_or(NOT_YET)?;
        let ports = host_ports(sandbox.config)?;
        let attached = pods.attach(sandbox.pod_sandbox_id, Path::new(sandbox.netns), &ports).await;
        attached.map_err(|error| error.to_string())
    }

    async fn tear_down(&self, sandbox: SandboxNetwork<'_>) -> Result<(), String> {
        // Without a network nothing was set up.
        let Some(pods) = self.pods.get() else { return Ok(()) };
        pods.detach(sandbox.pod_sandbox_id).await.map_err(|error| error.to_string())
    }
}

fn host_ports(config: &PodSandboxConfig) -> Result<Vec<HostPort>, String> {
    let wanted = config.port_mappings.iter().filter(|mapping| mapping.host_port > 0);
    let port = |number: i32| u16::try_from(number).map_err(|_| format!("{number} is not a port"));
    wanted
        .map(|mapping| {
            let host: IpAddr = match mapping.host_ip.as_str() {
                "" => Ipv4Addr::UNSPECIFIED.into(),
                address => address.parse().map_err(|_| format!("{address:?} is not an address"))?,
            };
            Ok(HostPort {
                protocol: mapping.protocol.clone(),
                host: SocketAddr::new(host, port(mapping.host_port)?),
                container_port: port(mapping.container_port)?,
            })
        })
        .collect()
}
