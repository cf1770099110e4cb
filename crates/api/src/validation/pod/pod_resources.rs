//! Resources of a pod as a whole, and what its containers add up to.

use std::collections::{BTreeMap, BTreeSet};

use object_model::quantity::Quantity;
use serde_json::Value;

use super::Options;
use crate::validation::resources::{self, Level, is_huge_page};
use crate::validation::{Field, quantity};

/// Amounts by resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// The amounts in a resource list (`requests` or `limits`).
pub fn resource_list(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object);
    entries.into_iter().flatten().map(|(name, amount)| (name.clone(), quantity(amount))).collect()
}

/// What the containers of a pod need together: all containers and sidecars at once, or one init container with the
/// sidecars started before it, whichever is more.
pub fn aggregate(spec: &Value, which: &str) -> Amounts {
    let amounts = |container: &Value| resource_list(container.pointer(&format!("/resources/{which}")));
    let list = |name: &str| spec.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut total = Amounts::new();
    list("containers").for_each(|container| add(&mut total, amounts(container)));
    let (mut sidecars, mut init) = (Amounts::new(), Amounts::new());
    for container in list("initContainers") {
        let mut own = amounts(container);
        if container.get("restartPolicy").and_then(Value::as_str) == Some("Always") {
            add(&mut total, own.clone());
            add(&mut sidecars, own);
            own = sidecars.clone();
        } else {
            add(&mut own, sidecars.clone());
        }
        raise(&mut init, own);
    }
    raise(&mut total, init);
    total
}

fn add(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        total.entry(name).and_modify(|have| have.add(&amount)).or_insert(amount);
    }
}

fn raise(total: &mut Amounts, other: Amounts) {
    for (name, amount) in other {
        if total.get(&name).is_none_or(|have| amount > *have) {
            total.insert(name, amount);
        }
    }
}

pub fn pod_resources(spec: &Field, claim_names: &BTreeSet<&str>, options: &Options) {
    let whole = spec.at("resources");
    if !whole.is_set() {
        return;
    }
    if spec.at("os").at("name").is("windows") {
        return whole.forbidden("may not be set for a windows pod");
    }
    if whole.at("claims").is_set() {
        whole.at("claims").forbidden("claims may not be set for Resources at pod-level");
    }
    resources::requirements(&whole, Level::Pod, claim_names, options.indivisible_huge_pages);
    for (which, told) in [("requests", "requests"), ("limits", "limits")] {
        let list = whole.at(which);
        for (name, sum) in aggregate(spec.value(), which) {
            if which == "limits" && !is_huge_page(&name) {
                continue;
            }
            let entry = list.key(&name);
            if entry.is_set() && sum > entry.quantity() {
                entry.invalid(format!("must be greater than or equal to aggregate container {told} of {sum}"));
            }
        }
    }
    let (limits, containers) = (whole.at("limits"), whole.at("containers"));
    for (i, container) in spec.at("containers").each().enumerate() {
        let told = containers.index(i);
        for (name, own) in container.at("resources").at("limits").entries() {
            let limit = limits.key(name);
            if limit.is_set() && own.quantity() > limit.quantity() {
                told.key(name).at("limits").invalid_value(
                    own.quantity().to_string(),
                    format!("must be less than or equal to pod limits of {}", limit.quantity()),
                );
            }
        }
    }
}
