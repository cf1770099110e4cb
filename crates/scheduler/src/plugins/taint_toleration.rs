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
