//! Fields that a resource or subresource sets back on every write, so that its writers never own them.

use super::element::Element;
use super::set::{Node, Set};

/// Which fields a writer may own.
#[derive(Clone, Debug)]
pub enum Filter {
    /// All but these and what is below them, such as `status` of a resource with that subresource.
    Without(Set),
    /// Only these, what is above and what is below them. A missing element stands for any.
    Only(Vec<Vec<Option<Element>>>),
}

impl Filter {
    pub fn apply(&self, set: &Set) -> Set {
        match self {
            Filter::Without(fields) => set.recursive_difference(fields),
            Filter::Only(prefixes) => {
                let prefixes: Vec<&[Option<Element>]> = prefixes.iter().map(Vec::as_slice).collect();
                matching(set, &prefixes)
            }
        }
    }
}

fn matching(set: &Set, prefixes: &[&[Option<Element>]]) -> Set {
    if prefixes.iter().any(|prefix| prefix.is_empty()) {
        return set.clone();
    }
    let keep = |node: &Node| {
        let rest: Vec<&[Option<Element>]> = prefixes
            .iter()
            .filter_map(|prefix| prefix.split_first())
            .filter(|(first, _)| first.as_ref().is_none_or(|element| *element == node.element))
            .map(|(_, rest)| rest)
            .collect();
        let children = if rest.is_empty() { Set::new() } else { matching(&node.children, &rest) };
        let member = node.member && !rest.is_empty();
        (member || !children.is_empty()).then(|| Node { element: node.element.clone(), member, children })
    };
    Set::from_nodes(set.nodes().iter().filter_map(keep).collect())
}
