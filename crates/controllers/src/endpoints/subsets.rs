//! The subsets of Endpoints, in one canonical form: addresses that have the same ports stand together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

/// As many addresses as Endpoints may have.
pub const MOST: usize = 1000;

/// One address with one of its ports, or with none.
pub struct Entry {
    pub address: EndpointAddress,
    pub port: Option<EndpointPort>,
    pub ready: bool,
}

type PortKey = (Option<String>, i32, Option<String>, Option<String>);
/// Two pods may share the address of their node.
type AddressKey = (String, Option<String>);
/// Addresses with whether they are ready.
type States = BTreeMap<AddressKey, bool>;

fn port_key(port: &EndpointPort) -> PortKey {
    (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())
}

fn address_key(address: &EndpointAddress) -> AddressKey {
    (address.ip.clone(), address.target_ref.as_ref().and_then(|target| target.uid.clone()))
}

/// Everything that subsets say, one by one.
pub fn unpack(subsets: &[EndpointSubset]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for subset in subsets {
        let ports = subset.ports.as_deref().filter(|ports| !ports.is_empty());
        let ports: Vec<Option<&EndpointPort>> = ports.map_or(vec![None], |ports| ports.iter().map(Some).collect());
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let addresses = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
        for (address, ready) in addresses {
            let entry = |port: &Option<&EndpointPort>| Entry { address: address.clone(), port: port.cloned(), ready };
            entries.extend(ports.iter().map(entry));
        }
    }
    entries
}

/// The canonical form. What is not ready in one place is not ready.
pub fn pack(entries: Vec<Entry>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, EndpointAddress> = BTreeMap::new();
    let mut by_port: BTreeMap<Option<PortKey>, (Option<EndpointPort>, States)> = BTreeMap::new();
    for Entry { address, port, ready } in entries {
        let key = address_key(&address);
        let known = by_port.entry(port.as_ref().map(port_key)).or_insert_with(|| (port, BTreeMap::new()));
        known.1.entry(key.clone()).and_modify(|known| *known &= ready).or_insert(ready);
        addresses.entry(key).or_insert(address);
    }
    let mut by_addresses: BTreeMap<States, Vec<EndpointPort>> = BTreeMap::new();
    for (port, with_it) in by_port.into_values() {
        by_addresses.entry(with_it).or_default().extend(port);
    }
    let subset = |(states, ports): (States, Vec<EndpointPort>)| {
        let of = |wanted: bool| {
            let keys = states.iter().filter(|(_, ready)| **ready == wanted);
            let found: Vec<_> = keys.filter_map(|(key, _)| addresses.get(key).cloned()).collect();
            Some(found).filter(|found| !found.is_empty())
        };
        EndpointSubset {
            addresses: of(true),
            not_ready_addresses: of(false),
            ports: Some(ports).filter(|ports| !ports.is_empty()),
        }
    };
    by_addresses.into_iter().map(subset).collect()
}

/// Leaves out what is too much, unready addresses first, from all subsets alike. Was there too much?
pub fn truncate(subsets: &mut [EndpointSubset]) -> bool {
    let count = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let not_ready: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + not_ready <= MOST {
        return false;
    }
    let of_ready = ready > MOST;
    let (total, room) = if of_ready { (ready, MOST) } else { (not_ready, MOST - ready) };
    let mut left = room;
    for subset in subsets {
        if of_ready {
            subset.not_ready_addresses = None;
        }
        let addresses = if of_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (count(addresses) * room).div_ceil(total).min(left);
        if let Some(addresses) = addresses {
            addresses.truncate(share);
            left -= addresses.len();
        }
        if addresses.as_ref().is_some_and(Vec::is_empty) {
            *addresses = None;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;
    use proptest::prelude::*;

    use super::*;

    fn entry(ip: u8, port: Option<i32>, ready: bool) -> Entry {
        let target = ObjectReference { uid: Some(format!("u{ip}")), ..ObjectReference::default() };
        let address = EndpointAddress { ip: format!("10.0.0.{ip}"), target_ref: Some(target), ..Default::default() };
        Entry { address, port: port.map(|port| EndpointPort { port, ..EndpointPort::default() }), ready }
    }

    fn shape(subsets: &[EndpointSubset]) -> Vec<(Vec<String>, Vec<String>, Vec<i32>)> {
        let ips = |addresses: &Option<Vec<EndpointAddress>>| {
            addresses.iter().flatten().map(|address| address.ip.clone()).collect::<Vec<_>>()
        };
        let ports = |subset: &EndpointSubset| subset.ports.iter().flatten().map(|port| port.port).collect();
        subsets.iter().map(|s| (ips(&s.addresses), ips(&s.not_ready_addresses), ports(s))).collect()
    }

    #[test]
    fn addresses_with_the_same_ports_stand_together() {
        let packed = pack(vec![
            entry(2, Some(80), true),
            entry(1, Some(80), true),
            entry(1, Some(443), true),
            entry(2, Some(443), true),
            entry(3, Some(80), false),
            entry(3, Some(443), false),
            entry(4, Some(80), true),
            entry(4, None, true),
        ]);
        let text = |ips: &[u8]| ips.iter().map(|ip| format!("10.0.0.{ip}")).collect::<Vec<_>>();
        let mut shape = shape(&packed);
        shape.sort_by_key(|(_, _, ports)| ports.clone());
        assert_eq!(
            shape,
            [
                (text(&[4]), text(&[]), vec![]),
                (text(&[1, 2, 4]), text(&[3]), vec![80]),
                (text(&[1, 2]), text(&[3]), vec![443]),
            ]
        );
    }

    #[test]
    fn unready_addresses_are_left_out_first() {
        let addresses = |count: usize, first: usize| {
            let address =
                |n: usize| EndpointAddress { ip: format!("10.0.{}.{}", n / 250, n % 250), ..Default::default() };
            Some((first..first + count).map(address).collect::<Vec<_>>())
        };
        let subset = |ready: usize, not_ready: usize| EndpointSubset {
            addresses: addresses(ready, 0),
            not_ready_addresses: addresses(not_ready, 3000),
            ports: None,
        };
        let sizes = |subsets: &[EndpointSubset]| -> Vec<(usize, usize)> {
            let count = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
            subsets.iter().map(|s| (count(&s.addresses), count(&s.not_ready_addresses))).collect()
        };
        let mut fits = [subset(900, 100)];
        assert!(!truncate(&mut fits));
        let mut unready = [subset(400, 600), subset(400, 200)];
        assert!(truncate(&mut unready));
        assert_eq!(sizes(&unready), [(400, 150), (400, 50)]);
        let mut ready = [subset(900, 10), subset(300, 0)];
        assert!(truncate(&mut ready));
        assert_eq!(sizes(&ready), [(750, 0), (250, 0)]);
    }

    proptest! {
        #[test]
        fn packing_again_changes_nothing(
            all in prop::collection::vec((0..5_u8, prop::option::of(1..4_i32), any::<bool>()), 0..20)
        ) {
            let packed = pack(all.into_iter().map(|(ip, port, ready)| entry(ip, port, ready)).collect());
            prop_assert_eq!(pack(unpack(&packed)), packed);
        }
    }
}
