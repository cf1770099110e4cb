//! The network of a node's pods, as the container runtime asks for it. It exists as soon as the cluster has given the node
//! a block of addresses, which is remembered for the next start: pods of the last one are to be found again before anything
//! answers. A node that is made anew in the cluster may get another block; then new pods have addresses of that one.

use std::{
    collections::HashSet,
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use async_trait::async_trait;
use container_runtime::services::{PodNetwork, PodSandboxConfig, SandboxNetwork};
use controller_runtime::Informer;
use k8s_openapi::api::core::v1::Node;
use network::pods::{HostPort, Pods, Settings};
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use super::{CLUSTER_CIDR, NetworkState};

/// In the node's folder.
pub const FOLDER: &str = "network";
const AGAIN_AFTER: Duration = Duration::from_secs(5);
const NOT_YET: &str = "the node has no block of addresses for pods yet";

pub struct NodeNetwork {
    folder: PathBuf,
    /// Held for reading while pods are connected, and for writing while the block changes.
    current: RwLock<Option<Current>>,
    state: watch::Sender<Result<(), String>>,
}

struct Current {
    block: String,
    pods: Arc<Pods>,
}

impl NodeNetwork {
    /// With the block that the node had before, if it had one.
    pub async fn open(folder: &Path) -> anyhow::Result<Self> {
        let network = Self {
            folder: folder.join(FOLDER),
            current: RwLock::default(),
            state: watch::Sender::new(Err(NOT_YET.into())),
        };
        fs::create_dir_all(&network.folder).with_context(|| format!("cannot make {}", network.folder.display()))?;
        let remembered = fs::read_to_string(network.remembered()).unwrap_or_default();
        // Empty is what a loss of power may leave: the cluster knows it.
        if !remembered.trim().is_empty() {
            network.begin(remembered.trim()).await?;
        }
        Ok(network)
    }

    fn remembered(&self) -> PathBuf {
        self.folder.join("block")
    }

    /// Whole or not at all: the process may be killed in between.
    fn remember(&self, block: &str) -> io::Result<()> {
        let new = self.folder.join("block.new");
        fs::write(&new, block)?;
        fs::rename(new, self.remembered())
    }

    pub fn state(&self) -> NetworkState {
        self.state.subscribe()
    }

    /// Begins when the node gets its block, and again if it gets another one. Until then, what there is is looked after.
    pub async fn follow(&self, own: &Informer<Node>, stop: &CancellationToken) {
        let (tell, mut told) = watch::channel(None);
        own.on_change(move |change| {
            let block = change.object().spec.as_ref().and_then(|spec| spec.pod_cidr.clone());
            tell.send_if_modified(|known| {
                let other = block.is_some() && *known != block;
                if other {
                    known.clone_from(&block);
                }
                other
            });
        });
        let follow = async {
            loop {
                let current = self.current.read().await.as_ref().map(|current| current.pods.clone());
                tokio::select! {
                    changed = told.changed() => if changed.is_err() { return },
                    () = look_after(current) => {}
                }
                let block = told.borrow_and_update().clone();
                if let Some(block) = block {
                    self.persist(&block).await;
                }
            }
        };
        stop.run_until_cancelled(follow).await;
    }

    /// Begins with a block, however often it takes.
    async fn persist(&self, block: &str) {
        if self.current.read().await.as_ref().is_some_and(|current| current.block == block) {
            return;
        }
        while let Err(error) = self.begin(block).await {
            tracing::error!(error = format!("{error:#}"), "pods have no network; trying again");
            let _ = self.state.send_replace(Err(format!("{error:#}")));
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn begin(&self, block: &str) -> anyhow::Result<()> {
        let settings =
            Settings { state: self.folder.join("pods"), pod_cidr: block.to_owned(), cluster_cidr: CLUSTER_CIDR.into() };
        let mut current = self.current.write().await;
        self.remember(block)?;
        if let Some(before) = current.as_ref() {
            tracing::warn!(
                from = before.block,
                to = block,
                "other nodes do not reach the pods of the old block any more"
            );
        }
        let pods = Pods::open(settings).await.context("cannot make the pod network")?;
        *current = Some(Current { block: block.to_owned(), pods: Arc::new(pods) });
        let _ = self.state.send_replace(Ok(()));
        Ok(())
    }

    /// Takes back what was made for pods that the runtime knows no more: a loss of power took their records.
    pub async fn forget_all_but(&self, known: HashSet<&str>) {
        let current = self.current.read().await;
        let Some(Current { pods, .. }) = current.as_ref() else { return };
        for id in pods.ids().await.iter().filter(|id| !known.contains(id.as_str())) {
            if let Err(error) = pods.detach(id).await {
                tracing::warn!(id, %error, "an address stays taken though its pod is gone");
            }
        }
    }

    /// Takes back everything that was made for pods.
    pub async fn purge(self) -> anyhow::Result<()> {
        let Some(Current { pods, .. }) = self.current.into_inner() else { return Ok(()) };
        let pods = Arc::into_inner(pods).context("the network is still in use")?;
        pods.purge().await.context("cannot remove the pod network")
    }
}

async fn look_after(pods: Option<Arc<Pods>>) {
    match pods {
        Some(pods) => pods.keep().await,
        None => std::future::pending().await,
    }
}

#[async_trait]
impl PodNetwork for NodeNetwork {
    fn ready(&self) -> Result<(), String> {
        self.state.borrow().clone()
    }

    async fn set_up(&self, sandbox: SandboxNetwork<'_>) -> Result<Vec<IpAddr>, String> {
        let current = self.current.read().await;
        let Current { pods, .. } = current.as_ref().ok_or(NOT_YET)?;
        let ports = host_ports(sandbox.config)?;
        let attached = pods.attach(sandbox.pod_sandbox_id, Path::new(sandbox.netns), &ports).await;
        attached.map_err(|error| error.to_string())
    }

    async fn tear_down(&self, sandbox: SandboxNetwork<'_>) -> Result<(), String> {
        // Without a network nothing was set up.
        let current = self.current.read().await;
        let Some(Current { pods, .. }) = current.as_ref() else { return Ok(()) };
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
