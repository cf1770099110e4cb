//! Further machines of a cluster on this one: network namespaces with an address each, routed to this machine.

use std::{net::IpAddr, path::PathBuf};

use crate::Error;

/// A network namespace that stands for a machine.
#[derive(Debug, Clone)]
pub struct Host {
    pub name: String,
    /// Opens its network namespace.
    pub netns: PathBuf,
    /// By which this machine and the other hosts reach it.
    pub address: IpAddr,
    /// The address of this machine, as the host sees it.
    pub gateway: IpAddr,
}

/// Makes a host, or finds the one again that is there already.
pub async fn ensure(cluster: &str, name: &str) -> Result<Host, Error> {
    Err(Error(format!("no host {name} of {cluster}")))
}

/// Removes a host with all that is in it.
pub async fn remove(_cluster: &str, _name: &str) -> Result<(), Error> {
    Ok(())
}
