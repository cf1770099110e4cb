use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::schema::prune;
use crate::schema::testing::{any_object, any_schema, load};

#[track_caller]
fn filled(schema: Value, object: Value, expected: Value) {
    let schema = load(json!({"type": "object", "properties": {"x": schema}}));
    let mut object = json!({"x": object});
    fill(&schema, &mut object);
    assert_eq!(object["x"], expected);
}

fn ab() -> Value {
    json!({"a": {"type": "string", "default": "A"}, "b": {"type": "string", "default": "B"}})
}

#[test]
fn missing_fields_get_their_defaults() {
    let object = json!({"type": "object", "properties": ab()});
    filled(object.clone(), json!({}), json!({"a": "A", "b": "B"}));
    filled(object.clone(), json!({"a": 1}), json!({"a": 1, "b": "B"}));
    for given in [json!(0), json!(0.0), json!(""), json!([]), json!({}), json!(false)] {
        filled(object.clone(), json!({"a": given, "b": "x"}), json!({"a": given, "b": "x"}));
    }
    filled(
        json!({"type": "array", "items": object}),
        json!([{"a": 1}, {"b": 2}]),
        json!([{"a": 1, "b": "B"}, {"a": "A", "b": 2}]),
    );
    filled(
        json!({"type": "object", "additionalProperties": object}),
        json!({"x": {"a": 1}, "y": {}}),
        json!({"x": {"a": 1, "b": "B"}, "y": {"a": "A", "b": "B"}}),
    );
    filled(json!({"type": "string", "default": "unused"}), json!(4), json!(4));
}

#[test]
fn null_counts_as_missing_unless_it_is_allowed() {
    let text = |nullable: bool| json!({"type": "string", "default": "A", "nullable": nullable});
    let object = |nullable| json!({"type": "object", "properties": {"a": text(nullable)}});
    filled(object(false), json!({"a": null}), json!({"a": "A"}));
    filled(object(true), json!({"a": null}), json!({"a": null}));
    let map = |nullable| json!({"type": "object", "additionalProperties": text(nullable)});
    filled(map(false), json!({"a": null}), json!({"a": "A"}));
    filled(map(true), json!({"a": null}), json!({"a": null}));
    filled(json!({"type": "array", "items": text(false)}), json!([null]), json!(["A"]));
    filled(json!({"type": "array", "items": text(true)}), json!([null]), json!([null]));
    filled(json!({"type": "array", "items": {"type": "object", "properties": ab()}}), json!([null]), json!([null]));
    filled(json!({"type": "object", "additionalProperties": true}), json!({"a": null}), json!({"a": null}));
}

#[test]
fn defaults_are_filled_in_inside_of_defaults() {
    let inner = json!({"type": "object", "default": {}, "properties": ab()});
    filled(json!({"type": "object", "properties": {"o": inner}}), json!({}), json!({"o": {"a": "A", "b": "B"}}));
}

#[test]
fn nodes_without_a_type_have_defaults_too() {
    let open = json!({"x-kubernetes-preserve-unknown-fields": true, "properties": ab(), "items": {"type": "object", "properties": ab()}});
    filled(open.clone(), json!({"z": 1}), json!({"a": "A", "b": "B", "z": 1}));
    filled(open, json!([{}]), json!([{"a": "A", "b": "B"}]));
}

#[test]
fn nulls_that_may_not_be_are_dropped() {
    let schema = load(json!({"type": "object", "properties": {
        "plain": {"type": "string"},
        "nullable": {"type": "string", "nullable": true},
        "default": {"type": "string", "default": "x"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "string"}},
    }}));
    let mut object =
        json!({"plain": null, "nullable": null, "default": null, "map": {"a": null}, "list": [null], "unknown": null});
    drop_nulls(&schema, &mut object);
    assert_eq!(object, json!({"nullable": null, "default": null, "map": {}, "list": [null], "unknown": null}));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn defaulting_twice_is_defaulting_once(schema in any_schema(), mut object in any_object()) {
        let schema = load(schema);
        fill(&schema, &mut object);
        let once = object.clone();
        fill(&schema, &mut object);
        prop_assert_eq!(object, once);
    }

    #[test]
    fn what_is_pruned_and_defaulted_stays_so(schema in any_schema(), mut object in any_object()) {
        let schema = load(schema);
        prune::prune(&schema, &mut object);
        fill(&schema, &mut object);
        let stable = object.clone();
        prop_assert_eq!(prune::prune(&schema, &mut object), Vec::<String>::new());
        prop_assert_eq!(&object, &stable);
        fill(&schema, &mut object);
        prop_assert_eq!(object, stable);
    }

    #[test]
    fn dropping_nulls_twice_is_dropping_once(schema in any_schema(), mut object in any_object()) {
        let schema = load(schema);
        drop_nulls(&schema, &mut object);
        let once = object.clone();
        drop_nulls(&schema, &mut object);
        prop_assert_eq!(object, once);
    }
}
