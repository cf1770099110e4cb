//! How evenly a pod wants those like it to be spread over parts of the cluster.

use k8s_openapi::api::core::v1::{Pod, TopologySpreadConstraint};
use object_model::selector::LabelSelector;

use crate::selection::{Labels, label_selector, labels_of, requirement};

/// The label that every node has for itself.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    pub max_skew: i64,
    /// The label of nodes whose values are the parts.
    pub topology: Box<str>,
    /// Those like it, in its namespace. None selects nothing.
    pub pods: Option<LabelSelector>,
    /// With fewer parts than this the emptiest one counts as empty.
    pub min_domains: usize,
    /// Whether nodes that the pod's node selector and affinity rule out are left out.
    pub honours_affinity: bool,
    /// Whether nodes with taints that the pod does not tolerate are left out.
    pub honours_taints: bool,
    /// Whether it must hold.
    pub required: bool,
}

pub fn of(pod: &Pod) -> Vec<Constraint> {
    let constraints = pod.spec.iter().filter_map(|spec| spec.topology_spread_constraints.as_ref()).flatten();
    constraints.into_iter().map(|constraint| Constraint::of(constraint, labels_of(&pod.metadata))).collect()
}

impl Constraint {
    fn of(constraint: &TopologySpreadConstraint, labels: &Labels) -> Self {
        let selector = constraint.label_selector.as_ref().and_then(label_selector);
        let same = constraint.match_label_keys.iter().flatten();
        let same = same.filter_map(|key| requirement(key, "In", std::slice::from_ref(labels.get(key)?)));
        Self {
            max_skew: i64::from(constraint.max_skew),
            topology: constraint.topology_key.as_str().into(),
            pods: selector.map(|selector| selector.requirements().iter().cloned().chain(same).collect()),
            min_domains: constraint.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
            honours_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honours_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            required: constraint.when_unsatisfiable == "DoNotSchedule",
        }
    }
}
