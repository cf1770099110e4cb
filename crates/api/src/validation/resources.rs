//! Names and amounts of resources: cpu, memory, huge pages, extended resources.

use std::collections::{BTreeSet, HashMap, HashSet};

use object_model::names;
use serde_json::Value;

use super::{Field, quantity};

const CONTAINER: &[&str] = &["cpu", "memory", "ephemeral-storage"];
const POD_LEVEL: &[&str] = &["cpu", "memory"];
const INTEGERS: &[&str] = &[
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
const QUOTA: &[&str] = &[
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

pub fn is_huge_page(name: &str) -> bool {
    name.starts_with("hugepages-")
}

pub fn is_quota_huge_page(name: &str) -> bool {
    is_huge_page(name) || name.starts_with("requests.hugepages-")
}

/// Kubernetes' own, not a vendor's.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}

pub fn is_overcommit_allowed(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

pub fn is_integer(name: &str) -> bool {
    INTEGERS.contains(&name) || is_extended(name)
}

pub fn is_standard_quota(name: &str) -> bool {
    CONTAINER.contains(&name) || INTEGERS.contains(&name) || QUOTA.contains(&name) || is_quota_huge_page(name)
}

fn is_standard(name: &str) -> bool {
    is_standard_quota(name) || name == "storage"
}

pub fn is_pod_level(name: &str) -> bool {
    POD_LEVEL.contains(&name) || is_huge_page(name)
}

/// The name of a resource, told at the entry it is the key of.
pub fn resource_name(name: &str, entry: &Field) {
    let wrong = names::qualified_name(name);
    if wrong.is_empty() && !name.contains('/') && !is_standard(name) {
        entry.invalid_value(name, "must be a standard resource type or fully qualified");
    }
    wrong.into_iter().for_each(|message| entry.invalid_value(name, message));
}

pub fn container_resource_name(name: &str, entry: &Field) {
    resource_name(name, entry);
    if !name.contains('/') {
        if !CONTAINER.contains(&name) && !is_huge_page(name) {
            entry.invalid_value(name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        entry.invalid_value(name, "doesn't follow extended resource name standard");
    }
}

fn pod_resource_name(name: &str, entry: &Field) {
    let before = entry.problem_count();
    resource_name(name, entry);
    if entry.problem_count() == before && !is_pod_level(name) {
        entry.with(&Value::from(name)).not_supported(&["cpu", "hugepages-", "memory"]);
    }
}

pub fn quota_resource_name(name: &str, entry: &Field) {
    resource_name(name, entry);
    if !name.contains('/') && !is_standard_quota(name) {
        entry.invalid_value(name, "must be a standard resource for quota");
    }
}

/// An amount of the named resource: not negative, and whole where the resource is counted.
pub fn amount(name: &str, entry: &Field) {
    entry.non_negative_quantity();
    if is_integer(name) && entry.quantity().milli_value() % 1000 != 0 {
        entry.invalid("must be an integer");
    }
}

/// An amount of any resource, told in whole units.
pub fn basic_amount(entry: &Field) {
    let value = entry.quantity().value();
    if value < 0 {
        entry.invalid_value(value, "must be a valid resource quantity");
    }
}

/// Is an amount of huge pages a multiple of the page?
pub fn is_divisible_huge_page(name: &str, amount: &Value) -> bool {
    let page = name.strip_prefix("hugepages-").unwrap_or_default();
    let page = quantity(&Value::from(page));
    let size = page.value();
    size > 0 && page.milli_value() % 1000 == 0 && quantity(amount).value() % size == 0
}

/// Which rule the names in a set of requirements follow.
#[derive(Clone, Copy)]
pub enum Level {
    Container,
    Pod,
}

/// `requests`, `limits` and `claims` of a container or pod.
pub fn requirements(resources: &Field, level: Level, claim_names: &BTreeSet<&str>, allow_indivisible_huge_pages: bool) {
    limits_and_requests(
        resources,
        &resources.at("limits"),
        &resources.at("requests"),
        level,
        allow_indivisible_huge_pages,
    );
    claims(&resources.at("claims"), claim_names);
}

/// What a runtime class adds to a pod: told as if it were limits.
pub fn overhead(overhead: &Field, allow_indivisible_huge_pages: bool) {
    let (limits, none) = (overhead.told_at("limits"), overhead.with(&Value::Null));
    limits_and_requests(overhead, &limits, &none, Level::Container, allow_indivisible_huge_pages);
}

fn limits_and_requests(
    resources: &Field,
    limits: &Field,
    requests: &Field,
    level: Level,
    allow_indivisible_huge_pages: bool,
) {
    let (mut compute, mut huge_pages) = (false, false);
    let mut each = |name: &str, entry: &Field| {
        match level {
            Level::Container => container_resource_name(name, entry),
            Level::Pod => pod_resource_name(name, entry),
        }
        amount(name, entry);
        compute |= matches!(name, "cpu" | "memory");
        huge_pages |= is_huge_page(name);
    };
    let divisible = |name: &str, entry: &Field| {
        if is_huge_page(name) && !allow_indivisible_huge_pages && !is_divisible_huge_page(name, entry.value()) {
            entry.invalid(format!("{} is not positive integer multiple of {name}", entry.quantity()));
        }
    };
    for (name, entry) in limits.entries() {
        each(name, &entry);
        divisible(name, &entry);
    }
    for (name, entry) in requests.entries() {
        each(name, &entry);
        let (request, limit) = (entry.quantity(), limits.key(name));
        let overcommit = is_overcommit_allowed(name);
        if limit.is_set() {
            let limit = limit.quantity();
            if request != limit && !overcommit {
                requests.invalid_value(request.to_string(), format!("must be equal to {name} limit of {limit}"));
            } else if request > limit {
                requests.invalid_value(
                    request.to_string(),
                    format!("must be less than or equal to {name} limit of {limit}"),
                );
            }
        } else if !overcommit {
            limits.missing("Limit must be set for non overcommitable resources");
        }
        divisible(name, &entry);
    }
    if huge_pages && !compute {
        resources.forbidden("HugePages require cpu or memory");
    }
}

/// The resource claims a container uses must be the pod's, each once.
fn claims(claims: &Field, known: &BTreeSet<&str>) {
    let mut seen: HashSet<String> = HashSet::new();
    // How many requests of a claim there are.
    let mut requests: HashMap<String, usize> = HashMap::new();
    for claim in claims.each() {
        if claim.is_full() {
            return;
        }
        let (name, request) = (claim.at("name").text(), claim.at("request"));
        if name.is_empty() {
            claim.missing("");
            continue;
        }
        if seen.contains(name) {
            claim.duplicate_value(name);
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                request.dns_label();
                key = format!("{name}/{}", request.text());
            }
            if seen.insert(key.clone()) {
                let before = if request.is_empty() { requests.get(name).copied() } else { None };
                (0..before.unwrap_or_default()).for_each(|_| claim.duplicate_value(name));
                if let Some((of, _)) = key.split_once('/') {
                    *requests.entry(of.to_owned()).or_default() += 1;
                }
            } else {
                claim.duplicate_value(key);
            }
        }
        if !known.contains(name) {
            let names: Vec<&str> = known.iter().copied().collect();
            let which = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", names.join(", ")) };
            claim.tell(
                object_model::field::ErrorKind::NotFound,
                Some(Value::from(name)),
                format!("must be one of the names in pod.spec.resourceClaims{which}"),
            );
        }
    }
}
