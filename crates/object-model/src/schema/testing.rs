//! What the tests of custom schemas share: an `ObjectMeta` to copy, and arbitrary schemas and values.

use std::sync::{Arc, LazyLock};

use proptest::prelude::*;
use serde_json::{Map as Object, Value, json};

use super::custom::{self, Options};
use super::*;
use crate::field::{Errors, Path};

static OBJECT_META: LazyLock<Schema> = LazyLock::new(|| {
    let mut types = Types::default();
    let mut add = |shape| types.add(Type::new(shape));
    let text = add(Shape::Scalar(Scalar::String));
    let int = add(Shape::Scalar(Scalar::Int64));
    let flag = add(Shape::Scalar(Scalar::Bool));
    let time = add(Shape::Scalar(Scalar::Time));
    let texts = add(Shape::List(List { item: text, kind: ListKind::Set }));
    let labels = add(Shape::Map(Map { value: text, atomic: false }));
    let field = |name: &str, id, omit, pointer| Field {
        name: name.into(),
        r#type: id,
        number: 0,
        omit,
        pointer,
        required: false,
        patch: Patch::default(),
    };
    let structure = |name: &str, fields: Vec<Field>| {
        Shape::Struct(Struct {
            name: format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}").into(),
            fields: fields.into(),
            atomic: false,
            preserve_unknown: false,
            embedded: false,
        })
    };
    let owner = add(structure(
        "OwnerReference",
        vec![
            field("apiVersion", text, Omit::Never, false),
            field("controller", flag, Omit::Empty, true),
            field("kind", text, Omit::Never, false),
            field("name", text, Omit::Never, false),
            field("uid", text, Omit::Never, false),
        ],
    ));
    let owners = add(Shape::List(List { item: owner, kind: ListKind::Map(["uid".into()].into()) }));
    let root = add(structure(
        "ObjectMeta",
        vec![
            field("annotations", labels, Omit::Empty, false),
            field("creationTimestamp", time, Omit::Zero, false),
            field("finalizers", texts, Omit::Empty, false),
            field("generateName", text, Omit::Empty, false),
            field("generation", int, Omit::Empty, false),
            field("labels", labels, Omit::Empty, false),
            field("name", text, Omit::Empty, false),
            field("namespace", text, Omit::Empty, false),
            field("ownerReferences", owners, Omit::Empty, false),
            field("resourceVersion", text, Omit::Empty, false),
            field("uid", text, Omit::Empty, false),
        ],
    ));
    Schema::new(Arc::new(types), root)
});

pub(super) fn parse(schema: &Value, at: &Path<'_>, options: Options) -> Result<Schema, Errors> {
    custom::parse(schema, OBJECT_META.root(), at, options)
}

/// Builds a schema that need not pass the checks.
#[track_caller]
pub(super) fn load(schema: Value) -> Schema {
    custom::load(&schema, OBJECT_META.root()).expect("a readable schema")
}

pub(super) fn messages(errors: &Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// Names that schemas and values draw from, so that they meet.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned),
        1 => prop::sample::select(vec!["metadata", "kind", "apiVersion", "name", "labels"]).prop_map(str::to_owned),
        1 => "[a-z.\\[\\]é]{0,3}",
    ]
}

pub(super) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..10).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["", "a", "abc", "10.0.0.1", "2024-01-01", "1h", "é"]).prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Anything with the form of a schema, structural or not.
pub(super) fn any_schema() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!({"type": "string"}),
        json!({"type": "integer", "format": "int32"}),
        json!({"type": "number", "multipleOf": 0.5}),
        json!({"type": "boolean", "default": true}),
        json!({"x-kubernetes-int-or-string": true}),
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        json!({"type": "object"}),
        json!({"type": "nope"}),
        json!({}),
    ]);
    leaf.prop_recursive(4, 24, 3, |inner| (composite(inner), extras()).prop_map(|(base, extra)| merge(base, extra)))
}

fn composite(inner: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Value> {
    let properties = prop::collection::btree_map(name(), inner.clone(), 0..4);
    prop_oneof![
        4 => (properties, any::<bool>(), any::<bool>()).prop_map(|(properties, preserve, embedded)| {
            let mut schema = json!({"type": "object", "properties": properties});
            if preserve { schema["x-kubernetes-preserve-unknown-fields"] = true.into(); }
            if embedded { schema["x-kubernetes-embedded-resource"] = true.into(); }
            schema
        }),
        2 => (inner.clone(), prop::sample::select(vec!["atomic", "set", "map"])).prop_map(|(items, list_type)| {
            json!({"type": "array", "items": items, "x-kubernetes-list-type": list_type,
                "x-kubernetes-list-map-keys": if list_type == "map" { json!(["a"]) } else { json!([]) }})
        }),
        1 => inner.clone().prop_map(|inner| json!({"type": "object", "additionalProperties": inner})),
        1 => any::<bool>().prop_map(|flag| json!({"type": "object", "additionalProperties": flag})),
        1 => prop::collection::vec(inner.clone(), 1..3).prop_map(|branches| json!({"type": "object", "anyOf": branches})),
        1 => prop::collection::vec(inner.clone(), 1..3).prop_map(|branches| json!({"oneOf": branches})),
        1 => (prop::collection::vec(inner.clone(), 1..3), inner.clone()).prop_map(|(all, not)| json!({"allOf": all, "not": not})),
        1 => (inner.clone(), inner).prop_map(|(property, items)| {
            json!({"x-kubernetes-preserve-unknown-fields": true, "properties": {"a": property}, "items": items})
        }),
    ]
}

fn extras() -> impl Strategy<Value = Value> {
    let extra = prop_oneof![
        Just(json!({})),
        Just(json!({"nullable": true})),
        any_value().prop_map(|default| json!({"default": default})),
        prop::collection::vec(name(), 0..3).prop_map(|names| json!({"required": names})),
        Just(json!({"minLength": 1, "maxLength": 2, "pattern": "^[a-c]+$"})),
        prop::sample::select(vec!["date-time", "ipv4", "email", "uri", "duration", "int32", "float", "hostname"])
            .prop_map(|format| json!({"format": format})),
        (-2f64..2.0).prop_map(|bound| json!({"minimum": bound, "maximum": bound + 1.0, "exclusiveMaximum": true})),
        prop::collection::vec(any_value(), 1..3).prop_map(|values| json!({"enum": values})),
        Just(json!({"minItems": 1, "maxItems": 1, "minProperties": 1, "maxProperties": 1})),
        ".{0,8}".prop_map(|pattern| json!({"pattern": pattern})),
    ];
    (extra.clone(), extra).prop_map(|(a, b)| merge(a, b))
}

fn merge(mut base: Value, extra: Value) -> Value {
    if let (Value::Object(base), Value::Object(extra)) = (&mut base, extra) {
        base.extend(extra);
    }
    base
}

/// An object, whatever is in it.
pub(super) fn any_object() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(name(), any_value(), 0..5)
        .prop_map(|m| Value::Object(m.into_iter().collect::<Object<_, _>>()))
}
