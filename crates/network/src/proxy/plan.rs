//! What a Service and its EndpointSlices mean for this node: at which addresses it is entered, and where each leads.
//!
//! Pure, and about one Service at a time.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use k8s_openapi::api::{
    core::v1::{Service, ServicePort, ServiceSpec},
    discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice},
};

use crate::{block::Block, protocol_number};

#[cfg(test)]
mod tests;

/// Services with it are somebody else's.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
const HEADLESS: &str = "None";

/// The node a plan is made for.
pub(super) struct Node {
    pub name: String,
    pub addresses: Vec<Ipv4Addr>,
}

/// An address, a protocol and a port by which a Service is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Front {
    pub address: Ipv4Addr,
    pub protocol: u8,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Endpoint {
    pub address: Ipv4Addr,
    pub port: u16,
}

/// From where a front is meant to be entered, and to which endpoints it leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the cluster, to all endpoints.
    Inside,
    /// From the cluster, to those of this node.
    InsideLocal,
    /// From anywhere, to all endpoints.
    Outside,
    /// From anywhere, to those of this node; from the cluster to all.
    OutsideLocal,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Port {
    pub name: String,
    pub fronts: Vec<(Front, Way)>,
    pub all: Vec<Endpoint>,
    /// Those on this node.
    pub local: Vec<Endpoint>,
    /// For how many seconds a client comes to the same endpoint again; zero for none.
    pub affinity: u32,
}

/// A Service as this node has to know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub ports: Vec<Port>,
    pub cluster_addresses: Vec<Ipv4Addr>,
    /// Fronts that only some may enter, and from which blocks.
    pub guarded: Vec<(Front, Vec<Block>)>,
    /// The port at which load balancers ask whether this node has endpoints, and how many it has.
    pub health: Option<(u16, usize)>,
}

impl Plan {
    /// Services without addresses of their own have an empty plan.
    pub fn of(service: &Service, slices: &[Arc<EndpointSlice>], node: &Node) -> Self {
        let Some(spec) = service.spec.as_ref().filter(|spec| is_ours(service, spec)) else { return Self::default() };
        let entrances = Entrances::of(service, spec);
        let affinity = match spec.session_affinity.as_deref() {
            Some("ClientIP") => {
                let config = spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref());
                let seconds = config.and_then(|config| config.timeout_seconds).unwrap_or(10_800);
                u32::try_from(seconds).unwrap_or(0)
            }
            _ => 0,
        };
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let fronts = entrances.fronts(port, node)?;
            let (all, local) = endpoints(port, slices, &node.name);
            Some(Port { name: port.name.clone().unwrap_or_default(), fronts, all, local, affinity })
        });
        let ports: Vec<Port> = ports.collect();
        let health = spec.health_check_node_port.filter(|_| entrances.outside == Way::OutsideLocal);
        let local: BTreeSet<Ipv4Addr> = ports.iter().flat_map(|port| &port.local).map(|local| local.address).collect();
        let ranges = spec.load_balancer_source_ranges.as_ref().filter(|ranges| !ranges.is_empty());
        let blocks: Option<Vec<Block>> =
            ranges.map(|ranges| ranges.iter().filter_map(|block| block.trim().parse().ok()).collect());
        let fronts = ports.iter().flat_map(|port| &port.fronts).map(|(front, _)| *front);
        let balanced = fronts.filter(|front| entrances.balanced_addresses.contains(&front.address));
        Self {
            guarded: blocks.map(|blocks| balanced.map(|front| (front, blocks.clone())).collect()).unwrap_or_default(),
            cluster_addresses: entrances.inside_addresses,
            health: health.and_then(|port| Some((u16::try_from(port).ok().filter(|port| *port > 0)?, local.len()))),
            ports,
        }
    }
}

fn is_ours(service: &Service, spec: &ServiceSpec) -> bool {
    let others = service.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(OTHER_PROXY));
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    !others && spec.type_.as_deref() != Some("ExternalName") && !address.is_empty() && address != HEADLESS
}

/// The addresses of a Service, without ports.
struct Entrances {
    inside_addresses: Vec<Ipv4Addr>,
    outside_addresses: Vec<Ipv4Addr>,
    /// Those among them that a load balancer has given out.
    balanced_addresses: Vec<Ipv4Addr>,
    inside: Way,
    outside: Way,
}

impl Entrances {
    fn of(service: &Service, spec: &ServiceSpec) -> Self {
        let own = spec.cluster_ips.clone().unwrap_or_else(|| spec.cluster_ip.iter().cloned().collect());
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
        // What a balancer answers itself is not ours to answer.
        let ingress = ingress.filter(|ingress| ingress.ip_mode.as_deref() != Some("Proxy"));
        let balanced: Vec<Ipv4Addr> = ingress.filter_map(|ingress| ipv4(ingress.ip.as_ref()?)).collect();
        let external = spec.external_ips.iter().flatten().filter_map(|text| ipv4(text));
        let local = |policy: &Option<String>| policy.as_deref() == Some("Local");
        Self {
            inside_addresses: own.iter().filter_map(|text| ipv4(text)).collect(),
            outside_addresses: external.chain(balanced.iter().copied()).collect(),
            balanced_addresses: balanced,
            inside: if local(&spec.internal_traffic_policy) { Way::InsideLocal } else { Way::Inside },
            outside: if local(&spec.external_traffic_policy) { Way::OutsideLocal } else { Way::Outside },
        }
    }

    fn fronts(&self, port: &ServicePort, node: &Node) -> Option<Vec<(Front, Way)>> {
        let protocol = protocol_number(port.protocol.as_deref().unwrap_or("TCP"))?;
        let number = u16::try_from(port.port).ok()?;
        let front = |port: u16, way: Way| move |address: &Ipv4Addr| (Front { address: *address, protocol, port }, way);
        let mut fronts: Vec<_> = self.inside_addresses.iter().map(front(number, self.inside)).collect();
        fronts.extend(self.outside_addresses.iter().map(front(number, self.outside)));
        if let Some(number) = port.node_port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
            fronts.extend(node.addresses.iter().map(front(number, self.outside)));
        }
        Some(fronts)
    }
}

/// The endpoints of a port to which connections may go: all of them, and those on a node. The ready ones; if there are
/// none, those that still serve while they end.
fn endpoints(port: &ServicePort, slices: &[Arc<EndpointSlice>], node: &str) -> (Vec<Endpoint>, Vec<Endpoint>) {
    let (mut ready, mut ending) = (Vec::new(), Vec::new());
    for slice in slices.iter().filter(|slice| slice.address_type == "IPv4") {
        let name = port.name.as_deref().unwrap_or_default();
        let named = slice.ports.iter().flatten().find(|port| port.name.as_deref().unwrap_or_default() == name);
        let Some(number) = named.and_then(|port| port.port).and_then(|port| u16::try_from(port).ok()) else { continue };
        for endpoint in slice.endpoints.iter().flatten() {
            let group = match readiness(endpoint) {
                Readiness::Ready => &mut ready,
                Readiness::Ending => &mut ending,
                Readiness::No => continue,
            };
            let local = endpoint.node_name.as_deref() == Some(node);
            let address = endpoint.addresses.first().and_then(|text| ipv4(text));
            group.extend(address.map(|address| (Endpoint { address, port: number }, local)));
        }
    }
    let best = |wanted: fn(&(Endpoint, bool)) -> bool| {
        let of = |group: &[(Endpoint, bool)]| -> BTreeSet<Endpoint> {
            group.iter().filter(|endpoint| wanted(endpoint)).map(|(endpoint, _)| *endpoint).collect()
        };
        let ready = of(&ready);
        let best = if ready.is_empty() { of(&ending) } else { ready };
        best.into_iter().collect()
    };
    (best(|_| true), best(|(_, local)| *local))
}

enum Readiness {
    Ready,
    Ending,
    No,
}

fn readiness(endpoint: &SliceEndpoint) -> Readiness {
    let Some(conditions) = &endpoint.conditions else { return Readiness::Ready };
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    match (ready, serving && conditions.terminating.unwrap_or(false)) {
        (true, _) => Readiness::Ready,
        (false, true) => Readiness::Ending,
        (false, false) => Readiness::No,
    }
}

fn ipv4(text: &str) -> Option<Ipv4Addr> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    }
}
