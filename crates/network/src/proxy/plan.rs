//! What a Service and its EndpointSlices mean for this node: at which addresses it is entered, and where each leads.
//!
//! Pure, and about one Service at a time.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{Service, ServicePort, ServiceSpec},
        discovery::v1::{Endpoint as SliceEndpoint, EndpointSlice},
        networking::v1::ServiceCIDR,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::{block::Block, protocol_number};

#[cfg(test)]
mod tests;

/// Services and EndpointSlices with one of them are not ours: somebody else leads to them, or nobody is to.
const NOT_OURS: [&str; 2] = ["service.kubernetes.io/service-proxy-name", "service.kubernetes.io/headless"];
const HEADLESS: &str = "None";

/// The node a plan is made for.
pub(super) struct Node {
    pub name: String,
    pub zone: Option<String>,
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Port {
    pub name: String,
    pub fronts: Vec<(Front, Way)>,
    /// Where connections from this node go: to all, or to those that are near if the Service would have that.
    pub all: Vec<Endpoint>,
    /// Those on this node.
    pub local: Vec<Endpoint>,
    /// Everybody who still answers. Clients that went there may go on.
    pub serving: Vec<Endpoint>,
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
    /// The port at which load balancers ask whether this node has endpoints, and how many are ready. Those that end are not
    /// counted, so that balancers turn to other nodes while they still serve.
    pub health: Option<(u16, usize)>,
    /// Blocks that addresses of Services are taken from.
    pub blocks: Vec<Block>,
}

impl Plan {
    /// What the blocks of all Services mean, which is no matter of any of them.
    pub fn of_blocks(all: &[Arc<ServiceCIDR>]) -> Self {
        let blocks = all.iter().filter_map(|one| one.spec.as_ref()?.cidrs.as_ref()).flatten();
        Self { blocks: Block::without_overlaps(blocks.filter_map(|block| block.parse().ok())), ..Self::default() }
    }

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
        let mut ready_here = BTreeSet::new();
        let ports = spec.ports.iter().flatten().filter_map(|port| {
            let fronts = entrances.fronts(port, node)?;
            let found = Endpoints::of(port, slices, node);
            ready_here.extend(found.ready.iter().filter(|one| one.local).map(|one| one.endpoint.address));
            Some(Port {
                name: port.name.clone().unwrap_or_default(),
                fronts,
                all: found.for_node(),
                local: found.on_node(),
                serving: found.serving.into_iter().collect(),
                affinity,
            })
        });
        let ports: Vec<Port> = ports.collect();
        let health = spec.health_check_node_port.filter(|_| entrances.outside == Way::OutsideLocal);
        let ranges = spec.load_balancer_source_ranges.iter().flatten();
        // Those of IPv6 say nothing about who comes by IPv4.
        let blocks: Vec<Block> = ranges.filter_map(|block| block.trim().parse().ok()).collect();
        let blocks = Some(blocks).filter(|blocks| !blocks.is_empty()).map(|mut blocks| {
            if node.addresses.iter().any(|own| blocks.iter().any(|block| block.contains(*own))) {
                // A balancer's address may be one of the node's own as well. What the node sends to it then comes from it.
                blocks.extend(entrances.balanced_addresses.iter().map(|address| Block::around(*address, 32)));
            }
            Block::without_overlaps(blocks.into_iter())
        });
        let fronts = ports.iter().flat_map(|port| &port.fronts).map(|(front, _)| *front);
        let balanced = fronts.filter(|front| entrances.balanced_addresses.contains(&front.address));
        Self {
            guarded: blocks.map(|blocks| balanced.map(|front| (front, blocks.clone())).collect()).unwrap_or_default(),
            cluster_addresses: entrances.inside_addresses,
            health: health
                .and_then(|port| Some((u16::try_from(port).ok().filter(|port| *port > 0)?, ready_here.len()))),
            ports,
            blocks: Vec::new(),
        }
    }
}

fn is_ours(service: &Service, spec: &ServiceSpec) -> bool {
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    !is_others(&service.metadata)
        && spec.type_.as_deref() != Some("ExternalName")
        && !address.is_empty()
        && address != HEADLESS
}

fn is_others(metadata: &ObjectMeta) -> bool {
    metadata.labels.as_ref().is_some_and(|labels| NOT_OURS.iter().any(|label| labels.contains_key(*label)))
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

/// An endpoint that is ready, or ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Known {
    endpoint: Endpoint,
    local: bool,
    /// Whether it is meant for this node, and for the node's zone; none if it does not say for whom it is meant.
    for_node: Option<bool>,
    for_zone: Option<bool>,
}

/// The endpoints of a port, by what they are good for.
#[derive(Default)]
struct Endpoints {
    ready: BTreeSet<Known>,
    /// Taken where none is ready.
    ending: BTreeSet<Known>,
    serving: BTreeSet<Endpoint>,
}

impl Endpoints {
    fn of(port: &ServicePort, slices: &[Arc<EndpointSlice>], node: &Node) -> Self {
        let mut found = Self::default();
        for slice in slices.iter().filter(|slice| slice.address_type == "IPv4" && !is_others(&slice.metadata)) {
            let name = port.name.as_deref().unwrap_or_default();
            let named = slice.ports.iter().flatten().find(|port| port.name.as_deref().unwrap_or_default() == name);
            let Some(number) = named.and_then(|port| port.port).and_then(|port| u16::try_from(port).ok()) else {
                continue;
            };
            for endpoint in slice.endpoints.iter().flatten() {
                let Some(address) = endpoint.addresses.first().and_then(|text| ipv4(text)) else { continue };
                found.note(endpoint, Endpoint { address, port: number }, node);
            }
        }
        found
    }

    fn note(&mut self, told: &SliceEndpoint, endpoint: Endpoint, node: &Node) {
        let hints = told.hints.as_ref();
        let nodes = hints.and_then(|hints| hints.for_nodes.as_ref()).filter(|nodes| !nodes.is_empty());
        let zones = hints.and_then(|hints| hints.for_zones.as_ref()).filter(|zones| !zones.is_empty());
        let known = Known {
            endpoint,
            local: told.node_name.as_deref() == Some(&node.name),
            for_node: nodes.map(|nodes| nodes.iter().any(|hint| hint.name == node.name)),
            for_zone: zones.map(|zones| zones.iter().any(|hint| Some(&hint.name) == node.zone.as_ref())),
        };
        let (readiness, serving) = readiness(told);
        if serving {
            self.serving.insert(endpoint);
        }
        match readiness {
            Readiness::Ready => self.ready.insert(known),
            Readiness::Ending => self.ending.insert(known),
            Readiness::No => false,
        };
    }

    /// What is meant for the node, or else for its zone, provided that all say for whom they are meant; or else all.
    fn for_node(&self) -> Vec<Endpoint> {
        let hints: [fn(&Known) -> Option<bool>; 2] = [|known| known.for_node, |known| known.for_zone];
        let followed = hints.into_iter().find(|hint| {
            let told = self.ready.iter().map(*hint);
            told.clone().all(|meant| meant.is_some()) && told.clone().any(|meant| meant == Some(true))
        });
        self.best(|known| followed.is_none_or(|hint| hint(known) != Some(false)))
    }

    fn on_node(&self) -> Vec<Endpoint> {
        self.best(|known| known.local)
    }

    /// The ready ones; if there are none, those that still serve while they end.
    fn best(&self, wanted: impl Fn(&Known) -> bool) -> Vec<Endpoint> {
        let of = |group: &BTreeSet<Known>| -> BTreeSet<Endpoint> {
            group.iter().filter(|known| wanted(known)).map(|known| known.endpoint).collect()
        };
        let ready = of(&self.ready);
        let best = if ready.is_empty() { of(&self.ending) } else { ready };
        best.into_iter().collect()
    }
}

enum Readiness {
    Ready,
    Ending,
    No,
}

/// And whether it answers at all.
fn readiness(endpoint: &SliceEndpoint) -> (Readiness, bool) {
    let Some(conditions) = &endpoint.conditions else { return (Readiness::Ready, true) };
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    let readiness = match (ready, serving && conditions.terminating.unwrap_or(false)) {
        (true, _) => Readiness::Ready,
        (false, true) => Readiness::Ending,
        (false, false) => Readiness::No,
    };
    (readiness, serving || ready)
}

fn ipv4(text: &str) -> Option<Ipv4Addr> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    }
}
