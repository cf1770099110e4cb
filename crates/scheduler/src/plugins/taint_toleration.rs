//! A node with taints takes only pods that tolerate them, and pods like nodes best whose taints they tolerate.

use k8s_openapi::api::core::v1::{Node, Taint};

use super::normalize;
use crate::{
    framework::{Event, NodeFilter, NodeScore, Plugin, Rejection},
    pod::{PodInfo, Shape, Tolerated},
    snapshot::NodeInfo,
};

pub struct TaintToleration;

const NAME: &str = "TaintToleration";

impl Plugin for TaintToleration {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        let keeps_out = |node: &Node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
            keeps_out(taints.unwrap_or(&[]), &pod.shape.tolerations)
        };
        match event {
            Event::NodeAdded(node) => !keeps_out(node),
            Event::NodeChanged { old, new, what } => what.taints && keeps_out(old) && !keeps_out(new),
            _ => false,
        }
    }

    fn hears(&self, event: &Event<'_>) -> bool {
        event.is_about_a_node()
    }
}

impl NodeFilter for TaintToleration {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection> {
        if keeps_out(node.taints(), &shape.tolerations) {
            return Err(Rejection::for_good(NAME, "node(s) had untolerated taint(s)"));
        }
        Ok(())
    }
}

impl NodeScore for TaintToleration {
    fn score(&self, shape: &Shape, node: &NodeInfo) -> i64 {
        let soft = node.taints().iter().filter(|taint| taint.effect == "PreferNoSchedule");
        soft.filter(|taint| !is_tolerated(taint, &shape.tolerations)).count() as i64
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, true);
    }
}

/// Whether any of the taints keeps a pod with these tolerations out.
pub fn keeps_out(taints: &[Taint], tolerations: &[Tolerated]) -> bool {
    let hard = taints.iter().filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"));
    hard.into_iter().any(|taint| !is_tolerated(taint, tolerations))
}

fn is_tolerated(taint: &Taint, tolerations: &[Tolerated]) -> bool {
    let value = taint.value.as_deref().unwrap_or_default();
    tolerations.iter().any(|toleration| tolerates(toleration, &taint.key, value, &taint.effect))
}

pub fn tolerates(toleration: &Tolerated, key: &str, value: &str, effect: &str) -> bool {
    let of = |said: &str, is: &str| said.is_empty() || said == is;
    of(&toleration.effect, effect)
        && of(&toleration.key, key)
        && match toleration.operator.as_str() {
            "" | "Equal" => toleration.value == value,
            "Exists" => true,
            // `Lt` and `Gt` are behind a feature of Kubernetes that is off.
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{cluster, node, pod};

    #[test]
    fn taints_must_be_tolerated() {
        let taint = |effect: &str| json!([{"key": "for", "value": "db", "effect": effect}]);
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| json!([{"key": key, "operator": operator, "value": value, "effect": effect}]);
        let cases = [
            (taint("NoSchedule"), json!([]), false),
            (taint("NoExecute"), json!([]), false),
            (taint("PreferNoSchedule"), json!([]), true),
            (taint("NoSchedule"), toleration("for", "Equal", "db", "NoSchedule"), true),
            (taint("NoSchedule"), toleration("for", "", "db", ""), true),
            (taint("NoSchedule"), toleration("for", "Equal", "web", "NoSchedule"), false),
            (taint("NoSchedule"), toleration("for", "Exists", "", "NoExecute"), false),
            (taint("NoSchedule"), json!([{"operator": "Exists"}]), true),
            (taint("NoSchedule"), toleration("other", "Exists", "", ""), false),
        ];
        for (taints, tolerations, fits) in cases {
            let snapshot = cluster([node("one", json!({"spec": {"taints": taints}}))], []);
            let web = pod("web", json!({"spec": {"tolerations": tolerations}}));
            let fits_ = TaintToleration.filter(&web.shape, snapshot.node(0)).is_ok();
            assert_eq!(fits_, fits, "{taints} {tolerations}");
        }
    }

    #[test]
    fn fewer_untolerated_soft_taints_are_better() {
        let soft = |keys: &[&str]| -> Value {
            let taints: Vec<Value> = keys.iter().map(|key| json!({"key": key, "effect": "PreferNoSchedule"})).collect();
            json!({"spec": {"taints": taints}})
        };
        let snapshot = cluster([node("a", soft(&[])), node("b", soft(&["x"])), node("c", soft(&["x", "y"]))], []);
        let web = pod("web", json!({}));
        let mut scores = [0, 1, 2].map(|slot| TaintToleration.score(&web.shape, snapshot.node(slot)));
        TaintToleration.normalize(&mut scores);
        assert_eq!(scores, [100, 50, 0]);
    }

    #[test]
    fn only_a_taint_that_goes_wakes() {
        let (open, closed) =
            (node("n", json!({})), node("n", json!({"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}})));
        let web = pod("web", json!({}));
        let change = |old: &Node, new: &Node| {
            let what = crate::framework::NodeChange::between(old, new);
            TaintToleration.helps(&Event::NodeChanged { old, new, what }, &web)
        };
        assert!(change(&closed, &open) && !change(&open, &closed) && !change(&open, &open));
        assert!(TaintToleration.helps(&Event::NodeAdded(&open), &web));
        assert!(!TaintToleration.helps(&Event::NodeAdded(&closed), &web));
    }
}
