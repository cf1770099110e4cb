//! What quotas count of which objects.

use std::{collections::BTreeSet, sync::Arc};

use object_model::{
    quantity::{Format, Quantity, Scale},
    value::Fields,
};
use serde_json::Value;

use super::{devices::Devices, scopes};
use crate::{
    admission::{
        Request,
        persistent_volume_claim_resize::class_of,
        pod_resources::{Amounts, Counting, Of, amounts, is_extended, is_native, of_pod},
    },
    clock::Clock,
    watch_cache::WatchCache,
};

const ONE: Quantity = Quantity::new(1, Format::DecimalSi);
const POD_NAMES: &[&str] = &[
    "count/pods",
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
];
/// A quota of these demands that every container says how much of them it wants. Kubernetes calls it a mistake.
const DEMANDED: &[&str] = &["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const SERVICE_NAMES: &[&str] = &["count/services", "services", "services.nodeports", "services.loadbalancers"];
const CLAIM_NAMES: &[&str] = &["persistentvolumeclaims", "requests.storage"];
const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS: &str = "deviceclass.resource.kubernetes.io/";
/// What a pod has while it is resized counts as well as what it is to have.
const COUNTING: Counting = Counting { status: true, overhead: true, huge_pages: true };

/// Resources that are counted alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pods,
    Services,
    VolumeClaims,
    ResourceClaims,
    /// Anything else counts one each.
    Others {
        group: Box<str>,
        resource: Box<str>,
    },
}

impl Kind {
    /// `None` for what quotas have nothing to do with.
    pub fn of(group: &str, resource: &str) -> Option<Self> {
        Some(match (group, resource) {
            ("", "pods") => Kind::Pods,
            ("", "services") => Kind::Services,
            ("", "persistentvolumeclaims") => Kind::VolumeClaims,
            ("resource.k8s.io", "resourceclaims") => Kind::ResourceClaims,
            ("", "bindings" | "componentstatuses" | "events") | ("events.k8s.io", "events") => return None,
            ("authentication.k8s.io" | "authorization.k8s.io", review) if review.ends_with("reviews") => return None,
            _ => Kind::Others { group: group.into(), resource: resource.into() },
        })
    }

    /// The group and the plural name of the resource.
    pub fn resource(&self) -> (&str, &str) {
        match self {
            Kind::Pods => ("", "pods"),
            Kind::Services => ("", "services"),
            Kind::VolumeClaims => ("", "persistentvolumeclaims"),
            Kind::ResourceClaims => ("resource.k8s.io", "resourceclaims"),
            Kind::Others { group, resource } => (group, resource),
        }
    }

    /// Can such a request use up a quota? Some are told apart only by the object, see [`Kind::may_charge`].
    pub fn handles(&self, request: &Request<'_>) -> bool {
        let (group, resource) = self.resource();
        match self {
            Kind::Pods => request.writes("", "pods", "") || request.updates("", "pods", "resize"),
            Kind::VolumeClaims => request.writes(group, resource, "") || request.updates(group, resource, "status"),
            Kind::Services | Kind::ResourceClaims => request.writes(group, resource, ""),
            Kind::Others { .. } => request.creates(group, resource),
        }
    }

    /// Of the changes of an object, those that can change what it uses.
    pub fn may_charge(&self, subresource: &str, object: &Value, old: Option<&Value>) -> bool {
        match (self, subresource, old) {
            (Kind::Pods, "", Some(old)) => scopes::has_deadline(old) != scopes::has_deadline(object),
            (Kind::VolumeClaims, "status", Some(old)) => claim_changed(object, old),
            _ => true,
        }
    }

    /// Did an object change so that it may use less?
    pub fn may_free(&self, counter: &Counter, object: &Value, old: &Value) -> bool {
        match self {
            Kind::Others { .. } => false,
            Kind::VolumeClaims if claim_changed(object, old) => true,
            Kind::Pods if scopes::has_deadline(old) != scopes::has_deadline(object) => true,
            // A pod that is being deleted has a time from which on it does not count.
            Kind::Pods if scopes::counts_until(old) != scopes::counts_until(object) => true,
            _ => counter.usage(self, object) != counter.usage(self, old),
        }
    }

    /// The name of the quota on the number of objects.
    fn count_name(&self) -> String {
        match self.resource() {
            ("", resource) => format!("count/{resource}"),
            (group, resource) => format!("count/{resource}.{group}"),
        }
    }

    /// The name that some resources had before all could be counted.
    fn old_name(&self) -> Option<&str> {
        match self.resource() {
            ("", name @ ("configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets")) => Some(name),
            _ => None,
        }
    }

    /// Every kind that a quota of this name may be about.
    pub fn tracked_by(counter: &Counter, name: &str) -> BTreeSet<Kind> {
        let special = [Kind::Pods, Kind::Services, Kind::VolumeClaims, Kind::ResourceClaims];
        let mut kinds: BTreeSet<Kind> = special.into_iter().filter(|kind| counter.tracks(kind, name)).collect();
        let counted = name.strip_prefix("count/").map(|rest| rest.split_once('.').unwrap_or((rest, "")));
        let other = counted.or(Some((name, ""))).and_then(|(resource, group)| Kind::of(group, resource));
        kinds.extend(other.filter(|kind| counter.tracks(kind, name)));
        kinds
    }
}

/// May the claim use another amount, or be under another quota, than before?
fn claim_changed(claim: &Value, old: &Value) -> bool {
    let allocated = |claim: &Value| amounts(claim.at(&["status", "allocatedResources"])).get("storage").copied();
    allocated(claim) != allocated(old) || scopes::attribute_classes(claim) != scopes::attribute_classes(old)
}

/// Counts objects.
pub struct Counter {
    devices: Devices,
    clock: Arc<dyn Clock>,
}

impl Counter {
    pub fn new(cache: &Arc<WatchCache>, clock: &Arc<dyn Clock>) -> Self {
        Self { devices: Devices::new(cache), clock: clock.clone() }
    }

    pub fn now(&self) -> i64 {
        self.clock.seconds().unix_seconds()
    }

    /// Do objects of this kind use what a quota has under this name?
    pub fn tracks(&self, kind: &Kind, name: &str) -> bool {
        match kind {
            Kind::Pods => {
                POD_NAMES.contains(&name)
                    || ["hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix))
                    || is_extended_quota(name)
            }
            Kind::Services => SERVICE_NAMES.contains(&name),
            Kind::VolumeClaims => {
                let plain = name.split_once(OF_STORAGE_CLASS).map_or(name, |(_, rest)| rest);
                name == "count/persistentvolumeclaims" || CLAIM_NAMES.contains(&plain)
            }
            Kind::ResourceClaims => name == kind.count_name() || self.devices.tracks(name, is_extended_quota(name)),
            Kind::Others { .. } => name == kind.count_name() || Some(name) == kind.old_name(),
        }
    }

    /// What one object uses.
    pub fn usage(&self, kind: &Kind, object: &Value) -> Amounts {
        match kind {
            Kind::Pods => self.of_pod(object),
            Kind::Services => of_service(object),
            Kind::VolumeClaims => of_volume_claim(object),
            Kind::ResourceClaims => {
                let mut used = Amounts::from([(kind.count_name(), ONE)]);
                self.devices.count(object, &mut used, |pod| self.of_pod(pod));
                used
            }
            Kind::Others { .. } => {
                let names = std::iter::once(kind.count_name()).chain(kind.old_name().map(str::to_owned));
                names.map(|name| (name, ONE)).collect()
            }
        }
    }

    /// A pod that is over is an object like any other, and needs nothing.
    fn of_pod(&self, pod: &Value) -> Amounts {
        let mut used = Amounts::from([("count/pods".to_owned(), ONE)]);
        if !scopes::is_over(pod, self.now()) {
            used.extend(compute(&of_pod(pod, Of::Requests, COUNTING), &of_pod(pod, Of::Limits, COUNTING)));
        }
        used
    }

    /// What is missing for a quota of these names, in Kubernetes' words.
    pub fn missing(&self, kind: &Kind, object: &Value, names: &BTreeSet<&str>) -> Option<String> {
        let spec = object.field("spec").filter(|_| *kind == Kind::Pods)?;
        let whole = |of: Of| {
            of.stated(spec).keys().any(|k| matches!(k.as_str(), "cpu" | "memory") || k.starts_with("hugepages-"))
        };
        if whole(Of::Requests) || whole(Of::Limits) {
            return None;
        }
        let mut parts = Vec::new();
        for name in DEMANDED.iter().filter(|name| names.contains(*name)) {
            let lacks = |container: &&Value| {
                !compute(&Of::Requests.stated(container), &Of::Limits.stated(container)).contains_key(*name)
            };
            let containers = ["containers", "initContainers"].iter().flat_map(|list| spec.items(list));
            let lacking: BTreeSet<&str> = containers.filter(lacks).map(|c| c.text("name")).collect();
            if !lacking.is_empty() {
                let lacking: Vec<&str> = lacking.into_iter().collect();
                parts.push(format!("{name} for: {}", lacking.join(",")));
            }
        }
        parts.sort();
        (!parts.is_empty()).then(|| format!("must specify {}", parts.join("; ")))
    }
}

/// `requests.example.com/gpu`
fn is_extended_quota(name: &str) -> bool {
    let of_class = name.strip_prefix("requests.").is_some_and(|rest| rest.starts_with(DEVICE_CLASS));
    name.starts_with("requests.") && (!is_native(name) || of_class)
}

/// Under which names requests and limits are counted.
fn compute(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = Amounts::from([("pods".to_owned(), ONE)]);
    for (name, amount) in requests {
        let plain = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
        if plain {
            used.insert(name.clone(), *amount);
        }
        if plain || is_extended(name) || name.starts_with(DEVICE_CLASS) {
            used.insert(format!("requests.{name}"), *amount);
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            used.insert(format!("limits.{name}"), *amount);
        }
    }
    used
}

fn of_service(service: &Value) -> Amounts {
    let spec = service.field("spec").unwrap_or(&Value::Null);
    let ports = spec.items("ports");
    let balanced = spec.text("type") == "LoadBalancer";
    let node_ports = match spec.text("type") {
        "LoadBalancer" if spec.flag("allocateLoadBalancerNodePorts") == Some(false) => {
            ports.iter().filter(|port| port.int("nodePort").unwrap_or_default() != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    let count = |count: usize| Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
    let counts = [1, 1, node_ports, usize::from(balanced)];
    SERVICE_NAMES.iter().zip(counts).map(|(name, of)| ((*name).to_owned(), count(of))).collect()
}

fn of_volume_claim(claim: &Value) -> Amounts {
    let mut used = Amounts::from([("count/persistentvolumeclaims".to_owned(), ONE)]);
    let mut size = amounts(claim.at(&["spec", "resources", "requests"])).get("storage").copied();
    let allocated = amounts(claim.at(&["status", "allocatedResources"])).get("storage").copied();
    if size.is_some() && allocated > size {
        size = allocated;
    }
    let class = class_of(claim);
    let mut add = |name: &str, amount: Quantity| {
        used.insert(name.to_owned(), amount);
        if !class.is_empty() {
            used.insert(format!("{class}{OF_STORAGE_CLASS}{name}"), amount);
        }
    };
    add("persistentvolumeclaims", ONE);
    if let Some(mut size) = size {
        size.round_up(Scale::UNIT);
        add("requests.storage", size);
    }
    used
}
