//! FieldsV1: a set of fields as nested JSON objects, the form in which `metadata.managedFields` keeps it.
//!
//! A path element is a key (`f:` field, `k:` list item by its keys, `v:` by its value, `i:` by its place); `{}` or a
//! key `.` says that the path itself is in the set.

use serde_json::{Map, Value};

use super::element::{BadElement, Element};
use super::json;
use super::set::{Node, Set};
use crate::codec::MAX_DEPTH;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFields {
    #[error("parsing key as path element: {0}")]
    Element(#[from] BadElement),
    #[error("fields must be objects, got {0}")]
    NotAnObject(String),
    #[error("fields are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Reads FieldsV1. Element types that we do not know are skipped, as Kubernetes does.
pub fn decode(value: &Value) -> Result<Set, BadFields> {
    level(value, 0).map(|(set, _)| set)
}

/// The set below a position, and whether the position is itself a member.
fn level(value: &Value, depth: usize) -> Result<(Set, bool), BadFields> {
    let map = match value {
        Value::Object(map) => map,
        Value::Null => return Ok((Set::new(), true)),
        other => return Err(BadFields::NotAnObject(json::text(other).chars().take(64).collect())),
    };
    // Objects are not nested deeper than this, so neither are their fields.
    if depth > MAX_DEPTH {
        return Err(BadFields::TooDeep);
    }
    let mut member = false;
    let mut nodes = Vec::with_capacity(map.len());
    for (key, below) in map {
        if key == "." {
            member = true;
            continue;
        }
        match Element::parse(key) {
            Ok(element) => {
                let (children, member) = level(below, depth + 1)?;
                nodes.push(Node { element, member, children });
            }
            Err(BadElement::Unknown(_)) => {}
            Err(bad) => return Err(bad.into()),
        }
    }
    let member = member || nodes.is_empty();
    // Texts sort differently from elements, and two texts may mean the same element.
    if !nodes.is_sorted_by(|a, b| a.element < b.element) {
        nodes.sort_by(|a, b| a.element.cmp(&b.element));
        nodes.dedup_by(|again, first| first.absorb(again));
    }
    Ok((Set::from_nodes(nodes), member))
}

/// The JSON value of a set.
pub fn encode(set: &Set) -> Value {
    Value::Object(set.nodes().iter().map(|node| (node.element.encoded(), encode_node(node))).collect())
}

fn encode_node(node: &Node) -> Value {
    let mut map = Map::new();
    if node.member && !node.children.is_empty() {
        map.insert(".".to_owned(), Value::Object(Map::new()));
    }
    map.extend(node.children.nodes().iter().map(|child| (child.element.encoded(), encode_node(child))));
    Value::Object(map)
}

/// The text of a set with its elements in Kubernetes' order, which a JSON value does not keep.
pub fn text(set: &Set) -> String {
    let mut out = String::new();
    write_level(set, false, &mut out);
    out
}

fn write_level(set: &Set, member: bool, out: &mut String) {
    out.push('{');
    if member && !set.is_empty() {
        out.push_str("\".\":{},");
    }
    for (i, node) in set.nodes().iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        // The key is JSON text inside of JSON text; only the inner one escapes what HTML minds.
        out.push_str(&Value::String(node.element.encoded()).to_string());
        out.push(':');
        write_level(&node.children, node.member, out);
    }
    out.push('}');
}
