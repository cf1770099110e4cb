//! Sets without duplicates and keyed lists without duplicate keys.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use serde_json::{Map, Value};

use crate::field::{Errors, Path};
use crate::schema::{ListKind, Ref, Shape};

/// Up to this length a list is compared pair by pair, which needs no memory.
const SHORT: usize = 16;

/// An item of a keyed list, equal to another by its keys alone.
#[derive(Clone, Copy)]
pub(super) struct ItemKey<'a> {
    pub(super) item: &'a Value,
    pub(super) keys: &'a [Box<str>],
}

impl<'a> ItemKey<'a> {
    fn values(self) -> impl Iterator<Item = Option<&'a Value>> {
        self.keys.iter().map(move |key| self.item.get(&**key))
    }

    pub(super) fn is_complete(self) -> bool {
        self.values().all(|value| value.is_some())
    }

    /// The keys as an object, as shown in messages.
    fn shown(self) -> Value {
        let pairs = self.keys.iter().zip(self.values());
        pairs.filter_map(|(key, value)| Some((key.to_string(), value?.clone()))).collect::<Map<_, _>>().into()
    }
}

impl PartialEq for ItemKey<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.values().eq(other.values())
    }
}

impl Eq for ItemKey<'_> {}

impl Hash for ItemKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values().for_each(|value| value.hash(state));
    }
}

/// The keys of a keyed list.
pub(super) fn keys_of(list: Ref<'_>) -> Option<&[Box<str>]> {
    match list.shape() {
        Shape::List(list) => match &list.kind {
            ListKind::Map(keys) if !keys.is_empty() => Some(keys),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn check(root: Ref<'_>, object: &Value, errors: &mut Errors) {
    walk(root, object, &Path::Root, errors);
}

fn walk(node: Ref<'_>, value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if node.is_built_in() {
        return;
    }
    match value {
        Value::Array(items) => {
            if let Shape::List(list) = node.shape() {
                match &list.kind {
                    ListKind::Set => check_set(items, path, errors),
                    ListKind::Map(keys) => check_keys(items, keys, path, errors),
                    ListKind::Atomic => {}
                }
            }
            let Some(item_node) = node.element() else { return };
            for (index, item) in items.iter().enumerate() {
                walk(item_node, item, &path.index(index), errors);
            }
        }
        Value::Object(object) => {
            for (name, value) in object {
                if let Some(child) = node.property(name) {
                    walk(child, value, &node.step(path, name), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_set(items: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for index in second_occurrences(items.len(), |index| &items[index]) {
        errors.duplicate(&path.index(index), items[index].clone());
    }
}

fn check_keys(items: &[Value], keys: &[Box<str>], path: &Path<'_>, errors: &mut Errors) {
    if let Some((index, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        return errors.invalid(&path.index(index), item.clone(), detail);
    }
    let key = |index: usize| ItemKey { item: &items[index], keys };
    for index in second_occurrences(items.len(), key) {
        errors.duplicate(&path.index(index), key(index).shown());
    }
}

/// Where something occurs for the second time; third and later times are not told.
fn second_occurrences<K: Eq + Hash>(length: usize, key: impl Fn(usize) -> K) -> Vec<usize> {
    if length <= SHORT {
        let earlier = |index: usize| (0..index).filter(|other| key(*other) == key(index)).count();
        return (0..length).filter(|index| earlier(*index) == 1).collect();
    }
    let mut times: HashMap<K, usize> = HashMap::with_capacity(length);
    (0..length)
        .filter(|index| {
            let times = times.entry(key(*index)).or_default();
            *times += 1;
            *times == 2
        })
        .collect()
}
