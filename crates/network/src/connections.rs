//! Connections that the kernel remembers and should not: datagrams of a client keep going where the first one went, also
//! when that endpoint is gone.

use std::net::{IpAddr, SocketAddrV4};

use nlink::netlink::{
    Connection, Netfilter,
    netfilter::{ConntrackEntry, ConntrackFilter, IpProtocol},
    types::AddressFamily,
};

/// Where a client's datagrams go.
pub(crate) struct Datagrams {
    /// What the client sends them to.
    pub to: SocketAddrV4,
    /// Who gets them.
    pub at: SocketAddrV4,
}

/// Forgets those that go where they should not. If it fails, some of them may be left.
pub(crate) async fn forget(wrong: impl Fn(&Datagrams) -> bool) -> nlink::netlink::Result<()> {
    let connections = Connection::<Netfilter>::new()?;
    let udp = ConntrackFilter::new().family(AddressFamily::Inet).proto(IpProtocol::Udp);
    let mut done = Ok(());
    for entry in connections.get_conntrack_matching(&udp).await? {
        if !datagrams(&entry).is_some_and(|datagrams| wrong(&datagrams)) {
            continue;
        }
        match connections.del_conntrack_entry(&entry).await {
            Err(error) if !error.is_not_found() => done = Err(error),
            _ => {}
        }
    }
    done
}

fn datagrams(entry: &ConntrackEntry) -> Option<Datagrams> {
    let end = |address: Option<IpAddr>, port: Option<u16>| match (address?, port?) {
        (IpAddr::V4(address), port) => Some(SocketAddrV4::new(address, port)),
        _ => None,
    };
    let (to, answers) = (&entry.orig, &entry.reply);
    Some(Datagrams { to: end(to.dst_ip, to.dst_port)?, at: end(answers.src_ip, answers.src_port)? })
}
