//! Connections that the kernel remembers and should not: datagrams of a client keep going where the first one went, also
//! when that endpoint is gone.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use nlink::netlink::{
    Connection, Netfilter,
    netfilter::{ConntrackEntry, ConntrackFilter, IpProtocol},
    types::AddressFamily,
};

use super::plan::{Endpoint, Front};

const UDP: u8 = 17;

/// Forgets those of some fronts that lead elsewhere than to these endpoints.
pub(super) async fn forget(fronts: &HashMap<Front, HashSet<Endpoint>>) -> nlink::netlink::Result<()> {
    if fronts.is_empty() {
        return Ok(());
    }
    let connections = Connection::<Netfilter>::new()?;
    let udp = ConntrackFilter::new().family(AddressFamily::Inet).proto(IpProtocol::Udp);
    for entry in connections.get_conntrack_matching(&udp).await? {
        let stale = front_of(&entry).and_then(|front| fronts.get(&front)).is_some_and(|may_stay| {
            let leads_to = endpoint_of(&entry);
            leads_to.is_none_or(|endpoint| !may_stay.contains(&endpoint))
        });
        if !stale {
            continue;
        }
        match connections.del_conntrack_entry(&entry).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn front_of(entry: &ConntrackEntry) -> Option<Front> {
    match (entry.orig.dst_ip, entry.orig.dst_port) {
        (Some(IpAddr::V4(address)), Some(port)) => Some(Front { address, protocol: UDP, port }),
        _ => None,
    }
}

fn endpoint_of(entry: &ConntrackEntry) -> Option<Endpoint> {
    match (entry.reply.src_ip, entry.reply.src_port) {
        (Some(IpAddr::V4(address)), Some(port)) => Some(Endpoint { address, port }),
        _ => None,
    }
}
