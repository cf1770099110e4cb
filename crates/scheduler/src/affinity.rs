//! What a pod says about other pods near it: with whom it wants, or must, or must not share a part of the cluster.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, WeightedPodAffinityTerm};

use crate::selection::{PodSelector, label_selector};

#[derive(Clone, Debug, Default)]
pub struct Affinity {
    pub required: Vec<Term>,
    pub forbidden: Vec<Term>,
    /// With weights, which are below zero for those it wants to be away from.
    pub preferred: Vec<(i64, Term)>,
}

/// Some pods, and the label of nodes that says what near means.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term {
    pub pods: PodSelector,
    pub topology: Box<str>,
}

pub fn of(pod: &Pod) -> Affinity {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else { return Affinity::default() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let all = |terms: Option<&Vec<PodAffinityTerm>>| {
        terms.into_iter().flatten().map(|term| Term::of(term, namespace)).collect::<Vec<_>>()
    };
    let weighted = |sign: i64, terms: Option<&Vec<WeightedPodAffinityTerm>>| {
        let terms = terms.into_iter().flatten();
        let of = |term: &WeightedPodAffinityTerm| {
            (sign * i64::from(term.weight), Term::of(&term.pod_affinity_term, namespace))
        };
        terms.map(of).collect::<Vec<_>>()
    };
    let (near, away) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    let mut preferred =
        weighted(1, near.and_then(|near| near.preferred_during_scheduling_ignored_during_execution.as_ref()));
    preferred
        .extend(weighted(-1, away.and_then(|away| away.preferred_during_scheduling_ignored_during_execution.as_ref())));
    Affinity {
        required: all(near.and_then(|near| near.required_during_scheduling_ignored_during_execution.as_ref())),
        forbidden: all(away.and_then(|away| away.required_during_scheduling_ignored_during_execution.as_ref())),
        preferred,
    }
}

impl Term {
    fn of(term: &PodAffinityTerm, namespace: &str) -> Self {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().flatten().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(namespace.to_owned());
        }
        Self {
            pods: PodSelector {
                namespaces,
                namespace_selector: term.namespace_selector.as_ref().and_then(label_selector),
                labels: term.label_selector.as_ref().and_then(label_selector),
            },
            topology: term.topology_key.as_str().into(),
        }
    }
}
