//! A set of fields of an object, as a sorted trie of path elements.
//!
//! Invariant: a node is a member or has a member below it, so two sets are equal exactly if their tries are.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use super::element::Element;

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: Element,
    /// Is the path that ends here in the set?
    pub(super) member: bool,
    pub(super) children: Set,
}

/// A path from the root of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<Element>);

/// The way from the root to where a walk stands; lives on the stack, and is copied only into a set.
#[derive(Clone, Copy)]
pub(super) struct Trail<'a> {
    parent: Option<&'a Trail<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    /// The object as a whole, which nobody owns.
    Root,
    Field(&'a str),
    Item(&'a Element),
}

impl Trail<'_> {
    pub(super) fn root() -> Self {
        Trail { parent: None, step: Step::Root }
    }

    pub(super) fn field<'b>(&'b self, name: &'b str) -> Trail<'b> {
        Trail { parent: Some(self), step: Step::Field(name) }
    }

    pub(super) fn item<'b>(&'b self, element: &'b Element) -> Trail<'b> {
        Trail { parent: Some(self), step: Step::Item(element) }
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) => write!(f, ".{name}"),
            Step::Item(element) => element.fmt(f),
        }
    }
}

impl Step<'_> {
    fn order_of(&self, element: &Element) -> Ordering {
        match (self, element) {
            (Step::Field(name), Element::Field(other)) => (**other).cmp(*name),
            (Step::Field(_), _) => Ordering::Greater,
            (Step::Item(item), other) => other.cmp(item),
            (Step::Root, _) => Ordering::Greater,
        }
    }

    fn to_element(self) -> Option<Element> {
        match self {
            Step::Root => None,
            Step::Field(name) => Some(Element::field(name)),
            Step::Item(element) => Some(element.clone()),
        }
    }
}

impl Node {
    fn kept(element: &Element, member: bool, children: Set) -> Option<Node> {
        (member || !children.is_empty()).then(|| Node { element: element.clone(), member, children })
    }

    /// Takes over what another node of the same element has. Says whether it is of the same.
    pub(super) fn absorb(&mut self, other: &Node) -> bool {
        let same = self.element == other.element;
        if same {
            self.member |= other.member;
            self.children = self.children.union(&other.children);
        }
        same
    }
}

impl Set {
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of these paths of field names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Set::new();
        for path in paths {
            set.insert(path.iter().map(|name| Element::field(name)));
        }
        set
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|n| usize::from(n.member) + n.children.len()).sum()
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn nodes_mut(&mut self) -> &mut Vec<Node> {
        &mut self.nodes
    }

    /// Adds a path; its parents do not become members.
    pub fn insert(&mut self, path: impl IntoIterator<Item = Element>) {
        let mut level = self;
        let mut path = path.into_iter().peekable();
        while let Some(element) = path.next() {
            let node = level.node(Step::Item(&element));
            if let Some(node) = node {
                if path.peek().is_none() {
                    node.member = true;
                    return;
                }
                level = &mut node.children;
            } else {
                return;
            }
        }
    }

    pub(super) fn insert_trail(&mut self, trail: &Trail<'_>) {
        if let Some(node) = self.node_at(trail) {
            node.member = true;
        }
    }

    fn node_at(&mut self, trail: &Trail<'_>) -> Option<&mut Node> {
        let level = match trail.parent {
            None | Some(Trail { step: Step::Root, .. }) => self,
            Some(parent) => &mut self.node_at(parent)?.children,
        };
        level.node(trail.step)
    }

    /// The node of a step, made if need be.
    fn node(&mut self, step: Step<'_>) -> Option<&mut Node> {
        let at = match self.nodes.last() {
            // Walks visit in order: most often the node is the last one or comes after it.
            Some(last) if step.order_of(&last.element).is_lt() => Err(self.nodes.len()),
            _ => self.nodes.binary_search_by(|n| step.order_of(&n.element)),
        };
        let at = match at {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node { element: step.to_element()?, member: false, children: Set::new() });
                at
            }
        };
        self.nodes.get_mut(at)
    }

    pub(super) fn get(&self, step: Step<'_>) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|n| step.order_of(&n.element)).ok()?;
        self.nodes.get(at)
    }

    /// Is the path a member?
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let mut level = self;
        for element in parents {
            match level.get(Step::Item(element)) {
                Some(node) => level = &node.children,
                None => return false,
            }
        }
        level.get(Step::Item(last)).is_some_and(|n| n.member)
    }

    /// What is below one element, without it.
    pub fn below(&self, element: &Element) -> Option<&Set> {
        self.get(Step::Item(element)).map(|n| &n.children)
    }

    pub fn union(&self, other: &Set) -> Set {
        self.combine(other, &|pair| match pair {
            Pair::Left(node) | Pair::Right(node) => Some(node.clone()),
            Pair::Both(a, b) => Node::kept(&a.element, a.member || b.member, a.children.union(&b.children)),
        })
    }

    /// The union of many sets, two and two, so that none is copied more often than there are rounds.
    pub(super) fn union_of<'a>(sets: impl IntoIterator<Item = &'a Set>) -> Set {
        let mut sets: Vec<Cow<'a, Set>> = sets.into_iter().map(Cow::Borrowed).collect();
        while sets.len() > 1 {
            let pair = |pair: &[Cow<'a, Set>]| match pair {
                [one, other] => Cow::Owned(one.union(other)),
                rest => rest.first().cloned().unwrap_or_default(),
            };
            sets = sets.chunks(2).map(pair).collect();
        }
        sets.pop().unwrap_or_default().into_owned()
    }

    pub fn intersection(&self, other: &Set) -> Set {
        self.combine(other, &|pair| match pair {
            Pair::Left(_) | Pair::Right(_) => None,
            Pair::Both(a, b) => Node::kept(&a.element, a.member && b.member, a.children.intersection(&b.children)),
        })
    }

    /// Is any path in both sets?
    pub fn intersects(&self, other: &Set) -> bool {
        let mut found = false;
        zip(&self.nodes, &other.nodes, |pair| {
            if let Pair::Both(a, b) = pair {
                found |= (a.member && b.member) || a.children.intersects(&b.children);
            }
        });
        found
    }

    /// The paths that are not in `other`. What lies below a path of `other` stays.
    pub fn difference(&self, other: &Set) -> Set {
        self.combine(other, &|pair| match pair {
            Pair::Left(node) => Some(node.clone()),
            Pair::Right(_) => None,
            Pair::Both(a, b) => Node::kept(&a.element, a.member && !b.member, a.children.difference(&b.children)),
        })
    }

    /// The paths that are neither in `other` nor below one of it.
    pub fn recursive_difference(&self, other: &Set) -> Set {
        self.combine(other, &|pair| match pair {
            Pair::Left(node) => Some(node.clone()),
            Pair::Right(_) => None,
            Pair::Both(_, b) if b.member => None,
            Pair::Both(a, b) => Node::kept(&a.element, a.member, a.children.recursive_difference(&b.children)),
        })
    }

    /// The members that have no member below them.
    pub fn leaves(&self) -> Set {
        let leaf = |n: &Node| Node::kept(&n.element, n.member && n.children.is_empty(), n.children.leaves());
        Set { nodes: self.nodes.iter().filter_map(leaf).collect() }
    }

    /// All members: those of a level first, then those below them. Conflicts are told in this order.
    pub fn paths(&self) -> Vec<FieldPath> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<Element>, out: &mut Vec<FieldPath>) {
        for node in self.nodes.iter().filter(|n| n.member) {
            out.push(FieldPath(prefix.iter().chain([&node.element]).cloned().collect()));
        }
        for node in &self.nodes {
            prefix.push(node.element.clone());
            node.children.collect(prefix, out);
            prefix.pop();
        }
    }

    fn combine(&self, other: &Set, pick: &dyn Fn(Pair<'_>) -> Option<Node>) -> Set {
        let mut nodes = Vec::new();
        zip(&self.nodes, &other.nodes, |pair| nodes.extend(pick(pair)));
        Set { nodes }
    }

    /// From nodes in order, each of them a member or with members below.
    pub(super) fn from_nodes(nodes: Vec<Node>) -> Set {
        Set { nodes }
    }
}

enum Pair<'a> {
    Left(&'a Node),
    Right(&'a Node),
    Both(&'a Node, &'a Node),
}

fn zip<'a>(left: &'a [Node], right: &'a [Node], mut visit: impl FnMut(Pair<'a>)) {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.element.cmp(&b.element),
        };
        let a = if order.is_le() { left.next() } else { None };
        let b = if order.is_ge() { right.next() } else { None };
        match (a, b) {
            (Some(a), Some(b)) => visit(Pair::Both(a, b)),
            (Some(a), None) => visit(Pair::Left(a)),
            (None, Some(b)) => visit(Pair::Right(b)),
            (None, None) => return,
        }
    }
}

impl FieldPath {
    pub fn of_fields(names: &[&str]) -> Self {
        FieldPath(names.iter().map(|name| Element::field(name)).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

/// One path a line.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, path) in self.paths().iter().enumerate() {
            let newline = if i > 0 { "\n" } else { "" };
            write!(f, "{newline}{path}")?;
        }
        Ok(())
    }
}
