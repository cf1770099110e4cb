//! What a schema says about a set of fields.

use super::set::{Node, Set};
use super::view::{Form, View};
use crate::schema::Schema;

/// The set with every named field on the way to a member. By itself a named field belongs to nobody; when a value is
/// taken apart it has to go once nothing in it is left.
pub fn with_named_fields(schema: &Schema, set: &Set) -> Set {
    named(View::Typed(schema.root()).into(), set)
}

fn named(view: Option<View<'_>>, set: &Set) -> Set {
    let nodes = set.nodes().iter().map(|node| {
        let below = view.and_then(|view| view.below(&node.element));
        let is_named = below.as_ref().is_some_and(|entry| entry.named);
        Node {
            element: node.element.clone(),
            member: node.member || is_named,
            children: named(below.map(|entry| entry.view), &node.children),
        }
    });
    Set::from_nodes(nodes.collect())
}

/// Brings a set up to date with a schema that has since made a list or map atomic: who owned something in it owns it
/// as a whole. Says whether anything changed.
pub fn reconcile(schema: &Schema, set: &mut Set) -> bool {
    reconcile_below(View::Typed(schema.root()), set)
}

fn reconcile_below(view: View<'_>, set: &mut Set) -> bool {
    let mut changed = false;
    let form = view.form(None);
    for node in set.nodes_mut().iter_mut().filter(|node| !node.children.is_empty()) {
        let below = match (&form, &node.element) {
            (Form::List(list), _) => list.item,
            (Form::Map(map), super::Element::Field(name)) => map.entry(name).view,
            _ => continue,
        };
        let atomic = match below.form(None) {
            Form::Leaf(_) => continue,
            Form::List(list) => list.is_atomic(),
            Form::Map(map) => map.atomic,
        };
        if atomic {
            node.member = true;
            node.children = Set::new();
            changed = true;
        } else if !below.is_open() {
            changed |= reconcile_below(below, &mut node.children);
        }
    }
    changed
}
