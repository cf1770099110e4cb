//! What all Services together put into the table, and what a change of one changes there.
//!
//! An element that two Services want — the same external address and port — belongs to who wanted it first; the other gets
//! it when the first lets go.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use controller_runtime::Key as ServiceKey;

use super::{
    plan::{Endpoint, Front, Plan, Way},
    stale::MayStay,
    table::{self, Edit, Key, Map, Pick},
};
use crate::{UDP, block::Block, links::fingerprint, nft::Fields};

#[cfg(test)]
mod tests;

#[derive(Default)]
pub(super) struct Book {
    services: HashMap<ServiceKey, Known>,
    /// Who wants an element, and with which value. The first has it.
    wanted: HashMap<Key, Vec<(ServiceKey, Fields)>>,
    /// The numbers that lists have.
    numbers: HashSet<u32>,
}

#[derive(Default)]
struct Known {
    plan: Plan,
    lists: Lists,
    elements: Vec<Key>,
}

/// The numbers of a Service's lists: by the port's name, and whether it is the list of this node only.
type Lists = BTreeMap<(String, bool), u32>;

/// What several changes together amount to.
#[derive(Default)]
pub(super) struct Changes {
    /// The elements that were touched, with the value that the kernel still has.
    before: HashMap<Key, Option<Fields>>,
    picks: BTreeSet<Pick>,
    /// Fronts of UDP, with the endpoints at which clients may go on.
    pub udp: MayStay,
}

impl Book {
    /// Notes the plan of a Service; an empty one when there is none.
    pub fn note(&mut self, key: &ServiceKey, plan: Plan, changes: &mut Changes) {
        let known = self.services.remove(key).unwrap_or_default();
        if known.plan == plan {
            if plan != Plan::default() {
                self.services.insert(key.clone(), known);
            }
            return;
        }
        changes.note_udp(&known.plan, &plan);
        let (lists, elements) = self.elements(key, &plan, &known.lists, &mut changes.picks);
        for (_, number) in known.lists.iter().filter(|(name, _)| !lists.contains_key(*name)) {
            self.numbers.remove(number);
        }
        let still: HashSet<Key> = elements.iter().map(|(element, _)| *element).collect();
        for element in known.elements.into_iter().filter(|element| !still.contains(element)) {
            self.touch(element, changes);
            if let Some(wanting) = self.wanted.get_mut(&element) {
                wanting.retain(|(service, _)| service != key);
                if wanting.is_empty() {
                    self.wanted.remove(&element);
                }
            }
        }
        let mut own = Vec::with_capacity(elements.len());
        for (element, value) in elements {
            self.touch(element, changes);
            let wanting = self.wanted.entry(element).or_default();
            match wanting.iter_mut().find(|(service, _)| service == key) {
                Some((_, old)) => *old = value,
                None => wanting.push((key.clone(), value)),
            }
            own.push(element);
        }
        if plan != Plan::default() {
            self.services.insert(key.clone(), Known { plan, lists, elements: own });
        }
    }

    /// What has to be done so that the kernel has what the book has.
    pub fn edit(&self, changes: &mut Changes) -> Edit {
        let mut edit = Edit { picks: std::mem::take(&mut changes.picks), ..Edit::default() };
        for (element, before) in changes.before.drain() {
            let now = self.value(&element);
            if before == now {
                continue;
            }
            edit.removed.extend(before.map(|before| (element, before)));
            edit.added.extend(now.map(|now| (element, now)));
        }
        edit
    }

    /// Everything.
    pub fn all(&self) -> Edit {
        let mut picks = BTreeSet::new();
        for known in self.services.values() {
            picks.extend(known.plan.ports.iter().flat_map(picks_of));
        }
        let added = self.wanted.keys().filter_map(|element| Some((*element, self.value(element)?))).collect();
        Edit { removed: Vec::new(), added, picks }
    }

    fn value(&self, element: &Key) -> Option<Fields> {
        self.wanted.get(element).and_then(|wanting| wanting.first()).map(|(_, value)| *value)
    }

    fn touch(&self, element: Key, changes: &mut Changes) {
        changes.before.entry(element).or_insert_with(|| self.value(&element));
    }

    /// A number for a new list: the same after every start, so that the clients that the kernel remembers by it stay where they
    /// are. Two names may be after the same number; then one of them gets the next, and who is remembered by a number of
    /// another list is not led to an endpoint that is not in this one.
    fn number(&mut self, service: &ServiceKey, (port, local): &(String, bool)) -> u32 {
        let [.., a, b, c, d] = fingerprint(&format!("{service} {port} {local}")).to_be_bytes();
        let first = u32::from_be_bytes([a, b, c, d]).max(1);
        (first..=u32::MAX).chain(1..first).find(|number| self.numbers.insert(*number)).unwrap_or_default()
    }

    /// The elements of a plan. Lists keep their numbers.
    fn elements(
        &mut self,
        service: &ServiceKey,
        plan: &Plan,
        known: &Lists,
        picks: &mut BTreeSet<Pick>,
    ) -> (Lists, Vec<(Key, Fields)>) {
        let (mut lists, mut elements) = (BTreeMap::new(), Vec::new());
        let nothing = Fields::default();
        elements.extend(plan.cluster_addresses.iter().map(|a| ((Map::Addresses, nothing.address(*a)), nothing)));
        let range = |block: &Block| ((Map::Blocks, nothing.address(block.first())), nothing.address(block.last()));
        elements.extend(plan.blocks.iter().map(range));
        for (front, blocks) in &plan.guarded {
            let key = table::front(*front);
            elements.push(((Map::Guarded, key), nothing));
            elements.extend(
                blocks.iter().map(|block| ((Map::Allowed, key.address(block.first())), key.address(block.last()))),
            );
        }
        for port in &plan.ports {
            picks.extend(picks_of(port));
            let local = port.fronts.iter().any(|(_, way)| matches!(way, Way::InsideLocal | Way::OutsideLocal));
            let all = port.fronts.iter().any(|(_, way)| *way != Way::InsideLocal);
            let mut number = |local: bool, needed: bool, endpoints: &[Endpoint]| {
                if !needed || endpoints.is_empty() {
                    return 0;
                }
                let name = (port.name.clone(), local);
                let list = known.get(&name).copied().unwrap_or_else(|| self.number(service, &name));
                lists.insert(name, list);
                let in_list = nothing.number(list);
                for (index, one) in (0..).zip(endpoints) {
                    elements.push(((Map::Endpoints, in_list.number(index)), table::endpoint(*one)));
                    if port.affinity > 0 {
                        elements.push(((Map::Members, in_list.address(one.address).port(one.port)), nothing));
                    }
                }
                list
            };
            let (all_list, local_list) = (number(false, all, &port.all), number(true, local, &port.local));
            for (front, way) in &port.fronts {
                let (key, of) = (table::front(*front), |list: u32, endpoints: &[Endpoint]| {
                    table::way(*way, length(endpoints), port.affinity, list)
                });
                match way {
                    _ if port.all.is_empty() => elements.push(((Map::Refused, key), nothing)),
                    Way::Inside | Way::Outside => elements.push(((Map::Services, key), of(all_list, &port.all))),
                    Way::InsideLocal if port.local.is_empty() => elements.push(((Map::Dropped, key), nothing)),
                    Way::InsideLocal => elements.push(((Map::Services, key), of(local_list, &port.local))),
                    Way::OutsideLocal => {
                        if port.local.is_empty() {
                            elements.push(((Map::Dropped, key), nothing));
                        }
                        elements.push(((Map::Services, key), of(local_list, &port.local)));
                        elements.push(((Map::Inside, key), of(all_list, &port.all)));
                    }
                }
            }
        }
        (lists, elements)
    }
}

fn length(endpoints: &[Endpoint]) -> u32 {
    u32::try_from(endpoints.len()).unwrap_or(u32::MAX)
}

fn picks_of(port: &super::plan::Port) -> BTreeSet<Pick> {
    let pick = |inside, endpoints: &[Endpoint]| Pick { inside, length: length(endpoints), affinity: port.affinity };
    let of = |way: &Way| match way {
        Way::Inside | Way::Outside => vec![pick(false, &port.all)],
        Way::InsideLocal => vec![pick(false, &port.local)],
        Way::OutsideLocal => vec![pick(false, &port.local), pick(true, &port.all)],
    };
    port.fronts.iter().flat_map(|(_, way)| of(way)).filter(|pick| pick.length > 0).collect()
}

impl Changes {
    fn note_udp(&mut self, old: &Plan, new: &Plan) {
        let is_udp = |(front, _): &&(Front, Way)| front.protocol == UDP;
        for (front, _) in old.ports.iter().flat_map(|port| &port.fronts).filter(is_udp) {
            self.udp.insert(*front, HashSet::new());
        }
        for port in &new.ports {
            for (front, _) in port.fronts.iter().filter(is_udp) {
                self.udp.insert(*front, port.serving.iter().copied().collect());
            }
        }
    }
}
