//! Whether a pod that was bound to this node can run on it: the scheduler may have known less, or have been left out.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use k8s_openapi::api::core::v1::{Container, Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration};
use tokio::sync::watch;

use super::containers::{Kind, init_containers, kind_of_init, main_containers, uid};
use crate::{
    configuration::{
        resources::Quality,
        sysctls,
        totals::{self, Totals},
    },
    eviction::{CRITICAL, Pressure},
    status::Reason,
};

/// A port of the node: its address, protocol and number.
type Port = (String, String, i32);

/// What a pod takes of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    requests: Totals,
    ports: Vec<Port>,
    quality: Quality,
}

/// A node that is short of something takes no more: of memory none that asked for none, of disk none at all. Pods that the cluster
/// cannot do without are taken.
pub fn under_pressure(pod: &Pod, pressure: Pressure) -> Result<(), Reason> {
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let taint = Taint {
        key: "node.kubernetes.io/memory-pressure".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    let bears_it = Quality::of(pod) != Quality::BestEffort || tolerations.iter().any(|one| tolerates(one, &taint));
    let conditions = match pressure {
        Pressure { memory: false, disk: false } => return Ok(()),
        _ if spec.and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL) => return Ok(()),
        Pressure { memory: true, disk: false } if bears_it => return Ok(()),
        Pressure { memory: true, disk: false } => "MemoryPressure",
        Pressure { memory: false, disk: true } => "DiskPressure",
        Pressure { memory: true, disk: true } => "MemoryPressure DiskPressure",
    };
    Err(Reason::new("Evicted", format!("The node had condition: [{conditions}]. ")))
}

/// What the node's pods have taken, by uid.
#[derive(Default)]
pub struct Claims {
    claims: Mutex<HashMap<String, Claim>>,
    changed: watch::Sender<()>,
}

impl Claims {
    /// Takes what the pod needs, or says why it cannot.
    pub fn admit(&self, pod: &Pod, node: Option<&Node>) -> Result<(), Reason> {
        if let Some(why) = sysctls::refusal(pod) {
            return Err(Reason::new("SysctlForbidden", why));
        }
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        claims.remove(uid(pod));
        let claim = claim_of(pod);
        if let Some(node) = node {
            fits(pod, &claim, node, claims.values()).map_err(|(reason, message)| Reason::new(reason, message))?;
        }
        claims.insert(uid(pod).to_owned(), claim);
        drop(claims);
        self.changed.send_replace(());
        Ok(())
    }

    /// Takes what the pod needs now instead of what it has; it keeps that if there is not enough. One that has nothing any more is
    /// about to end, and takes nothing.
    pub fn resize(&self, pod: &Pod, node: Option<&Node>) -> Result<(), Reason> {
        let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = claims.remove(uid(pod)) else { return Ok(()) };
        let claim = claim_of(pod);
        if let Some(node) = node {
            let refused = match fits(pod, &claim, node, std::iter::empty()) {
                Err((_, message)) => {
                    let message = message.replace("enough resource", "enough capacity").replace(", used: 0", "");
                    Some(Reason::new("Infeasible", message))
                }
                Ok(()) => fits(pod, &claim, node, claims.values()).err().map(|(_, why)| Reason::new("Deferred", why)),
            };
            if let Some(reason) = refused {
                claims.insert(uid(pod).to_owned(), before);
                return Err(reason);
            }
        }
        claims.insert(uid(pod).to_owned(), claim);
        drop(claims);
        self.changed.send_replace(());
        Ok(())
    }

    pub fn release(&self, uid: &str) {
        let had = self.claims.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        if had.is_some() {
            self.changed.send_replace(());
        }
    }

    /// Tells of every change: there may be more room than before.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What the pods have asked for that may use more than that, in thousandths of a processor.
    pub fn burstable_cpu(&self) -> i64 {
        let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        let burstable = claims.values().filter(|claim| claim.quality == Quality::Burstable);
        burstable.filter_map(|claim| claim.requests.get("cpu")).sum()
    }
}

fn claim_of(pod: &Pod) -> Claim {
    let ports = |container: &Container| -> Vec<Port> {
        let ports = container.ports.iter().flatten().filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((address, port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), number))
        });
        ports.collect()
    };
    let sidecars = init_containers(pod).iter().filter(|container| kind_of_init(container) == Kind::Sidecar);
    let ports = main_containers(pod).iter().chain(sidecars).flat_map(ports).collect();
    Claim { requests: totals::requested(pod), ports, quality: Quality::of(pod) }
}

fn fits<'a>(
    pod: &Pod,
    claim: &Claim,
    node: &Node,
    others: impl Iterator<Item = &'a Claim>,
) -> Result<(), (String, String)> {
    let spec = pod.spec.as_ref();
    if spec.and_then(|spec| spec.os.as_ref()).is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Err(("PodOSNotSupported".into(), message.into()));
    }
    let (mut used, mut ports, mut pods) = (Totals::new(), Vec::new(), 0);
    for other in others {
        totals::add(&mut used, &other.requests);
        ports.extend(&other.ports);
        pods += 1;
    }
    used.insert("pods".to_owned(), pods);
    let wants = claim.requests.clone().into_iter().chain([("pods".to_owned(), 1)]);
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    for (name, requested) in wants.filter(|(_, requested)| *requested > 0) {
        // What the node does not know may be the whole cluster's.
        let Some(capacity) = allocatable.and_then(|allocatable| totals::number(allocatable, &name)) else { continue };
        let used = used.get(&name).copied().unwrap_or(0);
        if requested > capacity - used {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            return Err((format!("OutOf{name}"), message));
        }
    }
    let predicate = |name: &str, why: &str| Err((name.to_owned(), format!("Predicate {name} failed: {why}")));
    if !matches_node(pod, node) {
        return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    let clash = |port: &Port| {
        let wild = |address: &str| address == "0.0.0.0" || address == "::";
        ports.iter().any(|other| {
            (other.1.as_str(), other.2) == (port.1.as_str(), port.2)
                && (other.0 == port.0 || wild(&other.0) || wild(&port.0))
        })
    };
    if claim.ports.iter().any(clash) {
        return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let tolerated = |taint: &Taint| tolerations.iter().any(|toleration| tolerates(toleration, taint));
    if taints.iter().any(|taint| taint.effect == "NoExecute" && !tolerated(taint)) {
        return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    Ok(())
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let value = match toleration.operator.as_deref().unwrap_or("Equal") {
        "Exists" => true,
        "Gt" => compare(toleration.value.as_deref(), taint.value.as_deref()).is_some_and(|order| order.is_lt()),
        "Lt" => compare(toleration.value.as_deref(), taint.value.as_deref()).is_some_and(|order| order.is_gt()),
        _ => toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default(),
    };
    (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key) && value
}

fn compare(one: Option<&str>, other: Option<&str>) -> Option<std::cmp::Ordering> {
    Some(one?.parse::<i64>().ok()?.cmp(&other?.parse().ok()?))
}

fn matches_node(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = pod.spec.as_ref() else { return true };
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let selected = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let required = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = required.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    let term = |term: &NodeSelectorTerm| {
        let name = node.metadata.name.as_deref();
        let is_empty = term.match_expressions.is_none() && term.match_fields.is_none();
        !is_empty
            && term.match_expressions.iter().flatten().all(|one| meets(one, labels.get(&one.key).map(String::as_str)))
            && term.match_fields.iter().flatten().all(|one| meets(one, name.filter(|_| one.key == "metadata.name")))
    };
    selected && required.is_none_or(|required| required.node_selector_terms.iter().any(term))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|listed| listed == value));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(value, values.first().map(String::as_str)).is_some_and(|order| order.is_gt()),
        "Lt" => compare(value, values.first().map(String::as_str)).is_some_and(|order| order.is_lt()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_is_short_takes_no_more() {
        let pod = |class: &str, spec: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"spec": spec, "status": {"qosClass": class}})).expect("a pod")
        };
        let plain = json!({"containers": []});
        let critical = json!({"containers": [], "priority": CRITICAL});
        let tolerant = json!({"containers": [], "tolerations": [
            {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"},
        ]});
        let (memory, disk) = (Pressure { memory: true, disk: false }, Pressure { memory: false, disk: true });
        let why = |class: &str, spec: &serde_json::Value, pressure| {
            under_pressure(&pod(class, spec.clone()), pressure).err().map(|reason| reason.message)
        };
        let refused = |condition: &str| Some(format!("The node had condition: [{condition}]. "));
        assert_eq!(why("BestEffort", &plain, Pressure::default()), None);
        assert_eq!(why("BestEffort", &plain, memory), refused("MemoryPressure"));
        assert_eq!(why("BestEffort", &tolerant, memory), None);
        assert_eq!(why("Burstable", &plain, memory), None);
        assert_eq!(why("Guaranteed", &plain, disk), refused("DiskPressure"));
        assert_eq!(why("BestEffort", &critical, disk), None);
    }

    #[test]
    fn what_was_given_back_is_not_taken_again() {
        let claims = Claims::default();
        let pod = |cpu: &str| -> Pod {
            let spec = json!({"containers": [{"name": "a", "resources": {"requests": {"cpu": cpu}}}]});
            let pod = json!({"metadata": {"uid": "u"}, "spec": spec, "status": {"qosClass": "Burstable"}});
            serde_json::from_value(pod).expect("a pod")
        };
        claims.admit(&pod("1"), None).expect("there is room");
        claims.resize(&pod("2"), None).expect("there is room");
        assert_eq!(claims.burstable_cpu(), 2000);
        claims.release("u");
        // Asked for before it was deleted, and heard after that.
        claims.resize(&pod("3"), None).expect("it does not matter");
        assert_eq!(claims.burstable_cpu(), 0);
    }
}
