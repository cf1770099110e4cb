//! A schema with a field for each way to be patched, and random objects of it.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;

use crate::schema::{Field, List, ListKind, Map, Omit, Patch, Scalar, Schema, Shape, Struct, Type, TypeId, Types};
use crate::value::Object;

/// The kind `Item`: it holds itself as a field, in merged and plain lists and in a map.
pub(super) fn item() -> Schema {
    let mut types = Types::default();
    let add = |types: &mut Types, shape| types.add(Type::new(shape));
    let text = add(&mut types, Shape::Scalar(Scalar::String));
    let number = add(&mut types, Shape::Scalar(Scalar::Int64));
    let any = add(&mut types, Shape::Any);
    let item = add(&mut types, Shape::Any);
    let list = |item| Shape::List(List { item, kind: ListKind::Atomic });
    let items = add(&mut types, list(item));
    let texts = add(&mut types, list(text));
    let numbers = add(&mut types, list(number));
    let map = |value| Shape::Map(Map { value, atomic: false });
    let (labels, item_map) = (add(&mut types, map(text)), add(&mut types, map(item)));
    let extra = add(&mut types, map(texts));

    let plain = Patch::default;
    let merge = |key: Option<&str>| Patch { merge: true, merge_key: key.map(Into::into), ..plain() };
    let field = |name: &str, r#type: TypeId, patch: Patch| Field {
        name: name.into(),
        r#type,
        number: 0,
        omit: Omit::Empty,
        pointer: false,
        required: false,
        patch,
    };
    let mut fields = vec![
        field("name", text, plain()),
        field("value", text, plain()),
        field("port", number, plain()),
        field("child", item, plain()),
        field("merged", items, merge(Some("name"))),
        field("ports", items, merge(Some("port"))),
        field("plain", items, plain()),
        field("set", texts, merge(None)),
        field("numbers", numbers, merge(None)),
        field("list", texts, plain()),
        field("keyless", items, merge(None)),
        field("labels", labels, plain()),
        field("items", item_map, plain()),
        field("extra", extra, plain()),
        field("raw", any, plain()),
        field("retain", item, Patch { retain_keys: true, ..plain() }),
        field("union", items, Patch { retain_keys: true, ..merge(Some("name")) }),
        field("whole", item, Patch { replace: true, ..plain() }),
    ];
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    let shape = Struct {
        name: "test.Item".into(),
        fields: fields.into(),
        atomic: false,
        preserve_unknown: false,
        embedded: false,
    };
    types.set(item, Type::new(Shape::Struct(shape)));
    Schema::new(Arc::new(types), item)
}

/// A random item without nulls; lists that are merged have distinct keys.
pub(super) fn object() -> impl Strategy<Value = Object> {
    leaf_object().prop_recursive(2, 16, 3, |inner| {
        let lists =
            (keyed_list("name", inner.clone()), keyed_list("port", inner.clone()), keyed_list("name", inner.clone()));
        let fields = (
            leaf_object(),
            lists,
            prop::collection::vec(inner.clone().prop_map(Value::Object), 0..3),
            [optional(inner.clone()), optional(inner.clone()), optional(inner)],
        );
        fields.prop_map(|(mut object, (merged, ports, union), plain, [child, retain, whole])| {
            for (name, items) in [("merged", merged), ("ports", ports), ("union", union), ("plain", Some(plain))] {
                if let Some(items) = items {
                    object.insert(name.to_owned(), Value::Array(items));
                }
            }
            for (name, value) in [("child", child), ("retain", retain), ("whole", whole)] {
                if let Some(value) = value {
                    object.insert(name.to_owned(), Value::Object(value));
                }
            }
            object
        })
    })
}

fn optional<T: Strategy<Value = Object>>(inner: T) -> impl Strategy<Value = Option<Object>> {
    prop::option::weighted(0.3, inner)
}

fn keyed_list<T>(key: &'static str, inner: T) -> impl Strategy<Value = Option<Vec<Value>>>
where
    T: Strategy<Value = Object> + Clone,
{
    let keys = prop::sample::subsequence(vec![1, 2, 3, 10], 0..4).prop_shuffle();
    let items = (keys, prop::collection::vec(inner, 3)).prop_map(move |(keys, objects)| {
        let named = keys.into_iter().zip(objects).map(|(k, mut object)| {
            let value = if key == "port" { Value::from(k) } else { Value::from(format!("n{k}")) };
            object.insert(key.to_owned(), value);
            Value::Object(object)
        });
        named.collect()
    });
    prop::option::weighted(0.6, items)
}

/// Scalars, lists and maps of scalars.
fn leaf_object() -> BoxedStrategy<Object> {
    let some = prop::option::of(prop_oneof![Just("x"), Just("y"), Just("z")]);
    let set = prop::sample::subsequence(vec!["a", "b", "c", "d"], 0..4).prop_shuffle();
    let numbers = prop::sample::subsequence(vec![1, 2, 3, 10], 0..4).prop_shuffle();
    let labels = prop::collection::btree_map("[kl]", "[vw]", 0..3);
    let list = prop::collection::vec(prop_oneof![Just("a"), Just("b")], 0..3);
    let optional = (prop::option::of(set), prop::option::of(numbers), prop::option::of(labels), prop::option::of(list));
    (some.clone(), some, optional)
        .prop_map(|(name, value, (set, numbers, labels, list))| {
            let fields = [
                ("name", name.map(Value::from)),
                ("value", value.map(Value::from)),
                ("set", set.map(Value::from)),
                ("numbers", numbers.map(Value::from)),
                ("labels", labels.map(|m| m.into_iter().map(|(k, v)| (k, Value::from(v))).collect())),
                ("list", list.map(Value::from)),
            ];
            fields.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v?))).collect()
        })
        .boxed()
}

/// Three random items with much in common.
pub(super) fn three_objects() -> impl Strategy<Value = [Object; 3]> {
    (object(), object(), object(), any::<u64>()).prop_map(|(base, b, c, mut choice)| {
        let b = mix(&base, &b, &mut choice);
        let c = mix(&base, &c, &mut choice);
        [base, b, c]
    })
}

/// Most of `base`, with some fields and items of `other`.
fn mix(base: &Object, other: &Object, choice: &mut u64) -> Object {
    let mut mixed = base.clone();
    for (name, value) in other {
        *choice = choice.rotate_left(3) ^ 0x9e37_79b9;
        match (mixed.get_mut(name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => *old = mix(old, new, choice),
            (Some(Value::Array(old)), Value::Array(new)) if *choice % 8 < 3 && name != "plain" => {
                let key = if name == "ports" { "port" } else { "name" };
                let known = |v: &Value| old.iter().any(|o| o == v || v.is_object() && o.get(key) == v.get(key));
                let fresh: Vec<Value> = new.iter().filter(|v| !known(v)).cloned().collect();
                old.truncate(2);
                old.extend(fresh);
                if !old.is_empty() {
                    old.rotate_left(1);
                }
            }
            _ if *choice % 8 == 3 => {
                mixed.remove(name);
            }
            _ if *choice % 8 > 4 => {
                mixed.insert(name.clone(), value.clone());
            }
            _ => {}
        }
    }
    mixed
}

/// A random patch, hostile in places: directives where they belong and where they do not, nulls, values of all types.
pub(super) fn patch() -> impl Strategy<Value = Object> {
    let scalar = prop_oneof![
        3 => prop_oneof![Just("a"), Just("x"), Just("n1"), Just("n2")].prop_map(Value::from),
        2 => prop_oneof![Just(1), Just(2), Just(10)].prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(Value::from(1.5)),
        1 => prop_oneof![Just("delete"), Just("replace"), Just("merge")].prop_map(Value::from),
    ];
    let names = prop_oneof![
        6 => prop::sample::select(vec!["name", "port", "value", "child", "merged", "ports", "set", "numbers", "labels", "union"]),
        2 => prop::sample::select(vec!["retain", "whole", "plain", "list", "items", "extra", "raw", "keyless", "nope"]),
        1 => prop::sample::select(vec!["$patch", "$retainKeys", "$setElementOrder/merged", "$setElementOrder/set"]),
        1 => prop::sample::select(vec![
            "$setElementOrder/ports", "$deleteFromPrimitiveList/set", "$deleteFromPrimitiveList/numbers",
            "$setElementOrder", "$deleteFromPrimitiveList", "$setElementOrder/nope", "$setElementOrder/plain",
        ]),
    ];
    let value = scalar.prop_recursive(5, 48, 4, move |inner| {
        let fields = (names.clone(), inner.clone()).prop_map(|(name, value)| (name.to_owned(), value));
        prop_oneof![
            2 => prop::collection::vec(fields, 0..5).prop_map(|m| Value::Object(m.into_iter().collect())),
            1 => prop::collection::vec(inner, 0..4).prop_map(Value::from),
        ]
    });
    value.prop_map(|v| if let Value::Object(map) = v { map } else { Object::from_iter([("child".to_owned(), v)]) })
}
