//! The addresses and ports of Services.
//!
//! A cluster IP is taken by an IPAddress object, a node port by a guard key ([`PORTS`]); both are written and removed in
//! the transaction of their Service, which demands that they were absent. So two Services never share one and nothing
//! leaks, on however many servers. What is free is read from the watch cache each time: nothing is remembered that could
//! become stale, and whoever loses a race chooses again.
//!
//! As in Kubernetes, what is chosen comes from the upper part of a range while there is any, which leaves the lower part
//! to those who name their address or port; and a node port belongs to one Service with all protocols.

mod addresses;
mod ports;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use addresses::Block;
pub use addresses::is_ready;
use api::{
    kinds::core::service::{addresses::before_allocation, is_headless, needs_health_check},
    validation::addresses::parse_ip,
};
use object_model::{
    field::{Errors, Path},
    identity::GroupKind,
    meta::Meta,
    status::{Reason, Status},
    value::Fields,
};
use ports::{Ports, Wrong};
use serde_json::{Value, json};
use storage::{Compare, Expected, Lifetime, Operation};

use super::companions::{Companions, Keeper};
use crate::{
    catalogue::{Target, store_prefix},
    clock::Clock,
    watch_cache::{ResourceCache, WatchCache, encode_stored},
};

/// Where node ports are taken: `/allocations/nodeports/30080` holds the `namespace/name` of its Service. These are no
/// objects and so not below the root of the registry.
const PORTS: &str = "/allocations/nodeports/";
const FULL: &str = "range is full";

pub struct Services {
    services: Arc<ResourceCache>,
    addresses: Arc<ResourceCache>,
    blocks: Arc<ResourceCache>,
    clock: Arc<dyn Clock>,
}

/// What a Service has to itself.
#[derive(Default)]
struct Holding {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<i64>,
}

impl Services {
    pub fn new(cache: &WatchCache, clock: Arc<dyn Clock>) -> Self {
        let resource = |group: &str, plural: &str| cache.resource(&store_prefix(group, plural));
        Self {
            services: resource("", "services"),
            addresses: resource("networking.k8s.io", "ipaddresses"),
            blocks: resource("networking.k8s.io", "servicecidrs"),
            clock,
        }
    }

    /// The resource whose companions are kept here.
    pub fn prefix(&self) -> &str {
        self.services.prefix()
    }

    /// Completes a Service, new if `old` is null, with what it has to have.
    fn allocate(&self, service: &mut Value, old: &Value, dry_run: bool) -> Result<Companions, Status> {
        let blocks = addresses::blocks(&self.blocks);
        let families = addresses::families(&self.blocks);
        before_allocation(service, old, &families).map_err(|errors| invalid(service, &errors))?;
        let mut claims = Holding::default();
        if service["spec"].is_object() {
            self.claim_addresses(service, old, &blocks, dry_run, &mut claims)?;
            self.claim_ports(service, old, dry_run, &mut claims)?;
        }
        let (before, now) = (Holding::of(old), Holding::of(service));
        let mut companions = self.take(service, &claims);
        companions.operations.extend(self.release(&Holding {
            addresses: before.addresses.difference(&now.addresses).copied().collect(),
            ports: before.ports.difference(&now.ports).copied().collect(),
        }));
        Ok(companions)
    }

    /// One address for every family that has none yet. Those there were before are kept; whether they may change is for
    /// validation to say.
    fn claim_addresses(
        &self,
        service: &mut Value,
        old: &Value,
        blocks: &[Block],
        dry_run: bool,
        claims: &mut Holding,
    ) -> Result<(), Status> {
        let spec = &service["spec"];
        if spec["type"] == "ExternalName" || is_headless(spec) || is_headless(&old["spec"]) {
            return Ok(());
        }
        let families = texts(&spec["ipFamilies"]);
        let mut ips = texts(&spec["clusterIPs"]);
        let kept = if old["spec"]["type"] == "ExternalName" { 0 } else { texts(&old["spec"]["clusterIPs"]).len() };
        for (i, family) in families.iter().enumerate().skip(kept) {
            if ips.len() <= i {
                ips.push(String::new());
            }
            let of_family = || blocks.iter().filter(|block| block.family() == family);
            let address = if ips[i].is_empty() {
                let is_free = |address: &IpAddr| self.addresses.get(&address.to_string()).is_none();
                of_family().find_map(|block| block.free(is_free)).ok_or_else(|| {
                    let name = Meta::of(service).name();
                    Status::internal(format!("failed to allocate a serviceIP for Service {name:?}: {FULL}"))
                })?
            } else {
                self.named_address(&ips[i], of_family(), dry_run).map_err(|why| {
                    let (root, mut errors) = (Path::root(), Errors::new());
                    let why = format!("failed to allocate IP {}: {why}", ips[i]);
                    errors.invalid(&root.child("spec").child("clusterIPs"), json!(ips), why);
                    invalid(service, &errors)
                })?
            };
            if ips[i].is_empty() {
                ips[i] = address.to_string();
            }
            claims.addresses.insert(address);
        }
        if kept < families.len() {
            service["spec"]["clusterIP"] = json!(ips.first());
            service["spec"]["clusterIPs"] = json!(ips);
        }
        Ok(())
    }

    /// An address that the client wants. A dry run looks at the range only.
    fn named_address<'a>(
        &self,
        ip: &str,
        mut blocks: impl Iterator<Item = &'a Block> + Clone,
        dry_run: bool,
    ) -> Result<IpAddr, String> {
        let address = parse_ip(ip).ok_or_else(|| format!("failed to parse service IP {ip:?}"))?;
        let in_range = blocks.clone().any(|block| block.contains(address));
        match blocks.next() {
            Some(block) if dry_run && !in_range => {
                Err(format!("the provided IP ({address}) is not in the valid range. The range of valid IPs is {block}"))
            }
            _ if !in_range => Err("the provided network does not match the current range".to_owned()),
            _ if !dry_run && self.addresses.get(&address.to_string()).is_some() => {
                Err("provided IP is already allocated".to_owned())
            }
            _ => Ok(address),
        }
    }

    fn claim_ports(&self, service: &mut Value, old: &Value, dry_run: bool, claims: &mut Holding) -> Result<(), Status> {
        let spec = &service["spec"];
        let checks_health = needs_health_check(spec) && !needs_health_check(&old["spec"]);
        if !has_node_ports(spec) {
            return Ok(());
        }
        let mut taken = Ports::new(self.used_ports(), dry_run);
        let may_choose = spec["type"] == "NodePort" || spec["allocateLoadBalancerNodePorts"] != false;
        let mut list = spec["ports"].as_array().cloned().unwrap_or_default();
        let claimed = match old.is_null() {
            true => taken.for_new(&mut list, may_choose),
            false => taken.for_changed(&mut list, &ports::numbers(&old["spec"]), may_choose),
        };
        claimed.map_err(|wrong| refused(service, wrong))?;
        if !list.is_empty() {
            service["spec"]["ports"] = list.into();
        }
        if checks_health {
            let port = taken.for_health(service["spec"].int("healthCheckNodePort").unwrap_or_default());
            service["spec"]["healthCheckNodePort"] = port.map_err(|wrong| refused(service, wrong))?.into();
        }
        claims.ports = taken.claimed;
        Ok(())
    }

    /// Every port that a Service has. Only those that can have any are looked into.
    fn used_ports(&self) -> BTreeSet<i64> {
        let snapshot = self.services.snapshot();
        let position = self.services.selectable("spec.type");
        let kind = |fields: &[Box<str>]| position.and_then(|at| fields.get(at)).map_or("", |kind| &**kind).to_owned();
        let with_ports =
            snapshot.objects.values().filter(|e| matches!(kind(&e.fields).as_str(), "NodePort" | "LoadBalancer"));
        with_ports.flat_map(|entry| Holding::of(&entry.object("Service")).ports).collect()
    }

    /// Takes what is claimed, if nobody else has.
    fn take(&self, service: &Value, claims: &Holding) -> Companions {
        let meta = Meta::of(service);
        let owner = format!("{}/{}", meta.namespace(), meta.name());
        let addresses = claims.addresses.iter().map(|address| {
            let object = encode_stored(&addresses::object(*address, &meta, self.clock.seconds()));
            (self.address_key(address), object)
        });
        let ports = claims.ports.iter().map(|port| (port_key(*port), owner.clone().into()));
        let mut companions = Companions::default();
        for (key, value) in addresses.chain(ports) {
            companions.compares.push(Compare { key: key.clone(), expected: Expected::Absent });
            companions.operations.push(Operation::Put { key, value, lifetime: Lifetime::Endless });
        }
        companions
    }

    fn release(&self, holding: &Holding) -> Vec<Operation> {
        let addresses = holding.addresses.iter().map(|address| self.address_key(address));
        let ports = holding.ports.iter().map(|port| port_key(*port));
        addresses.chain(ports).map(|key| Operation::Delete { key }).collect()
    }

    fn address_key(&self, address: &IpAddr) -> String {
        format!("{}{address}", self.addresses.prefix())
    }
}

impl Keeper for Services {
    fn create(&self, _: &Target<'_>, object: &mut Value, dry_run: bool) -> Result<Companions, Status> {
        self.allocate(object, &Value::Null, dry_run)
    }

    fn update(&self, _: &Target<'_>, object: &mut Value, old: &Value, dry_run: bool) -> Result<Companions, Status> {
        self.allocate(object, old, dry_run)
    }

    fn delete(&self, _: &Target<'_>, old: &Value) -> Companions {
        Companions { operations: self.release(&Holding::of(old)), ..Companions::default() }
    }
}

impl Holding {
    /// What a Service of its type has; what else its fields say is on its way out.
    fn of(service: &Value) -> Self {
        let spec = &service["spec"];
        let mut holding = Self::default();
        if spec["type"] != "ExternalName" && !is_headless(spec) {
            holding.addresses.extend(texts(&spec["clusterIPs"]).iter().filter_map(|ip| parse_ip(ip)));
        }
        if has_node_ports(spec) {
            holding.ports.extend(ports::numbers(spec));
        }
        if needs_health_check(spec) {
            holding.ports.extend(spec.int("healthCheckNodePort").filter(|port| *port != 0));
        }
        holding
    }
}

fn has_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

fn port_key(port: i64) -> String {
    format!("{PORTS}{port}")
}

fn refused(service: &Value, wrong: Wrong) -> Status {
    match wrong {
        Wrong::Port { index, port, why } => {
            let (root, mut errors) = (Path::root(), Errors::new());
            errors.invalid(&root.child("spec").child("ports").index(index).child("nodePort"), port, why);
            invalid(service, &errors)
        }
        Wrong::Full(why) => Status::internal(why),
        // Kubernetes gives no reason for these.
        Wrong::Other(why) => Status::failure(500, Reason::UNKNOWN, why, None),
    }
}

fn invalid(service: &Value, errors: &Errors) -> Status {
    Status::invalid(&GroupKind::new("", "Service"), Meta::of(service).name(), errors)
}

/// The first free number of a range, from a random one on: of its upper part while there is any, then of the lower
/// `reserved` ones.
fn choose(low: u128, high: u128, reserved: u128, is_free: impl Fn(u128) -> bool) -> Option<u128> {
    let within = |low: u128, high: u128| {
        let size = (high + 1).checked_sub(low).filter(|size| *size > 0)?;
        let start = uuid::Uuid::new_v4().as_u128() % size;
        (0..size).map(|step| low + (start + step) % size).find(|number| is_free(*number))
    };
    let middle = low + reserved;
    within(middle, high).or_else(|| within(low, high.min(middle.checked_sub(1)?)))
}

#[cfg(test)]
mod tests;
