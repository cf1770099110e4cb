//! What server-side apply sees of a schema: every position is a leaf, a list or a map.
//!
//! Where the schema says nothing the value decides: objects are maps of the same kind, all else is a leaf.

use serde_json::Value;

use super::element::Element;
use crate::schema::{ListKind, Ref, Scalar, Shape};
use crate::value::Object;

/// A position in a schema.
#[derive(Clone, Copy)]
pub(super) enum View<'a> {
    Typed(Ref<'a>),
    /// No schema here: the value decides.
    Deduced,
}

/// What a position is.
pub(super) enum Form<'a> {
    /// A scalar; the type is missing where the schema leaves it open.
    Leaf(Option<Scalar>),
    List(ListView<'a>),
    Map(MapView<'a>),
}

#[derive(Clone, Copy)]
pub(super) struct ListView<'a> {
    pub(super) item: View<'a>,
    kind: &'a ListKind,
}

#[derive(Clone, Copy)]
pub(super) struct MapView<'a> {
    of: View<'a>,
    pub(super) atomic: bool,
}

/// An entry of a map.
pub(super) struct Entry<'a> {
    pub(super) view: View<'a>,
    /// Named by the schema: then the entry belongs to nobody by itself, only what is in it does.
    pub(super) named: bool,
    /// The schema allows it.
    pub(super) known: bool,
}

impl<'a> View<'a> {
    /// What the position is for a value. Null and values of a wrong type get the declared form; where none is
    /// declared, null is a map without entries.
    pub(super) fn form(self, value: Option<&Value>) -> Form<'a> {
        match self {
            View::Typed(at) => match at.shape() {
                Shape::Any => match View::Deduced.form(value) {
                    Form::Map(map) => Form::Map(MapView { atomic: is_raw(at), ..map }),
                    other => other,
                },
                Shape::Scalar(scalar) => Form::Leaf(Some(*scalar)),
                Shape::List(list) => Form::List(ListView { item: View::Typed(at.to(list.item)), kind: &list.kind }),
                Shape::Map(map) => Form::Map(MapView { of: self, atomic: map.atomic }),
                Shape::Struct(s) => Form::Map(MapView { of: self, atomic: s.atomic }),
            },
            View::Deduced => match value {
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Form::Leaf(None),
                Some(Value::Array(_)) => Form::List(ListView { item: self, kind: &ListKind::Atomic }),
                None | Some(Value::Null | Value::Object(_)) => Form::Map(MapView { of: self, atomic: false }),
            },
        }
    }

    /// Does a value of another JSON type make another form of this position?
    pub(super) fn is_open(self) -> bool {
        match self {
            View::Typed(at) => matches!(at.shape(), Shape::Any),
            View::Deduced => true,
        }
    }

    /// The position below one element of a path.
    pub(super) fn below(self, element: &Element) -> Option<Entry<'a>> {
        match (self.form(None), element) {
            (Form::Map(map), Element::Field(name)) => Some(map.entry(name)),
            (Form::List(list), Element::Key(_)) => Some(Entry { view: list.item, named: false, known: true }),
            _ => None,
        }
    }
}

impl<'a> MapView<'a> {
    pub(super) fn entry(self, name: &str) -> Entry<'a> {
        let open = Entry { view: View::Deduced, named: false, known: true };
        let View::Typed(at) = self.of else { return open };
        match at.shape() {
            Shape::Struct(s) => match s.field(name) {
                Some(field) => Entry { view: View::Typed(at.to(field.r#type)), named: true, known: true },
                None => Entry { known: s.preserve_unknown || s.embedded, ..open },
            },
            Shape::Map(map) => Entry { view: View::Typed(at.to(map.value)), ..open },
            _ => open,
        }
    }
}

impl<'a> ListView<'a> {
    pub(super) fn is_atomic(self) -> bool {
        matches!(self.kind, ListKind::Atomic)
    }

    /// The path element of an item, or why it has none.
    pub(super) fn element(self, item: &Value) -> Result<Element, String> {
        match self.kind {
            ListKind::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListKind::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(Element::value(scalar.clone())),
            },
            ListKind::Map(keys) => match item {
                Value::Object(fields) => self.key(keys, fields),
                Value::Null => Err("associative list with keys may not have a null element".to_owned()),
                _ => Err("associative list with keys may not have non-map elements".to_owned()),
            },
        }
    }

    /// A key field that is missing counts with its default, or not at all.
    fn key(self, keys: &[Box<str>], fields: &Object) -> Result<Element, String> {
        let default = |key: &str| match self.item {
            View::Typed(item) => item.key_default(key),
            View::Deduced => None,
        };
        let value = |key: &str| fields.get(key).cloned().or_else(|| default(key));
        let found: Vec<(Box<str>, Value)> =
            keys.iter().filter_map(|key| value(key).map(|value| (key.clone(), value))).collect();
        if found.is_empty() && !keys.is_empty() {
            let quoted: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                quoted.join(" ")
            ));
        }
        Ok(Element::key(found))
    }
}

/// Raw extensions are owned as a whole, other values without a schema field by field.
fn is_raw(at: Ref<'_>) -> bool {
    at.facts().is_some_and(|facts| facts.go.as_deref() == Some("runtime.RawExtension"))
}

/// The items of an associative list with their elements, sorted by these, so that duplicates stand side by side in the
/// order of the list. Items without an element are told to `fail`.
pub(super) fn index<'v>(
    list: ListView<'_>,
    items: &'v [Value],
    mut fail: impl FnMut(String),
) -> Vec<(Element, &'v Value)> {
    let mut found = Vec::with_capacity(items.len());
    for (place, item) in items.iter().enumerate() {
        match list.element(item) {
            Ok(element) => found.push((element, item)),
            Err(why) => fail(format!("element {place}: {why}")),
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// The items of a list, if the value is one.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The entries of an object, if the value is one.
pub(super) fn entries(value: Option<&Value>) -> Option<&Object> {
    value.and_then(Value::as_object)
}

/// The entries of two objects side by side.
pub(super) fn zip<'v>(
    left: Option<&'v Object>,
    right: Option<&'v Object>,
    mut visit: impl FnMut(&'v str, Option<&'v Value>, Option<&'v Value>),
) {
    for (name, value) in left.into_iter().flatten() {
        visit(name, Some(value), right.and_then(|map| map.get(name)));
    }
    for (name, value) in right.into_iter().flatten() {
        if !left.is_some_and(|map| map.contains_key(name)) {
            visit(name, None, Some(value));
        }
    }
}
