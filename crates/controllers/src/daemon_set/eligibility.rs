//! Which nodes a daemon pod belongs on: those that its node name, selector, affinity and tolerations allow.
//!
//! This is the part of scheduling that says where a pod could ever run, whatever else is there. That it runs there is the
//! scheduler's work.

use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration},
};

use crate::pods;

/// What a node is to a DaemonSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A pod belongs here.
    Wanted,
    /// A pod that runs here stays, but no new one comes.
    Kept,
    NotHere,
}

/// What daemon pods tolerate: being a daemon means being there when a node is not well.
const TOLERATED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];
const NO_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// What a daemon pod tolerates: what it says, and what daemons do.
pub fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let on_host = spec.host_network == Some(true);
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    for (key, effect) in TOLERATED.iter().chain(on_host.then_some(&NO_NETWORK)) {
        let new = Toleration {
            key: Some((*key).to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some((*effect).to_owned()),
            ..Toleration::default()
        };
        let same = |known: &&mut Toleration| known.key == new.key && known.effect == new.effect && is_exists(known);
        match tolerations.iter_mut().find(same) {
            Some(known) => *known = new,
            None => tolerations.push(new),
        }
    }
    tolerations
}

fn is_exists(toleration: &Toleration) -> bool {
    toleration.operator.as_deref() == Some("Exists") && toleration.value.as_deref().unwrap_or_default().is_empty()
}

/// What the pods of a DaemonSet ask of nodes, read once for all of them.
pub struct Demands<'a> {
    /// Nothing is asked, and nothing fits, where there is no pod.
    pod: Option<(&'a PodSpec, Vec<Toleration>)>,
}

impl<'a> Demands<'a> {
    pub fn of(set: &'a DaemonSet) -> Self {
        let pod = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        Self { pod: pod.map(|pod| (pod, tolerations(pod))) }
    }

    pub fn place(&self, node: &Node) -> Place {
        let Some((pod, tolerations)) = &self.pod else { return Place::NotHere };
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let named = pod.node_name.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == name);
        if !named || !fits(pod, node) {
            return Place::NotHere;
        }
        let not_tolerated: Vec<&str> = taints(node)
            .iter()
            .filter(|taint| !tolerations.iter().any(|toleration| pods::tolerates(toleration, taint)))
            .map(|taint| taint.effect.as_str())
            .collect();
        if not_tolerated.contains(&"NoExecute") {
            Place::NotHere
        } else if not_tolerated.contains(&"NoSchedule") {
            Place::Kept
        } else {
            Place::Wanted
        }
    }
}

/// Whether a node is the same to all daemons. Most of its changes are heartbeats.
pub fn is_same(old: &Node, new: &Node) -> bool {
    old.metadata.labels == new.metadata.labels && taints(old) == taints(new)
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether a node is what the pod's selector and affinity ask for.
fn fits(pod: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.as_ref();
    let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
    if !pod.node_selector.iter().flatten().all(has) {
        return false;
    }
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|required| required.node_selector_terms.iter().any(|term| matches(term, node)))
}

/// A term without any requirement matches nothing.
fn matches(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (labels, fields) = (term.match_expressions.iter().flatten(), term.match_fields.iter().flatten());
    let any = labels.clone().next().is_some() || fields.clone().next().is_some();
    let label = |name: &str| node.metadata.labels.as_ref()?.get(name).map(String::as_str);
    let field = |name: &str| node.metadata.name.as_deref().filter(|_| name == "metadata.name");
    any && labels.into_iter().all(|wanted| meets(wanted, label(&wanted.key)))
        && fields.into_iter().all(|wanted| meets(wanted, field(&wanted.key)))
}

fn meets(wanted: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let listed = |value: &str| values.iter().any(|known| known == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let than = || Some((number(value?)?, number(values.first()?)?));
    match wanted.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => than().is_some_and(|(value, limit)| value > limit),
        "Lt" => than().is_some_and(|(value, limit)| value < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(labels: Value, taints: Value) -> Node {
        let node = json!({"metadata": {"name": "n1", "labels": labels}, "spec": {"taints": taints}});
        serde_json::from_value(node).expect("a node")
    }

    fn set(spec: Value) -> DaemonSet {
        let mut whole = json!({"containers": []});
        whole.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
        serde_json::from_value(json!({"spec": {"selector": {}, "template": {"spec": whole}}})).expect("a set")
    }

    fn place(set: &DaemonSet, node: &Node) -> Place {
        Demands::of(set).place(node)
    }

    fn taint(key: &str, effect: &str) -> Value {
        json!([{"key": key, "value": "v", "effect": effect}])
    }

    #[test]
    fn taints_keep_daemons_away_unless_they_are_tolerated() {
        let plain = set(json!({}));
        for (key, effect, is) in [
            ("a", "NoSchedule", Place::Kept),
            ("a", "PreferNoSchedule", Place::Wanted),
            ("a", "NoExecute", Place::NotHere),
            ("node.kubernetes.io/not-ready", "NoExecute", Place::Wanted),
            ("node.kubernetes.io/not-ready", "NoSchedule", Place::Kept),
            ("node.kubernetes.io/unschedulable", "NoSchedule", Place::Wanted),
            ("node.kubernetes.io/network-unavailable", "NoSchedule", Place::Kept),
        ] {
            assert_eq!(place(&plain, &node(json!({}), taint(key, effect))), is, "{key} {effect}");
        }
        let no_network = node(json!({}), taint("node.kubernetes.io/network-unavailable", "NoSchedule"));
        assert_eq!(place(&set(json!({"hostNetwork": true})), &no_network), Place::Wanted);
        let tainted = node(json!({}), taint("a", "NoSchedule"));
        for (toleration, is) in [
            (json!({"operator": "Exists"}), Place::Wanted),
            (json!({"key": "a", "operator": "Exists", "effect": "NoSchedule"}), Place::Wanted),
            (json!({"key": "a", "value": "v"}), Place::Wanted),
            (json!({"key": "a", "value": "w"}), Place::Kept),
            (json!({"key": "b", "operator": "Exists"}), Place::Kept),
            (json!({"key": "a", "operator": "Exists", "effect": "NoExecute"}), Place::Kept),
        ] {
            assert_eq!(place(&set(json!({"tolerations": [toleration]})), &tainted), is, "{toleration}");
        }
    }

    #[test]
    fn heartbeats_are_nothing_to_daemons() {
        let old = node(json!({"a": "b"}), taint("a", "NoSchedule"));
        let mut new = old.clone();
        new.status =
            Some(serde_json::from_value(json!({"conditions": [{"type": "Ready", "status": "True"}]})).expect("one"));
        assert!(is_same(&old, &new));
        assert!(!is_same(&old, &node(json!({"a": "c"}), taint("a", "NoSchedule"))));
        assert!(!is_same(&old, &node(json!({"a": "b"}), taint("b", "NoSchedule"))));
    }

    #[test]
    fn selectors_and_affinity_choose_nodes() {
        let blue = node(json!({"color": "blue", "size": "5"}), json!([]));
        let affinity = |requirement: Value| {
            let required = json!({"nodeSelectorTerms": [requirement]});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
        };
        let expression = |key: &str, operator: &str, values: &[&str]| {
            affinity(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        for (spec, wanted) in [
            (json!({"nodeSelector": {"color": "blue"}}), true),
            (json!({"nodeSelector": {"color": "green"}}), false),
            (json!({"nodeName": "n1"}), true),
            (json!({"nodeName": "n2"}), false),
            (expression("color", "In", &["blue", "red"]), true),
            (expression("color", "NotIn", &["blue"]), false),
            (expression("other", "NotIn", &["blue"]), true),
            (expression("color", "Exists", &[]), true),
            (expression("color", "DoesNotExist", &[]), false),
            (expression("size", "Gt", &["4"]), true),
            (expression("size", "Lt", &["5"]), false),
            (expression("color", "Gt", &["4"]), false),
            (affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})), true),
            (affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]})), false),
            (affinity(json!({})), false),
        ] {
            assert_eq!(place(&set(spec.clone()), &blue) == Place::Wanted, wanted, "{spec}");
        }
    }
}
