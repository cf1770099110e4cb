//! Which nodes and which pods are meant: selectors, read once and comparable, so that equal ones can share work.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec},
    apimachinery::pkg::apis::meta::v1 as meta,
};
use object_model::selector::{LabelSelector, Operator, Requirement};

use crate::snapshot::NodeInfo;

pub type Labels = BTreeMap<String, String>;

pub static NO_LABELS: Labels = BTreeMap::new();

pub fn labels_of(metadata: &meta::ObjectMeta) -> &Labels {
    metadata.labels.as_ref().unwrap_or(&NO_LABELS)
}

/// What a selector object selects; `None` if it cannot be read, and then it selects nothing.
pub fn label_selector(selector: &meta::LabelSelector) -> Option<LabelSelector> {
    let exact = selector.match_labels.iter().flatten();
    let exact = exact.map(|(key, value)| requirement(key, "In", std::slice::from_ref(value)));
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|expression| {
        requirement(&expression.key, &expression.operator, expression.values.as_deref().unwrap_or(&[]))
    });
    exact.chain(expressions).collect()
}

pub fn requirement(key: &str, operator: &str, values: &[String]) -> Option<Requirement> {
    let operator = match operator {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        _ => return None,
    };
    Requirement::new(key, operator, values.iter().map(|value| value.as_str().into()).collect()).ok()
}

pub fn selects(selector: &LabelSelector, labels: &Labels) -> bool {
    selector.matches(|key| labels.get(key).map(String::as_str))
}

/// The nodes that a pod may and would like to go to, by its node selector and node affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelection {
    selector: LabelSelector,
    /// One of them must hold.
    required: Option<Vec<NodeTerm>>,
    /// With the weight of each.
    pub preferred: Vec<(i64, NodeTerm)>,
}

/// Everything it says must hold. One that says nothing, or cannot be read, holds for no node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeTerm {
    labels: Option<LabelSelector>,
    /// Names the node must, or must not, have.
    names: Vec<(bool, String)>,
}

impl NodeSelection {
    pub fn of(spec: &PodSpec) -> Self {
        let selector = spec.node_selector.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()));
        let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        Self { selector: LabelSelector::from_labels(selector), ..affinity.map(Self::of_affinity).unwrap_or_default() }
    }

    fn of_affinity(affinity: &NodeAffinity) -> Self {
        let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
        let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        Self {
            selector: LabelSelector::default(),
            required: required.map(|required| required.node_selector_terms.iter().map(NodeTerm::of).collect()),
            preferred: preferred
                .filter(|term| term.weight != 0)
                .map(|term| (i64::from(term.weight), NodeTerm::of(&term.preference)))
                .collect(),
        }
    }

    /// Terms that must hold, as a persistent volume has them.
    pub fn required(terms: &[NodeSelectorTerm]) -> Self {
        Self { required: Some(terms.iter().map(NodeTerm::of).collect()), ..Self::default() }
    }

    pub fn allows(&self, node: &NodeInfo) -> bool {
        self.allows_labelled(node.name(), node.labels())
    }

    pub fn allows_labelled(&self, name: &str, labels: &Labels) -> bool {
        selects(&self.selector, labels)
            && self.required.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(name, labels)))
    }

    pub fn allows_all(&self) -> bool {
        self.selector.is_everything() && self.required.is_none()
    }

    /// The only nodes that can be allowed, if every term names some. Labels may still forbid them.
    pub fn named(&self) -> Option<BTreeSet<&str>> {
        let terms = self.required.as_ref().filter(|terms| !terms.is_empty())?;
        let mut all = BTreeSet::new();
        for term in terms {
            let mut names = term.names.iter().filter(|(must, _)| *must).map(|(_, name)| name.as_str());
            let first = names.next()?;
            if names.all(|name| name == first) {
                all.insert(first);
            }
        }
        Some(all)
    }

    /// How much a node is liked.
    pub fn liking(&self, node: &NodeInfo) -> i64 {
        let holding = self.preferred.iter().filter(|(_, term)| term.holds(node.name(), node.labels()));
        holding.map(|(weight, _)| weight).sum()
    }
}

impl NodeTerm {
    fn of(term: &NodeSelectorTerm) -> Self {
        let expressions = term.match_expressions.as_deref().unwrap_or(&[]);
        let fields = term.match_fields.as_deref().unwrap_or(&[]);
        if expressions.is_empty() && fields.is_empty() {
            return Self { labels: None, names: Vec::new() };
        }
        let of_expression = |expression: &NodeSelectorRequirement| {
            requirement(&expression.key, &expression.operator, expression.values.as_deref().unwrap_or(&[]))
        };
        let of_field = |field: &NodeSelectorRequirement| {
            let value = field.values.as_deref().and_then(|values| values.first())?;
            Some((field.operator == "In", value.clone()))
        };
        let labels = expressions.iter().map(of_expression).collect();
        match fields.iter().map(of_field).collect() {
            Some(names) => Self { labels, names },
            None => Self { labels: None, names: Vec::new() },
        }
    }

    fn holds(&self, name: &str, labels: &Labels) -> bool {
        self.labels.as_ref().is_some_and(|selector| selects(selector, labels))
            && self.names.iter().all(|(must, named)| (named == name) == *must)
    }
}

/// Which pods are meant: by their labels, in some namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodSelector {
    pub namespaces: BTreeSet<String>,
    /// Namespaces by their labels, beside those that are named.
    pub namespace_selector: Option<LabelSelector>,
    /// None selects nothing.
    pub labels: Option<LabelSelector>,
}

impl PodSelector {
    pub fn in_namespace(namespace: &str, labels: Option<LabelSelector>) -> Self {
        Self { namespaces: BTreeSet::from([namespace.to_owned()]), namespace_selector: None, labels }
    }

    /// The one namespace in which pods are meant, if it is only one.
    pub fn home(&self) -> Option<&str> {
        let only = self.namespaces.first().filter(|_| self.namespaces.len() == 1 && self.namespace_selector.is_none());
        only.map(String::as_str)
    }

    /// Whether a pod with these labels in a namespace is meant. The namespace's own labels are asked for when they matter.
    pub fn selects<'a>(
        &self,
        namespace: &str,
        labels: &Labels,
        of_namespace: impl FnOnce() -> Option<&'a Labels>,
    ) -> bool {
        (self.namespaces.contains(namespace)
            || self.namespace_selector.as_ref().is_some_and(|selector| {
                selector.is_everything() || of_namespace().is_some_and(|labels| selects(selector, labels))
            }))
            && self.labels.as_ref().is_some_and(|selector| selects(selector, labels))
    }
}
