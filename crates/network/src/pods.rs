//! Pods on the network of their node: an address each from the node's block, a routed veth, masquerade to the outside.
//!
//! What a pod gets is written down ([`addresses`]) before it is made, so that a process that is killed at any moment finds
//! all of it again. Everything can be made twice and removed twice.

mod addresses;
mod filter;
mod removal;
mod wire;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::sleep};

use self::{
    addresses::{Addresses, Pod},
    filter::Filter,
    wire::Wires,
};
use crate::{
    Error, LOOK_EVERY,
    block::Block,
    connections::{self, Datagrams},
    sysctl,
};

/// What the pod network of a node is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder in which it is written down which pod has which address, before it has it.
    pub state: PathBuf,
    /// The node's own block, such as `10.244.0.0/24`.
    pub pod_cidr: String,
    /// The block of all pods of the cluster: traffic to it is not masqueraded.
    pub cluster_cidr: String,
}

/// A port of the node that leads to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// On which address of the node; unspecified for all.
    pub host: SocketAddr,
    pub container_port: u16,
}

/// The network of all pods of this node.
pub struct Pods {
    settings: Settings,
    /// Locked while it is decided who has what, not while the kernel works.
    addresses: Mutex<Addresses>,
    wires: Wires,
    filter: Filter,
}

impl Pods {
    /// Opens the state and makes what all pods share; pods that an earlier process connected stay connected.
    pub async fn open(mut settings: Settings) -> Result<Self, Error> {
        let (pod_block, cluster_block): (Block, Block) = (settings.pod_cidr.parse()?, settings.cluster_cidr.parse()?);
        let mut addresses = Addresses::open(&settings.state, pod_block)?;
        // Wherever the next process is started from.
        settings.state = settings.state.canonicalize().map_err(|error| Error(error.to_string()))?;
        sysctl::want(&settings.state, "net/ipv4/ip_forward", "1")?;
        let filter = Filter::open(cluster_block, addresses.all()).await?;
        let wires = Wires::open().await?;
        addresses.avoid(wires.routed().await?);
        Ok(Self { settings, addresses: Mutex::new(addresses), wires, filter })
    }

    /// Connects the network namespace at `netns`; the pod's addresses. Connecting it again gives the same ones.
    pub async fn attach(&self, id: &str, netns: &Path, ports: &[HostPort]) -> Result<Vec<IpAddr>, Error> {
        let (before, pod) = {
            let mut addresses = self.addresses.lock().await;
            (addresses.get(id).cloned(), addresses.take(id, ports)?)
        };
        if before.as_ref() != Some(&pod) {
            let let_in = async {
                if let Some(before) = before {
                    self.filter.shut_out(&before).await?;
                }
                self.filter.let_in(&pod).await
            };
            match let_in.await {
                Ok(true) => self.forget_old_datagrams(&pod).await,
                Ok(false) => self.filter.write(self.addresses.lock().await.all()).await?,
                Err(error) => {
                    self.addresses.lock().await.give_back(id)?;
                    return Err(error);
                }
            }
        }
        self.wires.connect(id, pod.address, netns).await?;
        if ports.iter().any(|port| port.host.ip().is_loopback() || port.host.ip().is_unspecified()) {
            // The node's own programs reach these ports at 127.0.0.1 too.
            sysctl::write(&format!("net/ipv4/conf/{}/route_localnet", wire::name_of(id)), "1")?;
        }
        Ok(vec![pod.address.into()])
    }

    /// Takes back everything that `attach` made, also where it failed halfway or the namespace is gone.
    pub async fn detach(&self, id: &str) -> Result<(), Error> {
        self.wires.disconnect(id).await?;
        let mut addresses = self.addresses.lock().await;
        let was_there = match addresses.get(id) {
            Some(pod) => self.filter.shut_out(pod).await?,
            None => true,
        };
        addresses.give_back(id)?;
        if !was_there {
            self.filter.write(addresses.all()).await?;
        }
        Ok(())
    }

    /// Makes again what somebody else removes, such as all tables of the packet filter at once. It never returns.
    pub async fn keep(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            let restored = async {
                if self.filter.is_there().await? {
                    return Ok(());
                }
                tracing::warn!("the packet filter's table for pods was removed, and is made again");
                self.filter.write(self.addresses.lock().await.all()).await
            };
            if let Err(error) = restored.await {
                tracing::warn!(%error, "pods may not reach the outside, nor be reached at ports of the node");
            }
        }
    }

    /// Clients that sent datagrams to a port of the node before this pod had it are to reach it, too.
    async fn forget_old_datagrams(&self, pod: &Pod) {
        let udp: Vec<&HostPort> = pod.ports.iter().filter(|port| port.protocol == "UDP").collect();
        if udp.is_empty() {
            return;
        }
        let forgotten = async {
            let own = self.wires.addresses().await?;
            let here = |port: &HostPort, to: &Ipv4Addr| match port.host.ip() {
                IpAddr::V4(host) if !host.is_unspecified() => host == *to,
                _ => own.contains(to),
            };
            let wrong = |datagrams: &Datagrams| {
                udp.iter().any(|port| {
                    port.host.port() == datagrams.to.port()
                        && here(port, datagrams.to.ip())
                        && datagrams.at != SocketAddrV4::new(pod.address, port.container_port)
                })
            };
            connections::forget(wrong).await
        };
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, "datagrams of old clients may not reach a pod's port of the node");
        }
    }

    /// The ids of all pods that are attached or were once begun to be.
    pub async fn ids(&self) -> Vec<String> {
        self.addresses.lock().await.all().map(|pod| pod.id.clone()).collect()
    }

    /// Takes back everything: every pod, and what they share.
    pub async fn purge(self) -> Result<(), Error> {
        let ids = self.ids().await;
        futures::future::try_join_all(ids.iter().map(|id| self.wires.disconnect(id))).await?;
        self.filter.purge().await?;
        sysctl::release(&self.settings.state)?;
        match std::fs::remove_dir_all(&self.settings.state) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error(format!("{}: {error}", self.settings.state.display())))
            }
            _ => Ok(()),
        }
    }
}
