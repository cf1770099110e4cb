use proptest::prelude::*;
use serde_json::json;

use super::*;

fn patched(document: Value, operations: Value) -> Result<Value, PatchError> {
    JsonPatch::parse(operations)?.apply(document)
}

#[test]
fn operations_do_what_kubernetes_does() {
    let cases = [
        // document, operations, result (null: refused)
        (
            json!({"a": 1}),
            json!([{"op": "add", "path": "/b", "value": {"c": null}}]),
            json!({"a": 1, "b": {"c": null}}),
        ),
        (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), json!({"a": [1, 2]})),
        (json!({"a": [1]}), json!([{"op": "add", "path": "/a/2", "value": 2}]), Value::Null),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-1", "value": 3}]), json!({"a": [1, 2, 3]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-3", "value": 0}]), json!({"a": [0, 1, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-4", "value": 0}]), Value::Null),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/2"}]), Value::Null),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-"}]), Value::Null),
        (json!({"a": [1, 2]}), json!([{"op": "replace", "path": "/a/-2", "value": 9}]), json!({"a": [9, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "replace", "path": "/a/2", "value": 9}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "remove", "path": "/b"}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "add", "path": "/b/c", "value": 1}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "add", "path": "/a/c", "value": 1}]), Value::Null),
        (json!({"a": null}), json!([{"op": "add", "path": "/a/c", "value": 1}]), Value::Null),
        (json!({"a": null}), json!([{"op": "remove", "path": "/a"}]), json!({})),
        // a missing field can be replaced, and copied as null
        (json!({}), json!([{"op": "replace", "path": "/a", "value": 1}]), json!({"a": 1})),
        (json!({}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), json!({"b": null})),
        (json!({}), json!([{"op": "move", "from": "/a", "path": "/b"}]), Value::Null),
        (json!({"a": {"b": 1}}), json!([{"op": "move", "from": "/a/b", "path": "/c"}]), json!({"a": {}, "c": 1})),
        (json!({"a": {"b": 1}}), json!([{"op": "move", "from": "/a", "path": "/a/b"}]), Value::Null),
        (
            json!({"a": {"b": 1}}),
            json!([{"op": "copy", "from": "/a", "path": "/a/c"}]),
            json!({"a": {"b": 1, "c": {"b": 1}}}),
        ),
        // no value means null
        (json!({}), json!([{"op": "add", "path": "/a"}]), json!({"a": null})),
        (json!({}), json!([{"op": "test", "path": "/a", "value": null}]), json!({})),
        (json!({}), json!([{"op": "test", "path": "/a/b", "value": null}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1.0}]), Value::Null),
        (
            json!({"a": {"x": [1, {"y": 2}]}}),
            json!([{"op": "test", "path": "/a", "value": {"x": [1, {"y": 2}]}}]),
            json!({"a": {"x": [1, {"y": 2}]}}),
        ),
        (json!({"a": 1}), json!([{"op": "test", "path": "", "value": {"a": 1}}]), json!({"a": 1})),
        // escapes, and the empty field name
        (
            json!({"a/b": 1, "m~n": 2}),
            json!([{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/m~0n"}]),
            json!({}),
        ),
        (json!({"~1": 1}), json!([{"op": "remove", "path": "/~01"}]), json!({})),
        (json!({"": 1}), json!([{"op": "replace", "path": "/", "value": 2}]), json!({"": 2})),
        // the whole document
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": 2}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "add", "path": "", "value": {"b": 2}}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "remove", "path": ""}]), Value::Null),
        // everything before the first slash is ignored; without one there is no path
        (json!({"a": 1}), json!([{"op": "remove", "path": "x/a"}]), json!({})),
        (json!({"a": 1}), json!([{"op": "remove", "path": "a"}]), Value::Null),
        // all or nothing
        (
            json!({"a": 1}),
            json!([{"op": "remove", "path": "/a"}, {"op": "test", "path": "/a", "value": 1}]),
            Value::Null,
        ),
        (json!({"a": 1}), Value::Null, json!({"a": 1})),
        (json!({"a": 1}), json!([]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "spam", "path": "/a"}]), Value::Null),
        (json!({"a": 1}), json!([{"path": "/a"}]), Value::Null),
        (json!({"a": 1}), json!([{"op": "remove"}]), Value::Null),
        (json!({"a": 1}), json!([null]), Value::Null),
    ];
    for (document, operations, expected) in cases {
        let result = patched(document.clone(), operations.clone());
        match (result, expected) {
            (Err(error), Value::Null) => assert_eq!(error.status().code, 422, "{operations}"),
            (Ok(result), expected) => assert_eq!(result, expected, "{document} {operations}"),
            (Err(error), _) => panic!("{document} {operations}: {error}"),
        }
    }
}

#[test]
fn answers_are_those_of_kubernetes() {
    let refusal = |operations| patched(json!({}), operations).expect_err("refused").status();
    let failed = refusal(json!([{"op": "remove", "path": "/no/such"}]));
    assert_eq!(failed.message, "the server rejected our request due to an error in our request");
    assert_eq!((failed.code, failed.reason.as_str()), (422, "Invalid"));

    let malformed = refusal(json!({"op": "remove"}));
    let words = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
    assert_eq!((malformed.code, malformed.message.as_str()), (400, words));
    let malformed = refusal(json!([{"op": "remove", "path": 1}]));
    let words =
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string";
    assert_eq!((malformed.code, malformed.message.as_str()), (400, words));

    let many = refusal(Value::Array(vec![json!({"op": "test", "path": "/a"}); MAX_OPERATIONS + 1]));
    let words = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
    assert_eq!((many.code, many.message.as_str()), (413, words));
}

#[test]
fn unknown_members_are_told() {
    let patch = JsonPatch::parse(json!([{"op": "remove", "path": "/a", "extra": 1}])).expect("readable");
    assert_eq!(patch.unknown_fields(), ["json patch unknown field \"[0].extra\""]);
}

#[test]
fn small_patches_do_not_make_huge_objects() {
    let doubling = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/x"}); 5_000]);
    let error = patched(json!({"a": {"text": "0123456789"}}), doubling).expect_err("too large");
    assert!(matches!(
        error,
        PatchError::Operation { source: OperationError::CopyTooLarge(_) | OperationError::TooDeep, .. }
    ));

    let flat = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/b/-"}); 10_000]);
    let error = patched(json!({"a": "x".repeat(1000), "b": []}), flat).expect_err("too large");
    assert!(matches!(error, PatchError::Operation { source: OperationError::CopyTooLarge(_), .. }));

    // Each step wraps everything so far: add a shell, move the rest into it, put the shell back.
    let mut steps = Vec::new();
    for _ in 0..1000 {
        steps.push(json!({"op": "add", "path": "/shell", "value": {}}));
        steps.push(json!({"op": "move", "from": "/a", "path": "/shell/a"}));
        steps.push(json!({"op": "move", "from": "/shell", "path": "/a"}));
    }
    let error = patched(json!({"a": 1}), Value::Array(steps)).expect_err("too deep");
    assert!(matches!(error, PatchError::Operation { source: OperationError::TooDeep, .. }), "{error}");
}

#[test]
fn moving_about_is_not_nesting() {
    let back_and_forth =
        [json!({"op": "move", "from": "/a", "path": "/b/c/d"}), json!({"op": "move", "from": "/b/c/d", "path": "/a"})];
    let steps: Vec<Value> = back_and_forth.iter().cycle().take(10_000).cloned().collect();
    let document = json!({"a": 1, "b": {"c": {}}});
    assert_eq!(patched(document.clone(), Value::Array(steps)).expect("applies"), document);
}

/// Pointers that often hit something in the documents below.
fn pointer() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("a"),
        Just("b"),
        Just("0"),
        Just("-1"),
        Just("-"),
        Just("~1"),
        Just(""),
        Just("9999999999999999999")
    ];
    prop::collection::vec(token, 0..4).prop_map(|tokens| tokens.iter().map(|t| format!("/{t}")).collect())
}

fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), "[a-z]{0,3}".prop_map(Value::from)];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[ab]|0|/", inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn operation() -> impl Strategy<Value = Value> {
    let op =
        prop_oneof![Just("add"), Just("remove"), Just("replace"), Just("move"), Just("copy"), Just("test"), Just("")];
    (op, pointer(), pointer(), document())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn hostile_patches_give_errors_not_panics(
        document in document(),
        operations in prop::collection::vec(operation(), 0..8),
        noise in document(),
    ) {
        let _ = patched(document.clone(), Value::Array(operations.clone()));
        // One after the other, so that later operations are reached.
        operations.into_iter().fold(document.clone(), |d, op| patched(d.clone(), json!([op])).unwrap_or(d));
        let _ = patched(document, noise);
    }

    #[test]
    fn what_is_added_can_be_tested_and_removed(value in document()) {
        let start = json!({"list": [1, 2], "map": {}});
        for path in ["/list/1", "/map/new"] {
            let there_and_back = json!([
                {"op": "add", "path": path, "value": value},
                {"op": "test", "path": path, "value": value},
                {"op": "remove", "path": path},
            ]);
            prop_assert_eq!(patched(start.clone(), there_and_back).expect("applies"), start.clone());
        }
    }
}
