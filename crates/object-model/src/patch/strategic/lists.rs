//! Merging lists: which items meet, and in which order they end up.
//!
//! Items that the patch names come in the patch's order. The others keep their order among themselves, and each is put
//! before the first item of the patch that stood behind it in the live list.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::error::StrategicError;
use super::lookup::Member;
use super::merge::{Mode, adopted, objects};
use super::{DELETE, DIRECTIVE, MERGE, REPLACE, directive};
use crate::value::Object;

/// The type of a list's items: a list that is merged has items of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemKind {
    Null,
    Bool,
    Int,
    Float,
    Text,
    List,
    Object,
}

impl ItemKind {
    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Bool,
            Value::Number(n) if n.is_f64() => Self::Float,
            Value::Number(_) => Self::Int,
            Value::String(_) => Self::Text,
            Value::Array(_) => Self::List,
            Value::Object(_) => Self::Object,
        }
    }

    /// The one type of all items of two lists.
    pub(super) fn common(lists: [&[Value]; 2]) -> Result<Self, StrategicError> {
        let mut kinds = lists.into_iter().flatten().map(Self::of);
        match kinds.next().ok_or(StrategicError::NoItems)? {
            Self::List => Err(StrategicError::ListOfLists),
            Self::Null => Err(StrategicError::mixed_items(lists)),
            kind if kinds.all(|k| k == kind) => Ok(kind),
            _ => Err(StrategicError::mixed_items(lists)),
        }
    }
}

/// What tells an item from the others: the value of its merge key or, without one, the item itself.
pub(super) fn identity<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, StrategicError> {
    let Some(key) = key else { return Ok(item) };
    let object = item.as_object().ok_or_else(|| StrategicError::not_an_object(item))?;
    object.get(key).ok_or_else(|| StrategicError::no_merge_key(object, key))
}

/// Where each item stands in a list; the first one counts when several have the same identity.
struct Positions(HashMap<Value, usize>);

impl Positions {
    fn of(items: &[Value], key: Option<&str>) -> Result<Self, StrategicError> {
        let mut positions = HashMap::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            positions.entry(identity(item, key)?.clone()).or_insert(i);
        }
        Ok(Self(positions))
    }

    fn get(&self, identity: &Value) -> Option<usize> {
        self.0.get(identity).copied()
    }
}

/// Merges a patch's list into another as the field's strategy says.
pub(super) fn merge(
    member: &Member<'_>,
    original: Vec<Value>,
    patch: &[Value],
    mode: Mode,
) -> Result<Vec<Value>, StrategicError> {
    merge_noting_places(member, original, patch, mode, &mut Positions(HashMap::new()))
}

/// The same; items that are new take the places of deleted ones in `live`.
fn merge_noting_places(
    member: &Member<'_>,
    original: Vec<Value>,
    patch: &[Value],
    mode: Mode,
    live: &mut Positions,
) -> Result<Vec<Value>, StrategicError> {
    if !member.patch.merge {
        return Ok(patch.to_vec());
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    match ItemKind::common([&original, patch])? {
        ItemKind::Object => merge_objects(member, original, patch, mode, live),
        _ => {
            let live = Positions::of(&original, member.merge_key())?;
            let mut seen = HashSet::new();
            let all = original.into_iter().chain(patch.iter().cloned());
            let distinct = all.filter(|v| seen.insert(v.clone())).collect();
            arrange(distinct, patch, &live, member.merge_key())
        }
    }
}

/// Removes a patch's `$deleteFromPrimitiveList` items.
pub(super) fn delete(
    member: &Member<'_>,
    original: Vec<Value>,
    patch: &[Value],
    mode: Mode,
) -> Result<Vec<Value>, StrategicError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    match ItemKind::common([&original, patch])? {
        ItemKind::Object => merge_objects(member, original, patch, mode, &mut Positions(HashMap::new())),
        _ => {
            let gone = Positions::of(patch, None)?;
            Ok(original.into_iter().filter(|v| gone.get(v).is_none()).collect())
        }
    }
}

/// Merges lists of objects by their merge key.
fn merge_objects(
    member: &Member<'_>,
    mut original: Vec<Value>,
    patch: &[Value],
    mode: Mode,
    places: &mut Positions,
) -> Result<Vec<Value>, StrategicError> {
    let key = member.merge_key().ok_or(StrategicError::NoDeclaredMergeKey)?;
    let size = original.len();
    let (changes, replace) = carry_out_directives(&mut original, patch, key)?;
    if replace {
        let replacement: Vec<Value> = changes.into_iter().cloned().collect();
        let live = Positions::of(&replacement, Some(key))?;
        return arrange(replacement, &[], &live, Some(key));
    }
    let live = Positions::of(&original, Some(key))?;
    places.0.clone_from(&live.0);
    let mut at = Positions(live.0.clone());
    let mut merged = original;
    for item in &changes {
        let name = identity(item, Some(key))?;
        match at.get(name).and_then(|i| merged.get_mut(i)) {
            Some(old) => {
                if let (Value::Object(old), Value::Object(patch)) = (&mut *old, item) {
                    let old_fields = std::mem::take(old);
                    *old = objects(member.schema, old_fields, patch, mode)?;
                }
            }
            None => {
                at.0.insert(name.clone(), merged.len());
                if merged.len() < size {
                    places.0.insert(name.clone(), merged.len());
                }
                merged.push((*item).clone());
            }
        }
    }
    let order: Vec<Value> = changes.into_iter().map(|item| key_only(item, key)).collect();
    arrange(merged, &order, &live, Some(key))
}

/// Deletes what the patch's items with directives delete. Returns its other items, and whether they replace the list.
fn carry_out_directives<'p>(
    original: &mut Vec<Value>,
    patch: &'p [Value],
    key: &str,
) -> Result<(Vec<&'p Value>, bool), StrategicError> {
    let (mut changes, mut deleted, mut replace) = (Vec::new(), Vec::new(), false);
    for item in patch {
        let Some(directive) = directive(item) else {
            changes.push(item);
            continue;
        };
        match directive.as_str() {
            Some(DELETE) => deleted.push(identity(item, Some(key))?),
            Some(REPLACE) => replace = true,
            Some(MERGE) => return Err(StrategicError::MergeDirectiveInList),
            _ => {
                return Err(item.as_object().map(StrategicError::unknown_directive).unwrap_or(StrategicError::NoItems));
            }
        }
    }
    if !deleted.is_empty() {
        let deleted: HashSet<&Value> = deleted.into_iter().collect();
        original.retain(|item| item.get(key).is_none_or(|k| !deleted.contains(k)));
    }
    Ok((changes, replace))
}

/// Merges a list that comes with a `$setElementOrder` list. Either side may be missing, not both.
pub(super) fn merge_in_order(
    member: &Member<'_>,
    live: Option<Vec<Value>>,
    changes: Option<&[Value]>,
    order: &[Value],
    mode: Mode,
) -> Result<Vec<Value>, StrategicError> {
    let key = member.merge_key();
    let kind = ItemKind::common([live.as_deref().unwrap_or_default(), changes.unwrap_or_default()])?;
    if kind == ItemKind::Object && key.is_none() {
        return Err(StrategicError::NoDeclaredMergeKey);
    }
    let mut places = Positions::of(live.as_deref().unwrap_or_default(), key)?;
    let merged = match (live, changes) {
        (Some(live), None) => live,
        (Some(live), Some(changes)) => merge_noting_places(member, live, changes, mode, &mut places)?,
        (None, changes) => changes.unwrap_or_default().iter().filter_map(|v| adopted(v, Mode::Combine)).collect(),
    };
    match order.iter().position(|item| !item.is_object()) {
        Some(i) if kind == ItemKind::Object && !merged.is_empty() => Err(StrategicError::NotAnObject(i)),
        _ => arrange(merged, order, &places, key),
    }
}

/// Checks that the items of a patch's list come in the order that its `$setElementOrder` list gives them.
pub(super) fn check_order(member: &Member<'_>, patch: &[Value], order: &[Value]) -> Result<(), StrategicError> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let key = member.merge_key();
    if let Some(item) = patch.iter().find(|item| key.is_some() && !item.is_object()) {
        return Err(StrategicError::not_an_object(item));
    }
    let mut wanted = order.iter();
    for item in patch.iter().filter(|item| directive(item).is_none()) {
        let name = identity(item, key)?;
        loop {
            match wanted.next() {
                Some(next) if identity(next, key)? == name => break,
                Some(_) => {}
                None => return Err(StrategicError::order_mismatch(patch, order)),
            }
        }
    }
    Ok(())
}

/// An item while the list is put in order.
struct Placed {
    item: Value,
    /// In the order that is asked for.
    wanted: Option<usize>,
    /// In the live list.
    live: Option<usize>,
}

/// Puts merged items in order: those in `order` as it says, the others as in the live list, woven together.
fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    live: &Positions,
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicError> {
    let order = Positions::of(order, key)?;
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        let name = identity(&item, key)?;
        let (wanted, live) = (order.get(name), live.get(name));
        if wanted.is_some() { &mut named } else { &mut others }.push(Placed { item, wanted, live });
    }
    sort_by(&mut named, |p| p.wanted);
    sort_by(&mut others, |p| p.live);

    let mut others = others.into_iter().peekable();
    let mut out = Vec::with_capacity(named.len() + others.len());
    for next in named {
        let stood_before = |other: &Placed| matches!((other.live, next.live), (Some(o), Some(n)) if o < n);
        while let Some(other) = others.next_if(stood_before) {
            out.push(other.item);
        }
        out.push(next.item);
    }
    out.extend(others.map(|p| p.item));
    Ok(out)
}

/// Sorts by position; items to delete, which only a patch of a patch has, come last.
fn sort_by(items: &mut Vec<Placed>, position: impl Fn(&Placed) -> Option<usize>) {
    let deletes = |p: &Placed| directive(&p.item).is_some_and(|d| d == DELETE);
    let (deletions, mut kept): (Vec<_>, Vec<_>) = items.drain(..).partition(deletes);
    if kept.iter().all(|p| position(p).is_some()) {
        kept.sort_by_key(&position);
    } else {
        // An empty `$setElementOrder` list leaves new items without a position. Kubernetes then takes each of a pair to
        // come first, and the result shows its insertion sort of short lists; for longer ones there is nothing to match.
        let before = |a: &Placed, b: &Placed| !matches!((position(a), position(b)), (Some(a), Some(b)) if a >= b);
        for block in kept.chunks_mut(20) {
            for end in 1..block.len() {
                let mut i = end;
                while i > 0 && before(&block[i], &block[i - 1]) {
                    block.swap(i, i - 1);
                    i -= 1;
                }
            }
        }
    }
    items.extend(kept.into_iter().chain(deletions));
}

/// An object that has only the merge key of another.
pub(super) fn key_only(item: &Value, key: &str) -> Value {
    let value = item.get(key).cloned().unwrap_or_default();
    Value::Object(Object::from_iter([(key.to_owned(), value)]))
}

/// `{<key>: value, $patch: delete}`.
pub(super) fn deletion(item: &Value, key: &str) -> Value {
    let mut value = key_only(item, key);
    if let Value::Object(map) = &mut value {
        map.insert(DIRECTIVE.to_owned(), Value::from(DELETE));
    }
    value
}
