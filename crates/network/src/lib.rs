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
pub mod dns;
pub mod hosts;
mod links;
mod nft;
pub mod pods;
pub mod proxy;
pub mod routes;
mod slices;
mod sysctl;

/// Where is written what does not outlive a start of the machine.
const RUNTIME: &str = "/run/ferry";

/// Why a network could not be made as asked; the text says what to do.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

/// As the kernel knows the protocols that have ports.
fn protocol_number(name: &str) -> Option<u8> {
    match name {
        "TCP" => Some(6),
        "UDP" => Some(17),
        "SCTP" => Some(132),
        _ => None,
    }
}
