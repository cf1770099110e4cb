//! What a name of the cluster means, as Kubernetes' DNS specification 1.1.0 has it.
//!
//! | name | answer |
//! |---|---|
//! | `<service>.<namespace>.svc.<domain>` | the Service's address; of a headless one, those of its ready endpoints |
//! | `<host>.<service>.<namespace>.svc.<domain>` | an endpoint by its hostname, or by its address with dashes |
//! | `_<port>._<protocol>.<service>.<namespace>.svc.<domain>` | SRV of a port |
//! | `<a-b-c-d>.<namespace>.pod.<domain>` | the address in the name |
//! | addresses under `in-addr.arpa` and `ip6.arpa` | PTR of Services and endpoints |

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use controller_runtime::Key;
use hickory_proto::rr::{
    Name, RData, Record, RecordType,
    rdata::{A, AAAA, CNAME, NS, PTR, SOA, SRV, TXT},
};
use k8s_openapi::api::{
    core::v1::Service,
    discovery::v1::{Endpoint, EndpointSlice},
};

use crate::slices::service_of;

#[cfg(test)]
mod tests;

/// How many seconds an answer may be kept, also that there is none.
const KEEP: u32 = 5;
const SPECIFICATION: &str = "1.1.0";

/// What names are made from.
pub(super) trait Cluster: Send + Sync + 'static {
    fn service(&self, key: &Key) -> Option<Arc<Service>>;
    fn slices(&self, service: &Key) -> Vec<Arc<EndpointSlice>>;
    fn has_services(&self, namespace: &str) -> bool;
    fn services_at(&self, address: IpAddr) -> Vec<Arc<Service>>;
    fn slices_at(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>>;
}

/// What there is under a name.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    Records {
        answers: Vec<Record>,
        /// The addresses of the names in the answers.
        beside: Vec<Record>,
    },
    /// The name stands for another one, which is not in the cluster.
    Elsewhere {
        alias: Box<Record>,
        target: Name,
    },
    /// The name exists, but has no such record.
    Nothing,
    NoSuchName,
    /// The name is not one of the cluster's.
    NotOurs,
}

pub(super) struct Zone<C> {
    cluster: C,
    domain: Name,
    /// The labels of the domain, from the left.
    labels: Vec<String>,
    own_address: IpAddr,
}

impl<C: Cluster> Zone<C> {
    /// `own_address` is where pods reach the name server.
    pub fn new(cluster: C, domain: &str, own_address: IpAddr) -> Result<Self, crate::Error> {
        let mut name = Name::from_ascii(domain.to_ascii_lowercase())
            .map_err(|error| crate::Error(format!("{domain:?} cannot be the domain of a cluster: {error}")))?;
        name.set_fqdn(true);
        let labels = labels_of(&name);
        Ok(Self { cluster, domain: name, labels, own_address })
    }

    pub fn look_up(&self, name: &Name, kind: RecordType) -> Found {
        let labels = labels_of(name);
        if let Some(address) = address_of_reverse(&labels) {
            return self.reverse(name, kind, address);
        }
        let Some(labels) = labels.strip_suffix(self.labels.as_slice()) else { return Found::NotOurs };
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        match labels.as_slice() {
            [] => match kind {
                RecordType::SOA => found(vec![self.authority()]),
                RecordType::NS => found(vec![record(name, RData::NS(NS(self.under("ns.dns"))))]),
                _ => Found::Nothing,
            },
            ["dns-version"] if kind == RecordType::TXT => {
                found(vec![record(name, RData::TXT(TXT::new(vec![SPECIFICATION.to_owned()])))])
            }
            ["dns-version" | "svc" | "pod"] => Found::Nothing,
            ["ns", "dns"] => addresses(name, kind, [self.own_address]),
            ["dns"] => Found::Nothing,
            [namespace, "svc" | "pod"] if self.cluster.has_services(namespace) => Found::Nothing,
            [address, _, "pod"] => match address_of_dashes(address) {
                Some(address) => addresses(name, kind, [address]),
                None => Found::NoSuchName,
            },
            [front @ .., service, namespace, "svc"] => self.service(name, kind, &Key::new(*namespace, *service), front),
            _ => Found::NoSuchName,
        }
    }

    /// The record that says how long it may be believed that there is nothing.
    pub fn authority(&self) -> Record {
        let (server, mailbox) = (self.under("ns.dns"), self.under("hostmaster"));
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let serial = u32::try_from(now % u64::from(u32::MAX)).unwrap_or(0);
        record(&self.domain, RData::SOA(SOA::new(server, mailbox, serial, 7200, 1800, 86400, KEEP)))
    }

    /// `front` are the labels before the Service's name.
    fn service(&self, name: &Name, kind: RecordType, key: &Key, front: &[&str]) -> Found {
        let Some(service) = self.cluster.service(key) else { return Found::NoSuchName };
        let spec = service.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            return match (front, spec.external_name.as_deref().map(Name::from_ascii)) {
                ([], Some(Ok(mut target))) => {
                    target.set_fqdn(true);
                    self.alias(name, kind, target)
                }
                _ => Found::NoSuchName,
            };
        }
        let own: Vec<IpAddr> = spec.cluster_ips.iter().flatten().filter_map(|text| text.parse().ok()).collect();
        let slices = self.cluster.slices(key);
        match front {
            [] if own.is_empty() => self.headless(name, kind, key, &slices),
            [] if kind == RecordType::SRV => self.ports(name, key, &service, &slices, |_, _| true),
            [] => addresses(name, kind, own),
            [port, protocol]
                if let (Some(port), Some(protocol)) = (after_underscore(port), after_underscore(protocol)) =>
            {
                let matches =
                    |name: &str, of: &str| name.eq_ignore_ascii_case(port) && of.eq_ignore_ascii_case(protocol);
                match self.ports(name, key, &service, &slices, matches) {
                    // The name exists, with another kind of record.
                    Found::Records { .. } if kind != RecordType::SRV => Found::Nothing,
                    other => other,
                }
            }
            [host] => {
                let named = ready(&slices).filter(|endpoint| host_of(endpoint).eq_ignore_ascii_case(host));
                let named: Vec<IpAddr> = named.filter_map(address_of).collect();
                if named.is_empty() { Found::NoSuchName } else { addresses(name, kind, named) }
            }
            _ => Found::NoSuchName,
        }
    }

    fn headless(&self, name: &Name, kind: RecordType, key: &Key, slices: &[Arc<EndpointSlice>]) -> Found {
        if kind == RecordType::SRV {
            return self.endpoint_ports(name, key, slices, |_, _| true);
        }
        let all: BTreeSet<IpAddr> = ready(slices).filter_map(address_of).collect();
        // A Service without a single endpoint is as good as none.
        if all.is_empty() { Found::NoSuchName } else { addresses(name, kind, all) }
    }

    /// SRV records of the ports of a Service, by name and protocol.
    fn ports(
        &self,
        name: &Name,
        key: &Key,
        service: &Service,
        slices: &[Arc<EndpointSlice>],
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Found {
        let spec = service.spec.as_ref();
        let own: Vec<IpAddr> = spec
            .and_then(|spec| spec.cluster_ips.as_ref())
            .into_iter()
            .flatten()
            .filter_map(|ip| ip.parse().ok())
            .collect();
        if own.is_empty() {
            return self.endpoint_ports(name, key, slices, wanted);
        }
        let target = self.under(&format!("{}.{}.svc", key.name, key.namespace));
        let ports =
            spec.and_then(|spec| spec.ports.as_ref()).into_iter().flatten().filter(|port| {
                wanted(port.name.as_deref().unwrap_or_default(), port.protocol.as_deref().unwrap_or("TCP"))
            });
        let ports: Vec<u16> = ports.filter_map(|port| u16::try_from(port.port).ok()).collect();
        let beside = own.into_iter().map(|address| address_record(&target, address)).collect();
        locations(name, ports.into_iter().map(|port| (port, target.clone())).collect(), beside)
    }

    fn endpoint_ports(
        &self,
        name: &Name,
        key: &Key,
        slices: &[Arc<EndpointSlice>],
        wanted: impl Fn(&str, &str) -> bool,
    ) -> Found {
        let (mut targets, mut beside) = (Vec::new(), Vec::new());
        for slice in slices {
            let ports = slice.ports.iter().flatten().filter(|port| {
                wanted(port.name.as_deref().unwrap_or_default(), port.protocol.as_deref().unwrap_or("TCP"))
            });
            let ports: Vec<u16> = ports.filter_map(|port| u16::try_from(port.port?).ok()).collect();
            for endpoint in ready(std::slice::from_ref(slice)).filter(|_| !ports.is_empty()) {
                let target = self.under(&format!("{}.{}.{}.svc", host_of(endpoint), key.name, key.namespace));
                beside.extend(address_of(endpoint).map(|address| address_record(&target, address)));
                targets.extend(ports.iter().map(|port| (*port, target.clone())));
            }
        }
        locations(name, targets, beside)
    }

    /// Another name. If it is one of the cluster's, what is there is told too.
    fn alias(&self, name: &Name, kind: RecordType, target: Name) -> Found {
        let alias = record(name, RData::CNAME(CNAME(target.clone())));
        if kind == RecordType::CNAME || target == *name {
            return found(vec![alias]);
        }
        match self.domain.zone_of(&target) {
            false => Found::Elsewhere { alias: Box::new(alias), target },
            // One step only: two Services may be aliases of each other.
            true => match self.target_in_cluster(&target, kind) {
                Some(more) => found([vec![alias], more].concat()),
                None => found(vec![alias]),
            },
        }
    }

    fn target_in_cluster(&self, target: &Name, kind: RecordType) -> Option<Vec<Record>> {
        let labels = labels_of(target);
        let labels: Vec<&str> = labels.strip_suffix(self.labels.as_slice())?.iter().map(String::as_str).collect();
        if let [service, namespace, "svc"] = labels.as_slice() {
            let service = self.cluster.service(&Key::new(*namespace, *service))?;
            if service.spec.as_ref()?.type_.as_deref() == Some("ExternalName") {
                return None;
            }
        }
        match self.look_up(target, kind) {
            Found::Records { answers, .. } => Some(answers),
            _ => None,
        }
    }

    fn reverse(&self, name: &Name, kind: RecordType, address: IpAddr) -> Found {
        let mut targets: Vec<Name> = Vec::new();
        for service in self.cluster.services_at(address) {
            let key = Key::of(&*service);
            targets.push(self.under(&format!("{}.{}.svc", key.name, key.namespace)));
        }
        if targets.is_empty() {
            for slice in self.cluster.slices_at(address) {
                let Some(key) = service_of(&slice) else { continue };
                let there =
                    ready(std::slice::from_ref(&slice)).filter(|endpoint| address_of(endpoint) == Some(address));
                targets.extend(
                    there.map(|endpoint| {
                        self.under(&format!("{}.{}.{}.svc", host_of(endpoint), key.name, key.namespace))
                    }),
                );
            }
        }
        match kind {
            _ if targets.is_empty() => Found::NotOurs,
            RecordType::PTR => found(targets.into_iter().map(|target| record(name, RData::PTR(PTR(target)))).collect()),
            _ => Found::Nothing,
        }
    }

    /// A name under the domain. Names of objects are made of letters, digits and dashes, so it is always one.
    fn under(&self, name: &str) -> Name {
        let name = Name::from_ascii(name).and_then(|name| name.append_domain(&self.domain));
        name.unwrap_or_else(|_| self.domain.clone())
    }
}

fn found(answers: Vec<Record>) -> Found {
    Found::Records { answers, beside: Vec::new() }
}

fn record(name: &Name, data: RData) -> Record {
    Record::from_rdata(name.clone(), KEEP, data)
}

fn address_record(name: &Name, address: IpAddr) -> Record {
    match address {
        IpAddr::V4(address) => record(name, RData::A(A(address))),
        IpAddr::V6(address) => record(name, RData::AAAA(AAAA(address))),
    }
}

/// The addresses of the family that is asked for.
fn addresses(name: &Name, kind: RecordType, all: impl IntoIterator<Item = IpAddr>) -> Found {
    let records = all.into_iter().map(|address| address_record(name, address));
    let asked: Vec<Record> = records.filter(|record| record.record_type() == kind).collect();
    if asked.is_empty() { Found::Nothing } else { found(asked) }
}

fn locations(name: &Name, targets: Vec<(u16, Name)>, beside: Vec<Record>) -> Found {
    if targets.is_empty() {
        return Found::NoSuchName;
    }
    let weight = u16::try_from((100 / targets.len()).max(1)).unwrap_or(1);
    let answers = targets.into_iter().map(|(port, target)| record(name, RData::SRV(SRV::new(0, weight, port, target))));
    Found::Records { answers: answers.collect(), beside }
}

fn ready(slices: &[Arc<EndpointSlice>]) -> impl Iterator<Item = &Endpoint> {
    let all = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    all.filter(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true))
}

fn address_of(endpoint: &Endpoint) -> Option<IpAddr> {
    endpoint.addresses.first()?.parse().ok()
}

/// By what an endpoint goes under its Service's name.
fn host_of(endpoint: &Endpoint) -> String {
    match endpoint.hostname.as_deref() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => endpoint.addresses.first().map(|address| address.replace(['.', ':'], "-")).unwrap_or_default(),
    }
}

fn after_underscore(label: &str) -> Option<&str> {
    label.strip_prefix('_')
}

/// `10-1-2-3`, or an IPv6 address with dashes for colons.
fn address_of_dashes(label: &str) -> Option<IpAddr> {
    let v4 = || label.replace('-', ".").parse().ok().map(IpAddr::V4);
    let v6 = || label.replace('-', ":").parse().ok().map(IpAddr::V6);
    v4().or_else(v6)
}

/// The address that a name under `in-addr.arpa` or `ip6.arpa` is about.
fn address_of_reverse(labels: &[String]) -> Option<IpAddr> {
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    match labels.as_slice() {
        [d, c, b, a, "in-addr", "arpa"] => format!("{a}.{b}.{c}.{d}").parse().ok().map(IpAddr::V4),
        [digits @ .., "ip6", "arpa"] if digits.len() == 32 => {
            let text: String = digits.iter().rev().copied().collect();
            u128::from_str_radix(&text, 16).ok().map(|bits| IpAddr::V6(Ipv6Addr::from(bits)))
        }
        _ => None,
    }
}

/// In lower case, from the left.
fn labels_of(name: &Name) -> Vec<String> {
    name.iter().map(|label| String::from_utf8_lossy(label).to_ascii_lowercase()).collect()
}
