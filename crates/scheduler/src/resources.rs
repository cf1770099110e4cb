//! Amounts of resources: what a node has, what its pods ask for.
//!
//! CPU counts in thousandths, everything else in whole units. How much a pod asks for is the sum of its containers, or
//! what its most demanding init container needs beside the sidecars started before it, whichever is more; what the pod
//! itself asks for stands in for the sum, and its overhead comes on top.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Container, ContainerStatus, Pod, PodSpec},
    apimachinery::pkg::api::resource::Quantity as Text,
};
use object_model::quantity::Quantity;

#[cfg(test)]
mod tests;

/// What a container counts for in scores when it does not say how much it needs.
const UNSAID_MILLI_CPU: i64 = 100;
const UNSAID_MEMORY: i64 = 200 << 20;

/// More than any node has. What is beyond it is as good as endless, and no sum of such amounts overflows.
const ENDLESS: i64 = 1 << 51;

/// Amounts by resource. Those that are missing are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    /// Extended resources and huge pages, sorted by name.
    others: Vec<(Box<str>, i64)>,
}

impl Resources {
    pub fn of(list: Option<&BTreeMap<String, Text>>) -> Self {
        let mut resources = Self::default();
        for (name, amount) in list.into_iter().flatten() {
            // What cannot be read was never admitted.
            let amount = Quantity::parse(&amount.0).unwrap_or(Quantity::ZERO);
            match name.as_str() {
                "pods" => {}
                "cpu" => resources.milli_cpu = amount.milli_value().min(ENDLESS),
                _ => *resources.at(name) = amount.value().min(ENDLESS),
            }
        }
        resources
    }

    /// What every other resource than cpu, memory and ephemeral storage has.
    pub fn others(&self) -> impl Iterator<Item = (&str, i64)> {
        self.others.iter().map(|(name, amount)| (&**name, *amount))
    }

    pub fn other(&self, name: &str) -> i64 {
        self.others.binary_search_by(|(known, _)| (**known).cmp(name)).map_or(0, |at| self.others[at].1)
    }

    pub fn add(&mut self, more: &Self) {
        self.combine(more, |amount, more| amount + more);
    }

    pub fn subtract(&mut self, less: &Self) {
        self.combine(less, |amount, less| amount - less);
    }

    /// The larger of both, resource by resource.
    pub fn raise_to(&mut self, least: &Self) {
        self.combine(least, i64::max);
    }

    /// Whether any resource of which `wanted` has some is larger here than in `than`.
    pub fn more_of(&self, wanted: &Self, than: &Self) -> bool {
        (wanted.milli_cpu > 0 && self.milli_cpu > than.milli_cpu)
            || (wanted.memory > 0 && self.memory > than.memory)
            || (wanted.ephemeral_storage > 0 && self.ephemeral_storage > than.ephemeral_storage)
            || wanted.others().any(|(name, amount)| amount > 0 && self.other(name) > than.other(name))
    }

    fn at(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.milli_cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.ephemeral_storage,
            _ => {
                let at = match self.others.binary_search_by(|(known, _)| (**known).cmp(name)) {
                    Ok(at) => at,
                    Err(at) => {
                        self.others.insert(at, (name.into(), 0));
                        at
                    }
                };
                &mut self.others[at].1
            }
        }
    }

    fn combine(&mut self, with: &Self, how: impl Fn(i64, i64) -> i64) {
        self.milli_cpu = how(self.milli_cpu, with.milli_cpu);
        self.memory = how(self.memory, with.memory);
        self.ephemeral_storage = how(self.ephemeral_storage, with.ephemeral_storage);
        for (name, amount) in with.others() {
            let here = self.at(name);
            *here = how(*here, amount);
        }
    }
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requests {
    pub said: Resources,
    /// The same for scores, in which a container that says nothing counts too. Only cpu and memory differ.
    pub assumed: Resources,
}

impl Requests {
    pub fn of(pod: &Pod) -> Self {
        let Some(spec) = &pod.spec else { return Self::default() };
        let of_pod = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let for_pod = |name: &str| of_pod.is_some_and(|requests| requests.contains_key(name));
        let unsaid =
            (if for_pod("cpu") { 0 } else { UNSAID_MILLI_CPU }, if for_pod("memory") { 0 } else { UNSAID_MEMORY });
        let total = |unsaid: Option<(i64, i64)>| {
            let mut total = of_containers(spec, pod, unsaid);
            for (name, amount) in of_pod.into_iter().flatten() {
                if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
                    let one = Resources::of(Some(&BTreeMap::from([(name.clone(), amount.clone())])));
                    *total.at(name) = 0;
                    total.add(&one);
                }
            }
            total.add(&Resources::of(spec.overhead.as_ref()));
            total
        };
        Self { said: total(None), assumed: total(Some(unsaid)) }
    }
}

fn of_containers(spec: &PodSpec, pod: &Pod, unsaid: Option<(i64, i64)>) -> Resources {
    let mut together = Resources::default();
    for container in &spec.containers {
        together.add(&of_container(container, pod, unsaid));
    }
    let (mut sidecars, mut most) = (Resources::default(), Resources::default());
    for container in spec.init_containers.iter().flatten() {
        let mut needs = of_container(container, pod, unsaid);
        if container.restart_policy.as_deref() == Some("Always") {
            together.add(&needs);
            sidecars.add(&needs);
            needs = sidecars.clone();
        } else {
            needs.add(&sidecars);
        }
        most.raise_to(&needs);
    }
    together.raise_to(&most);
    together
}

/// What a container asks for; on a node, no less than what it was given there (a resize may be on its way).
fn of_container(container: &Container, pod: &Pod, unsaid: Option<(i64, i64)>) -> Resources {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let mut needs = Resources::of(requests);
    if let Some(status) = given(pod, &container.name)
        && let Some(actual) = &status.resources
    {
        if resize_is_infeasible(pod) {
            needs = Resources::default();
        }
        needs.raise_to(&Resources::of(actual.requests.as_ref()));
        needs.raise_to(&Resources::of(status.allocated_resources.as_ref()));
    }
    if let Some((milli_cpu, memory)) = unsaid {
        let says = |name: &str| requests.is_some_and(|requests| requests.contains_key(name));
        if !says("cpu") {
            needs.milli_cpu += milli_cpu;
        }
        if !says("memory") {
            needs.memory += memory;
        }
    }
    needs
}

fn given<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let all = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    all.into_iter().find(|status| status.name == container)
}

fn resize_is_infeasible(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"))
}
