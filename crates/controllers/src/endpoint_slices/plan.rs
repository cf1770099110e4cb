//! What has to be written so that slices have the endpoints they should: as little as possible.
//!
//! Invariants: every wanted endpoint is in exactly one slice afterwards, no slice has more than the most, and a slice that
//! holds nothing else than it should is not written.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use k8s_openapi::{
    api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::api::ObjectMeta;

pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// What all slices of one owner look like.
pub struct Template {
    pub namespace: String,
    /// The name of the owner, which names of slices begin with.
    pub name: String,
    pub owner: OwnerReference,
    pub labels: BTreeMap<String, String>,
    /// Only where annotations are kept equal to the owner's.
    pub annotations: Option<BTreeMap<String, String>>,
    pub most: usize,
    /// Whether there is always a slice, be it empty.
    pub never_none: bool,
}

/// The endpoints of one family that have the same ports.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub ports: Vec<EndpointPort>,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub create: Vec<EndpointSlice>,
    /// With their names and revisions.
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// Ports in an order of their own, to compare them.
pub type PortsKey = Vec<(Option<String>, Option<i32>, Option<String>, Option<String>)>;

pub fn ports_key(ports: &[EndpointPort]) -> PortsKey {
    let facts = |port: &EndpointPort| (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone());
    let mut key: PortsKey = ports.iter().map(facts).collect();
    key.sort();
    key
}

/// Endpoints with the same key are the same thing, in another state perhaps.
fn endpoint_key(endpoint: &Endpoint) -> (Vec<String>, Option<String>, Option<String>, Option<String>) {
    let mut addresses = endpoint.addresses.clone();
    addresses.sort();
    let target = endpoint.target_ref.as_ref();
    let (namespace, name) = (target.and_then(|t| t.namespace.clone()), target.and_then(|t| t.name.clone()));
    (addresses, endpoint.hostname.clone(), namespace, name)
}

fn same(a: &Endpoint, b: &Endpoint) -> bool {
    let uid = |endpoint: &Endpoint| endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    uid(a) == uid(b)
        && a.node_name == b.node_name
        && a.zone == b.zone
        && a.conditions == b.conditions
        && a.hints == b.hints
}

/// Compares the slices of one family with what should be.
pub fn plan(
    template: &Template,
    family: &str,
    existing: Vec<Arc<EndpointSlice>>,
    mut wanted: BTreeMap<PortsKey, Group>,
) -> Plan {
    let count = existing.len();
    let mut by_ports: BTreeMap<PortsKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    let mut plan = Plan::default();
    for slice in existing {
        let key = ports_key(slice.ports.as_deref().unwrap_or_default());
        if !template.owns(&slice) || !wanted.contains_key(&key) {
            plan.delete.push(slice);
        } else {
            by_ports.entry(key).or_default().push(slice);
        }
    }
    while let Some((key, group)) = wanted.pop_first() {
        plan.add(template, family, by_ports.remove(&key).unwrap_or_default(), group);
    }
    if template.never_none && plan.delete.len() == count && plan.create.is_empty() {
        plan.keep_one(template, family);
    }
    plan.recycle(template);
    plan
}

impl Plan {
    /// The slices of one group of endpoints.
    fn add(&mut self, template: &Template, family: &str, existing: Vec<Arc<EndpointSlice>>, group: Group) {
        let mut left: BTreeMap<_, Endpoint> =
            group.endpoints.into_iter().map(|endpoint| (endpoint_key(&endpoint), endpoint)).collect();
        let (mut changed, mut unchanged): (Vec<EndpointSlice>, Vec<Arc<EndpointSlice>>) = (Vec::new(), Vec::new());
        for slice in existing {
            let kept: Vec<Endpoint> =
                slice.endpoints.iter().flatten().filter_map(|had| left.remove(&endpoint_key(had))).collect();
            let had = slice.endpoints.as_deref().unwrap_or_default();
            let as_before = kept.len() == had.len() && kept.iter().zip(had).all(|(kept, had)| same(kept, had));
            if as_before && template.described(&slice.metadata) {
                unchanged.push(slice);
            } else if kept.is_empty() && !as_before {
                self.delete.push(slice);
            } else {
                changed.push(template.changed(&slice, kept));
            }
        }
        let mut left: VecDeque<Endpoint> = left.into_values().collect();
        // What is written anyway is filled first, the fullest before others.
        changed.sort_by_key(|slice| std::cmp::Reverse(length(slice)));
        changed.iter_mut().for_each(|slice| fill(slice, &mut left, template.most));
        while !left.is_empty() {
            let room = |slice: &EndpointSlice| template.most.checked_sub(length(slice) + left.len());
            let fits = unchanged.iter().enumerate().filter_map(|(at, slice)| Some((room(slice)?, at))).min();
            let fits = fits.filter(|_| left.len() < template.most);
            let mut slice = match fits {
                Some((_, at)) => (*unchanged.swap_remove(at)).clone(),
                None => template.new_slice(family, group.ports.clone()),
            };
            fill(&mut slice, &mut left, template.most);
            if slice.metadata.name.is_some() { changed.push(slice) } else { self.create.push(slice) }
        }
        self.update.append(&mut changed);
    }

    /// There must be a slice, so that everybody sees that nothing serves.
    fn keep_one(&mut self, template: &Template, family: &str) {
        let is_empty = |slice: &EndpointSlice| {
            slice.endpoints.iter().flatten().next().is_none() && slice.ports.iter().flatten().next().is_none()
        };
        let fits = |slice: &Arc<EndpointSlice>| {
            slice.address_type == family
                && is_empty(slice)
                && template.owns(slice)
                && template.described(&slice.metadata)
        };
        match &self.delete[..] {
            [one] if fits(one) => self.delete.clear(),
            _ => self.create.push(template.new_slice(family, Vec::new())),
        }
    }

    /// A slice that would go is changed into one that would be made.
    fn recycle(&mut self, template: &Template) {
        let (ours, others): (Vec<_>, Vec<_>) = self.delete.drain(..).partition(|slice| template.owns(slice));
        self.delete = others;
        for slice in ours {
            match self.create.pop() {
                None => self.delete.push(slice),
                Some(new) => {
                    let mut again = template.changed(&slice, new.endpoints.unwrap_or_default());
                    again.ports = new.ports;
                    self.update.push(again);
                }
            }
        }
    }
}

impl Template {
    fn owns(&self, slice: &EndpointSlice) -> bool {
        slice.metadata.owner_references.iter().flatten().any(|owner| owner.uid == self.owner.uid)
    }

    /// Whether labels and annotations are as they should be.
    fn described(&self, meta: &ObjectMeta) -> bool {
        let none = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&none);
        meta.labels.as_ref() == Some(&self.labels) && self.annotations.as_ref().is_none_or(|own| own == annotations)
    }

    fn describe(&self, meta: &mut ObjectMeta) {
        meta.labels = Some(self.labels.clone());
        if let Some(annotations) = &self.annotations {
            meta.annotations = Some(annotations.clone());
        }
    }

    fn changed(&self, slice: &EndpointSlice, endpoints: Vec<Endpoint>) -> EndpointSlice {
        let mut slice = EndpointSlice { endpoints: Some(endpoints), ..slice.clone() };
        self.describe(&mut slice.metadata);
        slice
    }

    fn new_slice(&self, family: &str, ports: Vec<EndpointPort>) -> EndpointSlice {
        let mut metadata = ObjectMeta {
            generate_name: Some(format!("{}-", self.name)),
            namespace: Some(self.namespace.clone()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        };
        self.describe(&mut metadata);
        EndpointSlice { metadata, address_type: family.to_owned(), endpoints: Some(Vec::new()), ports: Some(ports) }
    }
}

fn length(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

fn fill(slice: &mut EndpointSlice, left: &mut VecDeque<Endpoint>, most: usize) {
    let endpoints = slice.endpoints.get_or_insert_default();
    let room = most.saturating_sub(endpoints.len()).min(left.len());
    endpoints.extend(left.drain(..room));
}

#[cfg(test)]
mod tests;
