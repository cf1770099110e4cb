//! What a pod asks for as a whole: requests and limits of its containers added up as they run together.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use object_model::quantity::Quantity;

use super::resources::{Amounts, limits, requests};

/// The processor in thousandths, everything else in whole numbers.
pub type Totals = BTreeMap<String, i64>;

fn amount(name: &str, quantity: &str) -> i64 {
    let parsed = Quantity::parse(quantity);
    parsed.map_or(0, |quantity| if name == "cpu" { quantity.milli_value() } else { quantity.value() })
}

/// One amount of a list as a number, in its unit.
pub fn number(amounts: &Amounts, name: &str) -> Option<i64> {
    amounts.get(name).map(|quantity| amount(name, &quantity.0))
}

fn numbers(amounts: Option<&Amounts>) -> Totals {
    amounts.into_iter().flatten().map(|(name, quantity)| (name.clone(), amount(name, &quantity.0))).collect()
}

pub fn add(to: &mut Totals, more: &Totals) {
    more.iter().for_each(|(name, value)| *to.entry(name.clone()).or_default() += value);
}

fn raise(to: &mut Totals, to_at_least: &Totals) {
    for (name, value) in to_at_least {
        let highest = to.entry(name.clone()).or_default();
        *highest = (*highest).max(*value);
    }
}

type Part = fn(&Option<ResourceRequirements>) -> Option<&Amounts>;

/// Containers that run together count together; init containers count alone, with the sidecars that run already. What the pod
/// says of itself comes before what its containers say.
fn total(pod: &Pod, part: Part) -> Totals {
    let Some(spec) = &pod.spec else { return Totals::new() };
    let (mut sidecars, mut peak) = (Totals::new(), Totals::new());
    for container in spec.init_containers.iter().flatten() {
        let mut together = sidecars.clone();
        add(&mut together, &numbers(part(&container.resources)));
        raise(&mut peak, &together);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = together;
        }
    }
    let mut all = sidecars;
    spec.containers.iter().for_each(|container| add(&mut all, &numbers(part(&container.resources))));
    raise(&mut all, &peak);
    all.extend(numbers(part(&spec.resources)));
    all
}

/// With what running the pod costs beside its containers.
pub fn requested(pod: &Pod) -> Totals {
    let mut all = total(pod, requests);
    add(&mut all, &overhead(pod));
    all
}

/// Only of what there is a limit at all; of the processor and memory only if every container has one, or the pod itself.
pub fn limited(pod: &Pod) -> Totals {
    let mut all = total(pod, limits);
    let Some(spec) = &pod.spec else { return all };
    for name in ["cpu", "memory"] {
        let has = |resources: &Option<ResourceRequirements>| {
            limits(resources).and_then(|limits| number(limits, name)).is_some_and(|limit| limit > 0)
        };
        let mut containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        if !has(&spec.resources) && !containers.all(|container: &Container| has(&container.resources)) {
            all.remove(name);
        }
    }
    let overhead = overhead(pod);
    all.iter_mut().for_each(|(name, limit)| *limit += overhead.get(name).copied().unwrap_or(0));
    all
}

fn overhead(pod: &Pod) -> Totals {
    numbers(pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).expect("a pod")
    }

    fn of(cpu: &str, memory: &str) -> Value {
        let amounts = json!({"cpu": cpu, "memory": memory});
        json!({"name": "c", "resources": {"requests": amounts, "limits": amounts}})
    }

    #[test]
    fn what_runs_together_counts_together() {
        let mut sidecar = of("100m", "10");
        sidecar["restartPolicy"] = json!("Always");
        let pod = pod(json!({
            "initContainers": [of("3", "1"), sidecar, of("1", "500")],
            "containers": [of("1", "100"), of("1", "100")],
            "overhead": {"memory": "7"},
        }));
        let expected = Totals::from([("cpu".to_owned(), 3000), ("memory".to_owned(), 517)]);
        assert_eq!((requested(&pod), limited(&pod)), (expected.clone(), expected));
    }

    #[test]
    fn a_limit_of_the_whole_needs_one_of_each_or_of_the_pod() {
        let free = json!({"name": "free", "resources": {"limits": {"memory": "5"}}});
        let some = pod(json!({"containers": [of("1", "100"), free.clone()]}));
        assert_eq!(limited(&some), Totals::from([("memory".to_owned(), 105)]));
        let whole = pod(json!({"containers": [of("1", "100"), free], "resources": {"limits": {"cpu": "2"}}}));
        assert_eq!(limited(&whole), Totals::from([("cpu".to_owned(), 2000), ("memory".to_owned(), 105)]));
    }
}
