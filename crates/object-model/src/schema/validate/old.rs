//! What a value was before an update.
//!
//! A value that does not fit its schema is tolerated where it stood before, unchanged: a schema may become stricter
//! without locking the objects of old. Kubernetes calls this ratcheting. Old and new values correspond by field name and,
//! in keyed lists, by key; items of other lists have no counterpart and are judged with the whole list.
//!
//! Like a path, an [`Old`] lives on the stack and is looked up only when something is wrong.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde_json::Value;

use super::lists::{ItemKey, keys_of};
use crate::schema::Ref;

#[derive(Clone, Copy)]
pub(super) enum Old<'p, 's> {
    /// Nothing corresponds.
    Never,
    Root(Ref<'s>, &'s Value),
    Key(&'p Old<'p, 's>, &'p str),
    /// The item of a keyed list with the same key as this new one.
    Item(&'p OldList<'p, 's>, &'p Value),
}

/// A keyed list of old, indexed when first asked.
pub(super) struct OldList<'p, 's> {
    list: &'p Old<'p, 's>,
    index: OnceCell<Option<OldItems<'s>>>,
}

struct OldItems<'s> {
    node: Ref<'s>,
    keys: &'s [Box<str>],
    by_key: HashMap<ItemKey<'s>, &'s Value>,
}

impl<'s> Old<'_, 's> {
    fn resolve(&self) -> Option<(Ref<'s>, &'s Value)> {
        match *self {
            Old::Never => None,
            Old::Root(node, value) => Some((node, value)),
            Old::Key(parent, name) => {
                let (node, value) = parent.resolve()?;
                Some((node.property(name)?, value.as_object()?.get(name)?))
            }
            Old::Item(list, item) => list.find(item),
        }
    }

    pub(super) fn is_unchanged(&self, new: &Value) -> bool {
        self.resolve().is_some_and(|(node, old)| is_unchanged(node, old, new))
    }
}

impl<'p, 's> OldList<'p, 's> {
    pub(super) fn new(list: &'p Old<'p, 's>) -> Self {
        Self { list, index: OnceCell::new() }
    }

    pub(super) fn item<'a>(&'a self, item: &'a Value) -> Old<'a, 's> {
        match self.list {
            Old::Never => Old::Never,
            _ => Old::Item(self, item),
        }
    }

    fn find(&self, item: &Value) -> Option<(Ref<'s>, &'s Value)> {
        let items = self.index.get_or_init(|| {
            let (node, value) = self.list.resolve()?;
            OldItems::new(node, value.as_array()?)
        });
        items.as_ref()?.find(item)
    }
}

impl<'s> OldItems<'s> {
    fn new(list: Ref<'s>, items: &'s [Value]) -> Option<Self> {
        let keys = keys_of(list)?;
        let mut by_key = HashMap::with_capacity(items.len());
        for item in items.iter().filter(|item| ItemKey { item, keys }.is_complete()) {
            by_key.entry(ItemKey { item, keys }).or_insert(item);
        }
        Some(Self { node: list.element()?, keys, by_key })
    }

    fn find(&self, item: &Value) -> Option<(Ref<'s>, &'s Value)> {
        let key = ItemKey { item, keys: self.keys };
        let old = self.by_key.get(&key).copied().filter(|_| key.is_complete())?;
        Some((self.node, old))
    }
}

/// The same, apart from the order of keyed lists. Fields that the schema does not name never count as unchanged.
fn is_unchanged(node: Ref<'_>, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old), Value::Array(new)) if keys_of(node).is_some() => {
            let items = OldItems::new(node, old);
            old.len() == new.len()
                && items.is_some_and(|items| {
                    new.iter().all(|item| items.find(item).is_some_and(|(node, old)| is_unchanged(node, old, item)))
                })
        }
        (Value::Object(old), Value::Object(new)) => {
            old.len() == new.len()
                && new.iter().all(|(name, new)| match (node.property(name), old.get(name)) {
                    (Some(node), Some(old)) => is_unchanged(node, old, new),
                    _ => false,
                })
        }
        _ => old == new,
    }
}
