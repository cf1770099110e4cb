use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::testing::{any_object, any_schema, load};

#[track_caller]
fn pruned(schema: Value, mut object: Value, expected: Value, unknown: &[&str]) {
    let schema = load(json!({"type": "object", "properties": schema}));
    assert_eq!(prune(&schema, &mut object), unknown);
    assert_eq!(object, expected);
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

#[test]
fn unknown_fields_go() {
    let known = object(json!({"a": {"type": "integer"}, "c": {"type": "integer"}}));
    pruned(
        json!({"array": {"type": "array", "items": known}, "specified": known}),
        json!({
            "array": [{"a": 1}, {"b": 1}, {"a": 1, "b": 2, "c": 3}],
            "unspecified": {"a": 1},
            "specified": {"a": 1, "b": 2, "c": 3},
        }),
        json!({"array": [{"a": 1}, {}, {"a": 1, "c": 3}], "specified": {"a": 1, "c": 3}}),
        &["array[1].b", "array[2].b", "specified.b", "unspecified"],
    );
    // A scalar says nothing of fields; that there is an object is for validation to refuse.
    pruned(json!({"s": {"type": "string"}}), json!({"s": {"x": 1}}), json!({"s": {}}), &["s.x"]);
}

#[test]
fn preserving_holds_until_a_schema_is_specified() {
    let preserving = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let pruning = json!({"type": "object"});
    let mut both = preserving.clone();
    both["properties"] = json!({"preserving": preserving, "pruning": pruning,
        "anything": {"x-kubernetes-preserve-unknown-fields": true}});
    let inside = json!({
        "unknown": {"x": 1},
        "pruning": {"x": 1},
        "preserving": {"x": 1},
        "anything": [{"x": true}],
    });
    pruned(
        json!({"outer": both, "strict": object(json!({"preserving": preserving, "pruning": pruning}))}),
        json!({"outer": inside, "strict": {"apiVersion": "x", "x": 1, "pruning": {"x": 1}, "preserving": {"x": 1}}}),
        json!({
            "outer": {"unknown": {"x": 1}, "pruning": {}, "preserving": {"x": 1}, "anything": [{"x": true}]},
            "strict": {"pruning": {}, "preserving": {"x": 1}},
        }),
        &["outer.pruning.x", "strict.apiVersion", "strict.pruning.x", "strict.x"],
    );
}

#[test]
fn lists_hand_preserving_down_to_their_items() {
    let items = object(json!({"a": {"type": "integer"}, "o": {"type": "object"}}));
    pruned(
        json!({"list": {"type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": items}}),
        json!({"list": [{"a": 1, "x": {"y": 1}, "o": {"z": 1}}]}),
        json!({"list": [{"a": 1, "x": {"y": 1}, "o": {}}]}),
        &["list[0].o.z"],
    );
}

#[test]
fn additional_properties() {
    let value = object(json!({"specified": {"type": "object"}}));
    let map = json!({"type": "object", "additionalProperties": value, "x-kubernetes-preserve-unknown-fields": true});
    pruned(
        json!({"map": map}),
        json!({"map": {"foo": {"specified": {"x": 1}, "unknown": 1}}}),
        json!({"map": {"foo": {"specified": {}}}}),
        &["map.foo.specified.x", "map.foo.unknown"],
    );
    pruned(
        json!({"map": {"type": "object", "additionalProperties": {"type": "integer"}}}),
        json!({"map": {"a": 1, "c": {"a": 1}}}),
        json!({"map": {"a": 1, "c": {}}}),
        &["map.c.a"],
    );
    for flag in [true, false] {
        pruned(
            json!({"map": {"type": "object", "additionalProperties": flag}}),
            json!({"map": {"a": 1, "c": {"a": 1, "apiVersion": "x"}, "l": [{"x": 1}]}}),
            json!({"map": {"a": 1, "c": {}, "l": [{}]}}),
            &["map.c.a", "map.c.apiVersion", "map.l[0].x"],
        );
    }
}

fn resource() -> Value {
    json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}})
}

#[test]
fn resources_keep_what_makes_them_resources() {
    let embedded = json!({
        "apiVersion": "foo/v1", "kind": "Foo", "unknown": 1,
        "metadata": {"name": "instance", "unspecified": "bar"},
        "spec": {"unknown": 1},
    });
    let mut whole = embedded.clone();
    whole["embedded"] = embedded.clone();
    pruned(
        json!({"embedded": resource()}),
        whole.clone(),
        json!({
            "apiVersion": "foo/v1", "kind": "Foo", "metadata": {"name": "instance", "unspecified": "bar"},
            "embedded": {
                "apiVersion": "foo/v1", "kind": "Foo", "metadata": {"name": "instance", "unspecified": "bar"}, "spec": {},
            },
        }),
        &["embedded.spec.unknown", "embedded.unknown", "spec", "unknown"],
    );
    let schema = load(json!({"type": "object", "properties": {"embedded": resource()}}));
    let unknown = clean(&schema, &mut whole, Malformed::Refuse).expect("well formed");
    assert_eq!(
        unknown,
        [
            "embedded.metadata.unspecified",
            "embedded.spec.unknown",
            "embedded.unknown",
            "metadata.unspecified",
            "spec",
            "unknown"
        ]
    );
    let meta = json!({"name": "instance"});
    assert_eq!(
        whole,
        json!({
            "apiVersion": "foo/v1", "kind": "Foo", "metadata": meta,
            "embedded": {"apiVersion": "foo/v1", "kind": "Foo", "metadata": meta, "spec": {}},
        })
    );
}

#[test]
fn metadata_takes_the_form_of_its_type() {
    let schema = load(json!({"type": "object", "properties": {"e": resource()}}));
    let metadata = json!({
        "name": "x", "labels": null, "annotations": {}, "generation": 0, "finalizers": [], "creationTimestamp": null,
        "ownerReferences": [{"name": "o", "controller": false, "more": 1, "uid": null}],
    });
    let mut object = json!({"metadata": metadata, "e": {"metadata": metadata}});
    let unknown = clean(&schema, &mut object, Malformed::Refuse).expect("well formed");
    assert_eq!(unknown, ["e.metadata.ownerReferences[0].more", "metadata.ownerReferences[0].more"]);
    let expected = json!({"name": "x", "ownerReferences": [{"apiVersion": "", "kind": "", "name": "o", "controller": false, "uid": ""}]});
    assert_eq!(object, json!({"metadata": expected, "e": {"metadata": expected}}));
}

#[test]
fn metadata_of_the_wrong_type_is_refused_or_dropped() {
    let schema = load(json!({"type": "object", "properties": {"e": resource()}}));
    let refused = |metadata: Value, words: &str| {
        for mut object in [json!({"metadata": metadata}), json!({"e": {"metadata": metadata}})] {
            let error = clean(&schema, &mut object, Malformed::Refuse).expect_err("malformed");
            assert!(error.field.ends_with("metadata"), "{error}");
            assert_eq!(error.detail, words);
        }
    };
    refused(json!({"name": 5}), "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string");
    refused(
        json!({"labels": {"a": 1}}),
        "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string",
    );
    refused(
        json!({"labels": []}),
        "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string",
    );
    refused(
        json!({"ownerReferences": [{"uid": true}]}),
        "json: cannot unmarshal bool into Go struct field OwnerReference.ownerReferences.uid of type string",
    );
    refused(
        json!({"ownerReferences": [1]}),
        "json: cannot unmarshal number into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference",
    );
    refused(json!("x"), "json: cannot unmarshal string into Go value of type v1.ObjectMeta");
    let mut object = json!({"kind": 1, "metadata": {"name": "x", "labels": {"a": 1}, "generation": "y"},
        "e": {"apiVersion": {}, "metadata": {"finalizers": "z", "uid": "u"}}});
    clean(&schema, &mut object, Malformed::Drop).expect("malformed parts are dropped");
    assert_eq!(object, json!({"metadata": {"name": "x"}, "e": {"metadata": {"uid": "u"}}}));
    let mut object = json!({"e": {"kind": 1}});
    let error = clean(&schema, &mut object, Malformed::Refuse).expect_err("malformed");
    assert_eq!(error.to_string(), "e.kind: Invalid value: 1: must be a string");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn pruning_twice_is_pruning_once(schema in any_schema(), mut object in any_object()) {
        let schema = load(schema);
        prune(&schema, &mut object);
        let once = object.clone();
        prop_assert_eq!(prune(&schema, &mut object), Vec::<String>::new());
        prop_assert_eq!(object, once);
    }

    #[test]
    fn cleaning_twice_is_cleaning_once(schema in any_schema(), mut object in any_object()) {
        let schema = load(schema);
        if clean(&schema, &mut object, Malformed::Drop).is_ok() {
            let once = object.clone();
            prop_assert_eq!(clean(&schema, &mut object, Malformed::Drop).ok(), Some(vec![]));
            prop_assert_eq!(object, once);
        }
    }
}
