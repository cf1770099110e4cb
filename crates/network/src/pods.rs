//! Pods on the network of their node: an address each from the node's block, a routed veth, masquerade to the outside.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use crate::Error;

/// What the pod network of a node is told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it is written down which pod has which address, before it has it.
    pub state: PathBuf,
    /// The node's own block, such as `10.244.0.0/24`.
    pub pod_cidr: String,
    /// The block of all pods of the cluster: traffic to it is not masqueraded.
    pub cluster_cidr: String,
}

/// A port of the node that leads to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl Pods {
    /// Opens the state and makes what all pods share; pods that an earlier process connected stay connected.
    pub async fn open(settings: Settings) -> Result<Self, Error> {
        Ok(Self { settings })
    }

    /// Connects the network namespace at `netns`; the pod's addresses. Connecting it again gives the same ones.
    pub async fn attach(&self, id: &str, netns: &Path, ports: &[HostPort]) -> Result<Vec<IpAddr>, Error> {
        Err(Error(format!("no network for {id} at {} ({ports:?}) in {:?}", netns.display(), self.settings)))
    }

    /// Takes back everything that `attach` made, also where it failed halfway or the namespace is gone.
    pub async fn detach(&self, _id: &str) -> Result<(), Error> {
        Ok(())
    }

    /// Takes back everything: every pod, and what they share.
    pub async fn purge(self) -> Result<(), Error> {
        Ok(())
    }
}
