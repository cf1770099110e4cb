use proptest::prelude::*;
use serde_json::json;

use super::super::test_schema::{object, patch, three_objects};
use super::*;

fn objects<const N: usize>(values: [Value; N]) -> [Object; N] {
    values.map(|v| if let Value::Object(map) = v { map } else { Object::new() })
}

#[test]
fn patches_apply_as_in_kubernetes() {
    let cases = [
        // current, patch, result
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b", "b": "c"}), json!({"a": null, "z": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": {"b": "c"}}), json!({"a": {}}), json!({"a": {"b": "c"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1, null]}), json!({"a": [1, null]})),
        (json!({}), json!({"a": {"b": {"c": null, "d": 1}}}), json!({"a": {"b": {"d": 1}}})),
        (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
        // unlike the RFC, lists lose the nulls of their objects, unless they replace an object
        (json!({}), json!({"a": [{"b": null, "c": 1}]}), json!({"a": [{"c": 1}]})),
        (json!({"a": {"x": 1}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
    ];
    for (current, patch, expected) in cases {
        let [mut current, patch, expected] = objects([current, patch, expected]);
        apply(&mut current, &patch);
        assert_eq!(current, expected, "{patch:?}");
    }
}

#[test]
fn three_ways_as_in_kubernetes() {
    let cases = [
        // original, modified, current, patch
        (json!({}), json!({"a": 1}), json!({"b": 2}), json!({"a": 1})),
        (json!({"a": 1, "b": 2}), json!({"b": 3}), json!({"a": 1, "b": 2, "c": 4}), json!({"a": null, "b": 3})),
        (json!({"a": 1}), json!({}), json!({}), json!({"a": null})),
        (json!({"m": {"a": 1}}), json!({"m": {}}), json!({"m": {"a": 1, "b": 2}}), json!({"m": {"a": null}})),
        (json!({}), json!({"m": {}}), json!({}), json!({"m": {}})),
        (json!({"l": [1]}), json!({"l": [2]}), json!({"l": [1, 3]}), json!({"l": [2]})),
        (json!({"m": {"a": 1}}), json!({"m": 7}), json!({"m": {"a": 1}}), json!({"m": 7})),
        (json!({"a": 1}), json!({"a": null}), json!({"a": 1}), json!({"a": null})),
    ];
    for (original, modified, current, expected) in cases {
        let [original, modified, current, expected] = objects([original, modified, current, expected]);
        let patch = three_way(&original, &modified, &current, &[]).expect("a patch");
        assert_eq!(patch, expected, "{original:?} {modified:?}");
    }
}

fn contains(result: &Value, wanted: &Value) -> bool {
    match (result, wanted) {
        (Value::Object(r), Value::Object(w)) => w.iter().all(|(k, w)| r.get(k).is_some_and(|r| contains(r, w))),
        (r, w) => r == w,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_patch_of_the_diff_gives_the_other([a, b, c] in three_objects(), unrelated in object()) {
        for (from, to) in [(&a, &b), (&b, &c), (&a, &unrelated)] {
            let patch = diff(from, to);
            let mut patched = from.clone();
            apply(&mut patched, &patch);
            prop_assert_eq!(&patched, to);
            apply(&mut patched, &patch);
            prop_assert_eq!(&patched, to, "not idempotent");
        }
    }

    #[test]
    fn a_three_way_patch_sets_removes_and_leaves_alone([original, modified, current] in three_objects()) {
        let patch = three_way(&original, &modified, &current, &[]).expect("a patch");
        let mut result = current.clone();
        apply(&mut result, &patch);
        prop_assert!(contains(&Value::Object(result.clone()), &Value::Object(modified.clone())));
        for (name, value) in &current {
            let expected = match (original.contains_key(name), modified.contains_key(name)) {
                (true, false) => None,
                (false, false) => Some(value),
                _ => continue,
            };
            prop_assert_eq!(result.get(name), expected);
        }
    }

    #[test]
    fn any_patch_applies(a in object(), p in patch(), q in patch()) {
        let mut merged = a.clone();
        apply(&mut merged, &p);
        apply(&mut merged, &q);
        let _ = three_way(&a, &p, &q, &[]);
    }
}
