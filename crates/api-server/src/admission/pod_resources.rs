//! What a whole pod asks for, and how much it may take at the most.

use std::collections::BTreeMap;

use object_model::{names, quantity::Quantity, value::Fields};
use serde_json::Value;

/// Amounts by the name of the resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// Which of the two lists of a container is summed up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Requests,
    Limits,
}

/// What counts beside the containers' own words.
#[derive(Clone, Copy)]
pub struct Counting {
    /// While a resize is under way, what the containers have as well as what they are to have.
    pub status: bool,
    /// What the pod costs beside its containers.
    pub overhead: bool,
    /// What the pod says for itself goes for huge pages as well as for processors and memory.
    pub huge_pages: bool,
}

impl Of {
    fn field(self) -> &'static str {
        match self {
            Of::Requests => "requests",
            Of::Limits => "limits",
        }
    }

    /// What a container or a pod says in its `resources`.
    pub fn stated(self, owner: &Value) -> Amounts {
        amounts(owner.at(&["resources", self.field()]))
    }
}

/// A list of resources as an object has it.
pub fn amounts(list: Option<&Value>) -> Amounts {
    let entries = list.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), Quantity::of(amount).ok()?))).collect()
}

/// The sum for a pod: all containers and sidecars together, or the largest init container with the sidecars before it,
/// whichever is more; instead of that what the pod says for itself; and its overhead.
pub fn of_pod(pod: &Value, of: Of, counting: Counting) -> Amounts {
    let spec = pod.field("spec").unwrap_or(&Value::Null);
    let (mut running, mut peak) = (Amounts::new(), Amounts::new());
    for container in spec.items("initContainers") {
        if container.text("restartPolicy") == "Always" {
            add(&mut running, of_container(pod, container, "initContainerStatuses", of, counting));
            raise(&mut peak, &running);
        } else {
            let mut together = running.clone();
            add(&mut together, of.stated(container));
            raise(&mut peak, &together);
        }
    }
    for container in spec.items("containers") {
        add(&mut running, of_container(pod, container, "containerStatuses", of, counting));
    }
    raise(&mut running, &peak);
    let whole = |name: &str| matches!(name, "cpu" | "memory") || counting.huge_pages && name.starts_with("hugepages-");
    running.extend(of.stated(spec).into_iter().filter(|(name, _)| whole(name)));
    if counting.overhead {
        let overhead = amounts(spec.field("overhead"));
        let limited = |name: &String| of == Of::Requests || running.get(name).is_some_and(|limit| !limit.is_zero());
        let counted: Amounts = overhead.into_iter().filter(|(name, _)| limited(name)).collect();
        add(&mut running, counted);
    }
    running
}

fn of_container(pod: &Value, container: &Value, statuses: &str, of: Of, counting: Counting) -> Amounts {
    let stated = of.stated(container);
    let status = pod.field("status").filter(|_| counting.status);
    let own = status.and_then(|s| s.items(statuses).iter().find(|s| s.text("name") == container.text("name")));
    let Some(own) = own.filter(|own| own.has("resources")) else { return stated };
    let mut has = of.stated(own);
    if of == Of::Requests {
        raise(&mut has, &amounts(own.field("allocatedResources")));
    }
    if !is_infeasible(pod) {
        raise(&mut has, &stated);
    }
    has
}

/// Did the node say that the pod can never have what it is to have?
fn is_infeasible(pod: &Value) -> bool {
    let conditions = pod.field("status").map(|s| s.items("conditions")).unwrap_or_default();
    let pending = conditions.iter().find(|c| c.text("type") == "PodResizePending");
    pending.is_some_and(|condition| condition.text("reason") == "Infeasible")
}

pub fn add(total: &mut Amounts, more: Amounts) {
    for (name, amount) in more {
        total.entry(name).and_modify(|a| a.add(&amount)).or_insert(amount);
    }
}

/// The greater of both for each resource.
pub fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let known = most.entry(name.clone()).or_insert(*amount);
        if amount > known {
            *known = *amount;
        }
    }
}

/// Is this a resource of Kubernetes' own, such as `cpu`?
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Is this a resource that somebody else gives out, such as `example.com/gpu`?
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && names::qualified_name(&format!("requests.{name}")).is_empty()
}
