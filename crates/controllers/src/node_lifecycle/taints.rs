//! The taints that the conditions of a node demand.

use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::health::{READY, condition};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Which condition in which state has which taint.
const OF_CONDITIONS: [(&str, &str, &str); 6] = [
    (READY, "False", NOT_READY),
    (READY, "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

const NO_SCHEDULE: &str = "NoSchedule";
const NO_EXECUTE: &str = "NoExecute";

/// What becomes of the taint that makes pods leave a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// They must, for this reason.
    Must(&'static str),
    /// Not now: it stays as it is.
    AsBefore,
    /// They need not.
    Stay,
}

/// The taint that a node should have so that its pods leave it, by its readiness.
pub fn reason_to_leave(node: &Node) -> Option<&'static str> {
    match condition(node, READY)?.status.as_str() {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    }
}

/// Whether a node has a taint already that makes pods leave for want of readiness.
pub fn must_be_left(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.effect == NO_EXECUTE && is_of_readiness(&taint.key))
}

fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_of_readiness(key: &str) -> bool {
    matches!(key, NOT_READY | UNREACHABLE)
}

fn is_ours(taint: &Taint) -> bool {
    let key = taint.key.as_str();
    match taint.effect.as_str() {
        NO_SCHEDULE => key == UNSCHEDULABLE || OF_CONDITIONS.iter().any(|(_, _, ours)| *ours == key),
        NO_EXECUTE => is_of_readiness(key),
        _ => false,
    }
}

/// All taints of a node as they should be, or `None` if they are.
pub fn changed(node: &Node, leave: Leave, now: &Time) -> Option<Vec<Taint>> {
    let state = |type_: &str| condition(node, type_).map(|found| found.status.as_str());
    let of_conditions = OF_CONDITIONS.iter().filter(|(type_, status, _)| state(type_) == Some(*status));
    let mut wanted: Vec<(&str, &str)> = of_conditions.map(|(_, _, key)| (*key, NO_SCHEDULE)).collect();
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, NO_SCHEDULE));
    }
    let has = taints(node);
    match leave {
        Leave::Must(key) => wanted.push((key, NO_EXECUTE)),
        Leave::AsBefore => {
            let before = has.iter().filter(|taint| taint.effect == NO_EXECUTE && is_of_readiness(&taint.key));
            wanted.extend(before.map(|taint| (taint.key.as_str(), NO_EXECUTE)));
        }
        Leave::Stay => {}
    }
    let is_wanted = |taint: &Taint| wanted.contains(&(taint.key.as_str(), taint.effect.as_str()));
    let mut taints: Vec<Taint> = has.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|taint| (taint.key.as_str(), taint.effect.as_str()) == (*key, *effect)) {
            taints.push(Taint {
                key: (*key).to_owned(),
                effect: (*effect).to_owned(),
                time_added: Some(now.clone()),
                value: None,
            });
        }
    }
    (taints != has).then_some(taints)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn node(ready: &str, taints: &[(&str, &str)]) -> Node {
        let taints: Vec<_> = taints.iter().map(|(key, effect)| json!({"key": key, "effect": effect})).collect();
        let node = json!({
            "spec": {"taints": taints, "unschedulable": ready == "False"},
            "status": {"conditions": [
                {"type": "Ready", "status": ready},
                {"type": "MemoryPressure", "status": "True"},
                {"type": "DiskPressure", "status": "Unknown"},
            ]},
        });
        serde_json::from_value(node).expect("a node")
    }

    fn after(ready: &str, taints: &[(&str, &str)], leave: Leave) -> Option<Vec<(String, String)>> {
        let changed = changed(&node(ready, taints), leave, &Time(Timestamp::UNIX_EPOCH))?;
        Some(changed.into_iter().map(|taint| (taint.key, taint.effect)).collect())
    }

    fn pairs(taints: &[(&str, &str)]) -> Option<Vec<(String, String)>> {
        Some(taints.iter().map(|(key, effect)| ((*key).to_owned(), (*effect).to_owned())).collect())
    }

    #[test]
    fn conditions_have_their_taints() {
        let memory = ("node.kubernetes.io/memory-pressure", NO_SCHEDULE);
        let mine = ("mine", NO_EXECUTE);
        assert_eq!(after("True", &[mine, (NOT_READY, NO_SCHEDULE)], Leave::Stay), pairs(&[mine, memory]));
        let expected = [mine, (NOT_READY, NO_SCHEDULE), memory, (UNSCHEDULABLE, NO_SCHEDULE)];
        assert_eq!(after("False", &[mine], Leave::AsBefore), pairs(&expected));
        assert_eq!(after("False", &expected, Leave::AsBefore), None);
    }

    #[test]
    fn one_reason_to_leave_takes_the_place_of_the_other() {
        let memory = ("node.kubernetes.io/memory-pressure", NO_SCHEDULE);
        let (no, none) = ((UNREACHABLE, NO_SCHEDULE), (UNREACHABLE, NO_EXECUTE));
        let before = [(NOT_READY, NO_EXECUTE), memory, no];
        assert_eq!(reason_to_leave(&node("Unknown", &before)), Some(UNREACHABLE));
        assert_eq!(after("Unknown", &before, Leave::Must(UNREACHABLE)), pairs(&[memory, no, none]));
        assert_eq!(after("Unknown", &[memory, no, none], Leave::Must(UNREACHABLE)), None);
        assert_eq!(after("Unknown", &[memory, no, none], Leave::AsBefore), None);
        assert_eq!(after("Unknown", &[memory, no, none], Leave::Stay), pairs(&[memory, no]));
    }
}
