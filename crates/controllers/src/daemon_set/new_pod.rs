//! A new pod of a DaemonSet, which belongs on one node.

use controller_runtime::adoption::controller_reference;
use k8s_openapi::api::{
    apps::v1::DaemonSet,
    core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodTemplateSpec},
};

use super::{
    eligibility::tolerations,
    plan::{GENERATION, generation},
};
use crate::{history::POD_REVISION, pods};

pub fn new_pod(set: &DaemonSet, node: &str, hash: &str) -> Pod {
    let template = set.spec.as_ref().map_or_else(PodTemplateSpec::default, |spec| spec.template.clone());
    let mut pod = pods::from_template(&template, set, controller_reference(set));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_REVISION.to_owned(), hash.to_owned());
    if let Some(generation) = generation(set) {
        labels.insert(GENERATION.to_owned(), generation.to_owned());
    }
    let spec = pod.spec.get_or_insert_default();
    spec.tolerations = Some(tolerations(spec));
    // Whatever the affinity asks for, this node has it.
    let named = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![named]), match_expressions: None };
    let affinity = spec.affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    affinity.required_during_scheduling_ignored_during_execution =
        Some(NodeSelector { node_selector_terms: vec![term] });
    pod
}
