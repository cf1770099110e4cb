//! A pod's wire: a pair of virtual links, one end in the pod, one in the node.
//!
//! The node has a route to the pod's one address through its end. The pod has a default route to a gateway that has no
//! address anywhere: both ends know each other's hardware address for good, so nobody ever asks for it. Every packet is
//! routed by the node, also between pods of the same node, and passes its packet filter.

use std::{
    collections::HashSet,
    fs::File,
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd,
    path::Path,
    time::Duration,
};

use nlink::netlink::{
    Connection, Route,
    addr::Ipv4Address,
    link::VethLink,
    neigh::Neighbor,
    route::Ipv4Route,
    types::{link::OperState, route::RouteScope},
};

use tokio::time::sleep;

use super::removal::Removals;
use crate::{
    Error,
    links::{self, failed, fingerprint, there_now},
};

/// Where pods send everything.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const IN_POD: &str = "eth0";
const LOOPBACK: &str = "lo";

pub(super) struct Wires {
    here: Connection<Route>,
    removals: Removals,
    /// As large as packets may be that leave the node.
    mtu: Option<u32>,
}

impl Wires {
    pub async fn open() -> Result<Self, Error> {
        let here = links::open()?;
        let mtu = mtu_to_the_outside(&here).await.map_err(failed("cannot read the routes of this machine"))?;
        let removals = Removals::open().map_err(failed("cannot reach the kernel's links"))?;
        Ok(Self { here, removals, mtu })
    }

    /// Connects a pod, or completes what was begun.
    pub async fn connect(&self, id: &str, address: Ipv4Addr, netns: &Path) -> Result<(), Error> {
        let name = name_of(id);
        let namespace = File::open(netns).map_err(|error| Error(format!("{}: {error}", netns.display())))?;
        let there = Connection::<Route>::new_in(namespace.as_fd()).map_err(failed("cannot enter a pod's network"))?;
        let known = self.here.get_link_by_name(name.as_str()).await.map_err(failed("cannot look for a link"))?;
        let inside = there.get_link_by_name(IN_POD).await.map_err(failed("cannot look for a link in a pod"))?;
        if let (Some(_), None) = (&known, &inside) {
            // Left over from a namespace of the same pod that is gone.
            self.disconnect(id).await?;
        }
        if known.is_none() || inside.is_none() {
            self.make_pair(&name, id, &namespace).await.map_err(failed("cannot make a pair of links"))?;
        }
        fit_out_pod_end(&there, id, address).await.map_err(failed("cannot set up the link in a pod"))?;
        self.fit_out_node_end(&name, id, address).await.map_err(failed("cannot set up a pod's link"))?;
        for end in [(&self.here, name.as_str()), (&there, IN_POD)] {
            working(end).await.map_err(failed("cannot look at a pod's link"))?;
        }
        Ok(())
    }

    async fn make_pair(&self, name: &str, id: &str, namespace: &File) -> nlink::netlink::Result<()> {
        let pair = VethLink::new(name, IN_POD)
            .address(hardware_address(id, End::Node))
            .peer_address(hardware_address(id, End::Pod))
            .peer_netns_fd(namespace);
        let pair = match self.mtu {
            Some(mtu) => pair.mtu(mtu),
            None => pair,
        };
        self.here.add_link(pair).await
    }

    async fn fit_out_node_end(&self, name: &str, id: &str, address: Ipv4Addr) -> nlink::netlink::Result<()> {
        let index = self.here.resolve_interface(&name.into()).await?;
        self.here.set_link_up_by_index(index).await?;
        let neighbor = Neighbor::with_index_v4(index, address).lladdr(hardware_address(id, End::Pod)).permanent();
        let route = Ipv4Route::from_addr(address, 32).dev_index(index).scope(RouteScope::Link);
        there_now(self.here.add_neighbor(neighbor).await)?;
        there_now(self.here.add_route(route).await)
    }

    /// All addresses of the node.
    pub async fn addresses(&self) -> nlink::netlink::Result<HashSet<Ipv4Addr>> {
        let known = self.here.get_addresses().await?;
        Ok(known.iter().filter_map(|known| version_4(known.local())).collect())
    }

    /// All addresses to which the node has a route of their own, as it has to its pods, whoever connected them.
    pub async fn routed(&self) -> Result<Vec<Ipv4Addr>, Error> {
        let routes = self.here.get_routes().await.map_err(failed("cannot read the routes of this machine"))?;
        let single = routes.iter().filter(|route| route.is_ipv4() && route.dst_len() == 32);
        Ok(single.filter_map(|route| version_4(route.destination())).collect())
    }

    /// Removes a pod's wire. The other end and the routes go with it.
    pub async fn disconnect(&self, id: &str) -> Result<(), Error> {
        let removed = self.removals.remove(&self.here, &name_of(id)).await;
        removed.map_err(failed("cannot remove a pod's link"))
    }
}

fn version_4(address: Option<&IpAddr>) -> Option<Ipv4Addr> {
    match address {
        Some(IpAddr::V4(address)) => Some(*address),
        _ => None,
    }
}

async fn fit_out_pod_end(there: &Connection<Route>, id: &str, address: Ipv4Addr) -> nlink::netlink::Result<()> {
    let index = there.resolve_interface(&IN_POD.into()).await?;
    there.set_link_up(LOOPBACK).await?;
    there.set_link_up_by_index(index).await?;
    let gateway = Neighbor::with_index_v4(index, GATEWAY).lladdr(hardware_address(id, End::Node)).permanent();
    there_now(there.add_address(Ipv4Address::with_index(index, address, 32)).await)?;
    there_now(there.add_neighbor(gateway).await)?;
    // A batch of nlink's forgets the link of a route, so these go one by one.
    let to_gateway = Ipv4Route::from_addr(GATEWAY, 32).dev_index(index).scope(RouteScope::Link);
    there_now(there.add_route(to_gateway).await)?;
    there_now(there.add_route(Ipv4Route::default_route().gateway(GATEWAY).dev_index(index)).await)
}

/// Waits until a link that is up also works: the kernel drops what is sent before, and a lost first packet of a connection
/// is sent again only after a second.
async fn working((side, name): (&Connection<Route>, &str)) -> nlink::netlink::Result<()> {
    for _ in 0..100 {
        let link = side.get_link_by_name(name).await?;
        if link.is_none_or(|link| link.operstate() == Some(OperState::Up)) {
            return Ok(());
        }
        sleep(Duration::from_millis(1)).await;
    }
    tracing::warn!(link = name, "a pod's link does not work yet");
    Ok(())
}

async fn mtu_to_the_outside(here: &Connection<Route>) -> nlink::netlink::Result<Option<u32>> {
    let routes = here.get_routes().await?;
    let outside = routes.iter().find(|route| route.is_ipv4() && route.dst_len() == 0 && route.oif().is_some());
    let Some(link) = outside.and_then(|route| route.oif()) else { return Ok(None) };
    Ok(here.get_link_by_index(link).await?.and_then(|link| link.mtu()))
}

/// The name of the node's end: derived from the pod's id, so that it is found again, in the fifteen bytes a name may have.
pub(super) fn name_of(id: &str) -> String {
    format!("{}{:010x}", links::PREFIX, fingerprint(id) & 0xff_ffff_ffff)
}

#[derive(Clone, Copy)]
enum End {
    Node,
    Pod,
}

/// Made from the pod's id; of the kind that nobody else gives out.
fn hardware_address(id: &str, end: End) -> [u8; 6] {
    let [_, _, _, a, b, c, d, e] = fingerprint(id).to_be_bytes();
    let kind = match end {
        End::Node => 0x06,
        End::Pod => 0x0a,
    };
    [kind, a, b, c, d, e]
}
