//! Nodes that a pod's node selector and node affinity allow, and those it would like.

use k8s_openapi::api::core::v1::Node;

use super::normalize;
use crate::{
    framework::{Event, NodeFilter, NodeScore, Plugin, PreFilter, PreFiltered, Rejection},
    pod::{PodInfo, Shape},
    selection::labels_of,
    snapshot::{NodeInfo, Snapshot},
};

pub struct NodeAffinity;

const NAME: &str = "NodeAffinity";

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn helps(&self, event: &Event<'_>, pod: &PodInfo) -> bool {
        let allows = |node: &Node| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            pod.shape.nodes.allows_labelled(name, labels_of(&node.metadata))
        };
        match event {
            Event::NodeAdded(node) => allows(node),
            Event::NodeChanged { old, new, what } => what.labels && !allows(old) && allows(new),
            _ => false,
        }
    }

    fn hears(&self, event: &Event<'_>) -> bool {
        event.is_about_a_node()
    }
}

impl PreFilter for NodeAffinity {
    fn pre_filter<'a>(&'a self, pod: &'a PodInfo, _snapshot: &'a Snapshot) -> PreFiltered<'a> {
        match pod.shape.nodes.named() {
            None => PreFiltered::Skip,
            Some(names) if names.is_empty() => {
                PreFiltered::Reject(Rejection::for_good(NAME, "pod affinity terms conflict"))
            }
            Some(names) => PreFiltered::Only(names),
        }
    }
}

impl NodeFilter for NodeAffinity {
    fn filter(&self, shape: &Shape, node: &NodeInfo) -> Result<(), Rejection> {
        if shape.nodes.allows(node) {
            return Ok(());
        }
        Err(Rejection::for_good(NAME, "node(s) didn't match Pod's node affinity/selector"))
    }
}

impl NodeScore for NodeAffinity {
    fn applies(&self, shape: &Shape) -> bool {
        !shape.nodes.preferred.is_empty()
    }

    fn score(&self, shape: &Shape, node: &NodeInfo) -> i64 {
        shape.nodes.liking(node)
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize(scores, false);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures::{cluster, node, pod};

    fn required(terms: Value) -> Value {
        json!({"spec": {"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
        }}}})
    }

    fn expression(key: &str, operator: &str, values: Value) -> Value {
        json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}])
    }

    #[test]
    fn selectors_and_terms_must_hold() {
        let labels = json!({"metadata": {"labels": {"disk": "ssd", "cores": "16"}}});
        let snapshot = cluster([node("one", labels)], []);
        let name = |operator: &str, name: &str| json!([{"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}]);
        let cases = [
            (json!({}), true),
            (json!({"spec": {"nodeSelector": {"disk": "ssd"}}}), true),
            (json!({"spec": {"nodeSelector": {"disk": "ssd", "gpu": "yes"}}}), false),
            (required(expression("disk", "In", json!(["ssd", "nvme"]))), true),
            (required(expression("disk", "NotIn", json!(["ssd"]))), false),
            (required(expression("gpu", "NotIn", json!(["old"]))), true),
            (required(expression("disk", "Exists", json!([]))), true),
            (required(expression("disk", "DoesNotExist", json!([]))), false),
            (required(expression("cores", "Gt", json!(["8"]))), true),
            (required(expression("cores", "Lt", json!(["8"]))), false),
            (required(expression("disk", "Gt", json!(["8"]))), false),
            (required(json!([{}])), false),
            (required(json!([])), false),
            (required(name("In", "one")), true),
            (required(name("In", "two")), false),
            (required(name("NotIn", "one")), false),
            (
                required(json!([{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                             {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}])),
                true,
            ),
        ];
        for (changes, fits) in cases {
            let fits_ = NodeAffinity.filter(&pod("web", changes.clone()).shape, snapshot.node(0)).is_ok();
            assert_eq!(fits_, fits, "{changes}");
        }
    }

    #[test]
    fn names_narrow_the_search_and_may_conflict() {
        let snapshot = cluster([], []);
        let field = |names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({"key": "metadata.name", "operator": "In", "values": [name]})).collect()
        };
        let of = |terms: Value| pod("web", required(terms));
        let one = of(json!([{"matchFields": field(&["a"])}, {"matchFields": field(&["b"])}]));
        assert!(matches!(NodeAffinity.pre_filter(&one, &snapshot), PreFiltered::Only(names) if names.len() == 2));
        let conflict = of(json!([{"matchFields": field(&["a", "b"])}]));
        assert!(matches!(NodeAffinity.pre_filter(&conflict, &snapshot), PreFiltered::Reject(_)));
        let open =
            of(json!([{"matchFields": field(&["a"])}, {"matchExpressions": [{"key": "x", "operator": "Exists"}]}]));
        assert!(matches!(NodeAffinity.pre_filter(&open, &snapshot), PreFiltered::Skip));
    }

    #[test]
    fn likings_add_up_by_weight() {
        let preferred = |key: &str, weight: i32| json!({"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}});
        let web = pod(
            "web",
            json!({"spec": {"affinity": {"nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [preferred("disk", 5), preferred("gpu", 3)],
            }}}}),
        );
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        let nodes = [node("both", labels(json!({"disk": "x", "gpu": "x"}))), node("one", labels(json!({"gpu": "x"})))];
        let snapshot = cluster(nodes, []);
        let mut scores = [0, 1].map(|slot| NodeAffinity.score(&web.shape, snapshot.node(slot)));
        assert_eq!(scores, [8, 3]);
        NodeAffinity.normalize(&mut scores);
        assert_eq!(scores, [100, 37]);
    }
}
