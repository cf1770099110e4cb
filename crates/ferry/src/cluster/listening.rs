//! Where the cluster is reached: the listeners of the API, and the ports that a node needs.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use anyhow::{anyhow, bail};
use tokio::net::TcpListener;

use super::{DNS_PORT, Settings};
use crate::node::AGENT_PORT;

/// The API listens where it was told to, and where pods and other nodes reach it.
pub async fn listen_on_all(settings: &Settings) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = vec![listen(settings.address, "--bind").await?];
    let bound = listeners[0].local_addr()?;
    let Some(node) = &settings.node else { return Ok(listeners) };
    if !bound.ip().is_unspecified() && bound.ip() != node.address {
        listeners.push(listen(SocketAddr::new(node.address, bound.port()), "--node-ip").await?);
    }
    let name_server = node.dns.then_some(DNS_PORT);
    for port in [AGENT_PORT].into_iter().chain(name_server) {
        is_free(SocketAddr::new(node.address, port)).await?;
    }
    Ok(listeners)
}

/// A machine has room for one cluster with a node: a second one would take the first one's ports and packet filter.
async fn is_free(address: SocketAddr) -> anyhow::Result<()> {
    match TcpListener::bind(address).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => bail!(
            "a node needs port {}, and another program listens there\n\
             hint: if that is another cluster, stop it with: ferry down --data-dir <its folder>; \
             without a node, the API alone runs with --control-plane-only",
            address.port()
        ),
        // What else may be wrong is told by who needs the port.
        _ => Ok(()),
    }
}

async fn listen(address: SocketAddr, flag: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::AddrInUse => "another program listens there, a cluster perhaps; try --api-port".to_owned(),
            io::ErrorKind::AddrNotAvailable => format!("this machine does not have that address; try another {flag}"),
            io::ErrorKind::PermissionDenied => "the ports below 1024 are for root; try --api-port".to_owned(),
            _ => format!("{flag} and --api-port say where to listen"),
        };
        anyhow!("cannot listen on {address}: {error}\nhint: {hint}")
    })
}

/// Where this machine reaches a server that listens on `address`, which may be all that the machine has.
pub fn reached_at(address: SocketAddr) -> SocketAddr {
    let loopback = match address.ip() {
        ip if !ip.is_unspecified() => return address,
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    (loopback, address.port()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_is_told() {
        let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a port");
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), taken.local_addr().expect("its address").port());
        let told = is_free(address).await.expect_err("it is taken").to_string();
        assert!(told.contains(&address.port().to_string()) && told.contains("hint: "), "{told}");
        drop(taken);
        is_free(address).await.expect("it is free");
    }

    #[tokio::test]
    async fn an_address_of_another_machine_names_the_flag() {
        let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 0);
        let told = listen(elsewhere, "--node-ip").await.expect_err("it is not ours").to_string();
        assert!(told.ends_with("try another --node-ip"), "{told}");
    }
}
