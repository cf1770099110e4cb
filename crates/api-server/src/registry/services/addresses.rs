//! Where cluster IPs come from: the blocks of the ServiceCIDR objects.

use std::{fmt, net::IpAddr};

use api::validation::addresses::{Cidr, parse_cidr};
use object_model::{meta::Meta, time::Time};
use serde_json::{Value, json};

use super::choose;
use crate::watch_cache::ResourceCache;

/// The block that the cluster began with. Its families are those of the cluster, the default one first.
const DEFAULT_BLOCK: &str = "kubernetes";
/// Of a block this part is left to those who name their address, within these limits.
const RESERVED_PART: u128 = 16;
const RESERVED: std::ops::RangeInclusive<u128> = 16..=256;

/// The addresses of one block that Services can have: all but that of the network and, of IPv4, the broadcast.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    cidr: Cidr,
    first: u128,
    last: u128,
    reserved: u128,
}

impl Block {
    pub fn parse(text: &str) -> Option<Self> {
        let cidr = parse_cidr(text)?;
        let (network, bits) = match cidr.network {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32),
            IpAddr::V6(v6) => (u128::from(v6), 128),
        };
        // A block that leaves no address free, or more than can be counted, is of no use.
        let size = 1u128.checked_shl(bits - u32::from(cidr.prefix))?;
        let broadcast = network.checked_add(size - 1)?;
        let last = if bits == 32 { broadcast.checked_sub(1)? } else { broadcast };
        let reserved = match size {
            size if size <= *RESERVED.start() => 0,
            size => (size / RESERVED_PART).clamp(*RESERVED.start(), *RESERVED.end()),
        };
        Some(Self { cidr, first: network + 1, last, reserved })
    }

    pub fn family(&self) -> &'static str {
        if self.cidr.network.is_ipv4() { "IPv4" } else { "IPv6" }
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => u128::from(v6),
        };
        address.is_ipv4() == self.cidr.network.is_ipv4() && (self.first..=self.last).contains(&number)
    }

    /// Any free address.
    pub fn free(&self, is_free: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
        let number = choose(self.first, self.last, self.reserved, |number| is_free(&self.address(number)))?;
        Some(self.address(number))
    }

    fn address(&self, number: u128) -> IpAddr {
        match self.cidr.network {
            IpAddr::V4(_) => IpAddr::V4((number as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(number.into()),
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cidr.fmt(f)
    }
}

/// The blocks that addresses may be taken from: those that are ready and not being deleted.
pub fn blocks(objects: &ResourceCache) -> Vec<Block> {
    let snapshot = objects.snapshot();
    let all = snapshot.objects.values().map(|entry| entry.object("ServiceCIDR"));
    all.filter(|object| is_ready(object) && !Meta::of(object).is_deleting())
        .flat_map(|object| cidrs(&object).filter_map(Block::parse).collect::<Vec<_>>())
        .collect()
}

pub fn families(objects: &ResourceCache) -> Vec<&'static str> {
    let default = objects.get(DEFAULT_BLOCK).map(|entry| entry.object("ServiceCIDR")).unwrap_or_default();
    let families: Vec<_> = cidrs(&default).filter_map(Block::parse).map(|block| block.family()).collect();
    if families.is_empty() { vec!["IPv4"] } else { families }
}

pub fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn cidrs(object: &Value) -> impl Iterator<Item = &str> {
    object["spec"]["cidrs"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// The object that says which Service has an address.
pub fn object(address: IpAddr, service: &Meta<'_>, now: Time) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": address.to_string(),
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now.to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": if address.is_ipv4() { "IPv4" } else { "IPv6" },
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"resource": "services", "namespace": service.namespace(), "name": service.name()}},
    })
}
