//! The patch between two objects.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::Value;

use super::super::GoPrint;
use super::error::StrategicError;
use super::lists::{ItemKind, deletion, identity, key_only};
use super::lookup::Member;
use super::{DELETE_FROM_LIST, ELEMENT_ORDER, RETAIN_KEYS};
use crate::schema::Ref;
use crate::value::Object;

/// Which part of the difference is wanted.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// What `modified` adds or sets.
    pub changes: bool,
    /// What `modified` no longer has.
    pub deletions: bool,
    /// `$setElementOrder` for merged lists.
    pub order: bool,
}

pub(super) fn objects(
    schema: Ref<'_>,
    original: &Object,
    modified: &Object,
    options: Options,
) -> Result<Object, StrategicError> {
    let mut patch = Object::new();
    for (name, new) in modified {
        let old = original.get(name);
        match (old, new) {
            (Some(old), new) if old == new => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                object_field(schema, name, old, new, options, &mut patch)?
            }
            (Some(Value::Array(old)), Value::Array(new)) => list_field(schema, name, old, new, options, &mut patch)?,
            _ if options.changes => {
                patch.insert(name.clone(), new.clone());
            }
            _ => {}
        }
    }
    if options.deletions {
        for name in original.keys().filter(|n| !modified.contains_key(*n)) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    Ok(patch)
}

fn object_field(
    schema: Ref<'_>,
    name: &str,
    old: &Object,
    new: &Object,
    options: Options,
    patch: &mut Object,
) -> Result<(), StrategicError> {
    let member = Member::object(schema, name)?;
    let value = if member.patch.replace {
        if !options.changes {
            return Ok(());
        }
        new.clone()
    } else {
        retaining(&member, old, new, options)?
    };
    if !value.is_empty() || member.patch.replace {
        patch.insert(name.to_owned(), Value::Object(value));
    }
    Ok(())
}

/// The difference of two objects, with the keys to retain where the strategy asks for them.
fn retaining(member: &Member<'_>, old: &Object, new: &Object, options: Options) -> Result<Object, StrategicError> {
    let mut patch = objects(member.schema, old, new, options)?;
    if member.patch.retain_keys {
        let keys: Vec<&String> = new.iter().filter(|(_, v)| !v.is_null()).map(|(k, _)| k).collect();
        let loses = || old.iter().any(|(k, v)| !v.is_null() && !new.contains_key(k));
        if !keys.is_empty() && (!patch.is_empty() || loses()) {
            let mut keys: Vec<Value> = keys.into_iter().map(|k| Value::from(k.as_str())).collect();
            keys.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
            patch.insert(RETAIN_KEYS.to_owned(), Value::Array(keys));
        }
    }
    Ok(patch)
}

fn list_field(
    schema: Ref<'_>,
    name: &str,
    old: &[Value],
    new: &[Value],
    options: Options,
    patch: &mut Object,
) -> Result<(), StrategicError> {
    let member = Member::list(schema, name)?;
    if !member.patch.merge || old.is_empty() {
        if options.changes {
            patch.insert(name.to_owned(), Value::from(new));
        }
        return Ok(());
    }
    let mut add = |key: String, items: Vec<Value>| {
        if !items.is_empty() {
            patch.insert(key, Value::Array(items));
        }
    };
    if ItemKind::common([old, new])? == ItemKind::Object {
        let (items, order) = lists_of_objects(&member, old, new, options)?;
        add(name.to_owned(), items);
        add(format!("{ELEMENT_ORDER}/{name}"), order);
    } else {
        let (olds, news): (HashSet<&Value>, HashSet<&Value>) = (old.iter().collect(), new.iter().collect());
        if options.changes {
            add(name.to_owned(), new.iter().filter(|v| !olds.contains(v)).cloned().collect());
        }
        let mut gone: Vec<Value> = old.iter().filter(|v| options.deletions && !news.contains(v)).cloned().collect();
        gone.sort_by_cached_key(|v| GoPrint(v).to_string());
        gone.dedup();
        if options.order && (options.changes || !gone.is_empty()) {
            add(format!("{ELEMENT_ORDER}/{name}"), new.to_vec());
        }
        add(format!("{DELETE_FROM_LIST}/{name}"), gone);
    }
    Ok(())
}

/// The changed items, deletions last, and the order of all items if it matters.
fn lists_of_objects(
    member: &Member<'_>,
    old: &[Value],
    new: &[Value],
    options: Options,
) -> Result<(Vec<Value>, Vec<Value>), StrategicError> {
    let key = member.merge_key().ok_or(StrategicError::NoDeclaredMergeKey)?;
    let mut olds: HashMap<&Value, VecDeque<&Value>> = HashMap::new();
    for item in old {
        olds.entry(identity(item, Some(key))?).or_default().push_back(item);
    }
    let mut items = Vec::new();
    let mut news = HashSet::new();
    for item in new {
        let id = identity(item, Some(key))?;
        news.insert(id);
        match (olds.get_mut(id).and_then(VecDeque::pop_front), item) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let mut patch = retaining(member, old, new, options)?;
                if !patch.is_empty() {
                    patch.insert(key.to_owned(), id.clone());
                    items.push(Value::Object(patch));
                }
            }
            _ if options.changes => items.push(item.clone()),
            _ => {}
        }
    }
    if options.deletions {
        let mut gone: Vec<&Value> =
            old.iter().filter(|item| item.get(key).is_some_and(|k| !news.contains(k))).collect();
        gone.sort_by_cached_key(|item| item.get(key).map(|k| GoPrint(k).to_string()));
        gone.dedup_by_key(|item| item.get(key));
        items.extend(gone.into_iter().map(|item| deletion(item, key)));
    }
    let moved = || old.len() != new.len() || old.iter().zip(new).any(|(o, n)| o.get(key) != n.get(key));
    let wanted = options.order && (!items.is_empty() || (options.changes && moved()));
    let order = if wanted { new.iter().map(|item| key_only(item, key)).collect() } else { Vec::new() };
    Ok((items, order))
}
