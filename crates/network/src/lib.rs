//! The pods' network, services and names.
//!
//! Kubernetes has this in CNI plugins, kube-proxy and CoreDNS. All of it works on the network namespace that the calling
//! thread is in, with netlink only: no `ip`, `nft` or `iptables` is executed.
//!
//! | module | what |
//! |---|---|
//! | [`pods`] | addresses for pods, a routed veth each, masquerade, host ports |
//! | [`routes`] | the way to the pods of other nodes |
//! | [`proxy`] | Services in nftables |
//! | [`dns`] | names of Services and pods, and forwarding of all others |
//! | [`hosts`] | network namespaces that are further machines of a cluster on this one |
//!
//! Nothing here depends on the container runtime or the node agent: whoever wires them together gives the runtime a
//! pod network made of [`pods::Pods`].

mod block;
mod connections;
pub mod dns;
pub mod hosts;
mod links;
mod nft;
pub mod pods;
pub mod proxy;
pub mod routes;
mod slices;
mod sysctl;

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

/// Where is written what does not outlive a start of the machine.
const RUNTIME: &str = "/run/ferry";

/// How often it is looked whether what we made in the kernel is still there: others flush whole rule sets, and routes go with
/// a link that goes down.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Removes a folder below [`RUNTIME`] that nobody needs any more, and those above it.
fn remove_if_empty(folder: &Path) {
    // One that somebody still uses is not empty, and stays.
    let mut ours = folder.ancestors().take_while(|folder| folder.starts_with(RUNTIME));
    let _ = ours.try_for_each(std::fs::remove_dir);
}

/// Whether a file that is open is still the one that has this path.
fn is_at(file: &File, path: &Path) -> bool {
    let same = |open: Metadata, named: Metadata| (open.dev(), open.ino()) == (named.dev(), named.ino());
    file.metadata().is_ok_and(|open| std::fs::metadata(path).is_ok_and(|named| same(open, named)))
}

/// Why a network could not be made as asked; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

const UDP: u8 = 17;

/// As the kernel knows the protocols that have ports.
fn protocol_number(name: &str) -> Option<u8> {
    match name {
        "TCP" => Some(6),
        "UDP" => Some(UDP),
        "SCTP" => Some(132),
        _ => None,
    }
}
