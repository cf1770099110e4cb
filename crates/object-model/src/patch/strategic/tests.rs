//! The cases in `cases.json` were answered by Kubernetes' own code for the schema of `test_schema`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::test_schema::{item, object, patch, three_objects};
use super::super::{PatchError, SAME_OBJECT};
use super::*;
use crate::codec::MAX_DEPTH;
use crate::value::Fields;

fn cases(section: &str) -> Vec<Value> {
    let cases: Value = serde_json::from_str(include_str!("cases.json")).expect("cases are JSON");
    cases.items(section).to_vec()
}

fn member(case: &Value, name: &str) -> Object {
    case.get(name).and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The words of the error, or the named member.
fn expected(case: &Value, name: &str) -> Result<Object, String> {
    match case.text("error") {
        "" => Ok(member(case, name)),
        words => Err(words.to_owned()),
    }
}

#[test]
fn patches_apply_as_in_kubernetes() {
    let schema = item();
    for case in cases("apply") {
        let result = apply(schema.root(), member(&case, "original"), &member(&case, "patch"));
        assert_eq!(result.map_err(|e| e.to_string()), expected(&case, "result"), "{case:#}");
    }
}

#[test]
fn diffs_are_those_of_kubernetes() {
    let schema = item();
    for case in cases("diff") {
        let [original, modified, current] = ["original", "modified", "current"].map(|n| member(&case, n));
        let two_way = diff(schema.root(), &original, &modified).map_err(|e| e.to_string());
        assert_eq!(two_way, expected(&case, "twoWay"), "{case:#}");
        if two_way.is_err() {
            continue;
        }
        let patch = three_way(schema.root(), &original, &modified, &current, true, SAME_OBJECT).expect("a patch");
        assert_eq!(patch, member(&case, "threeWay"), "{case:#}");
        let result = apply(schema.root(), current.clone(), &patch).expect("applies");
        assert_eq!(result, member(&case, "result"), "{case:#}");

        let strict = three_way(schema.root(), &original, &modified, &current, false, SAME_OBJECT);
        match case.get("conflict") {
            Some(_) => assert!(matches!(strict, Err(DiffError::Conflict(_))), "{case:#}\n{strict:?}"),
            None => assert_eq!(strict.expect("no conflict"), patch, "{case:#}"),
        }
    }
}

#[test]
fn errors_become_the_answers_of_kubernetes() {
    let schema = item();
    let status = |patch: Value| {
        let original = json!({"merged": [{"name": "a"}], "retain": {"name": "a"}, "set": [["a"]]});
        let [Value::Object(original), Value::Object(patch)] = [original, patch] else { unreachable!() };
        PatchError::from(apply(schema.root(), original, &patch).expect_err("refused")).status()
    };
    let internal = status(json!({"merged": [{"value": "x"}]}));
    let words = "map: map[value:x] does not contain declared merge key: name";
    assert_eq!((internal.code, internal.reason.as_str(), internal.message.as_str()), (500, "", words));
    let bad = status(json!({"retain": {"$retainKeys": 1}}));
    assert_eq!((bad.code, bad.reason.as_str()), (400, "BadRequest"));
    assert_eq!(status(json!({"set": ["b"]})).code, 422);
}

#[test]
fn preconditions_guard_the_object() {
    let Value::Object(named) = json!({"metadata": {"name": "a"}}) else { unreachable!() };
    let mut renamed = named.clone();
    renamed.insert("metadata".to_owned(), json!({"name": "b"}));
    let refused = super::super::merge_patch::three_way(&named, &renamed, &named, SAME_OBJECT).expect_err("renames");
    assert_eq!(refused.to_string(), "precondition failed for: map[metadata:map[name:b]]");
}

#[test]
fn deep_and_long_objects_take_no_more_than_their_share() {
    let schema = item();
    let nest = |leaf: Value| (1..MAX_DEPTH).fold(leaf, |inner, _| json!({"child": inner}));
    let [Value::Object(a), Value::Object(b)] = [nest(json!({"name": "a"})), nest(json!({"name": "b"}))] else {
        unreachable!()
    };
    let patch = diff(schema.root(), &a, &b).expect("a diff");
    assert_eq!(apply(schema.root(), a.clone(), &patch).expect("applies"), b);
    assert_eq!(three_way(schema.root(), &a, &b, &a, false, &[]).expect("a patch"), patch);

    // Anything quadratic would take minutes.
    let items = |value: &str| (0..50_000).map(|i| json!({"name": format!("n{i}"), "value": value})).collect::<Vec<_>>();
    let names = |offset: usize| (offset..offset + 50_000).map(|i| Value::from(format!("n{i}"))).collect::<Vec<_>>();
    let long = |value: &str, offset| {
        Object::from_iter([("merged".to_owned(), items(value).into()), ("set".to_owned(), names(offset).into())])
    };
    let (a, mut b) = (long("x", 0), long("y", 25_000));
    if let Some(Value::Array(items)) = b.get_mut("merged") {
        items.reverse();
        items.truncate(40_000);
    }
    let patch = diff(schema.root(), &a, &b).expect("a diff");
    assert_eq!(apply(schema.root(), a, &patch).expect("applies"), b);
}

/// Does `result` have everything that `wanted` says? Merged lists may hold more; what is replaced must be equal.
fn contains(result: &Value, wanted: &Value, field: &str) -> bool {
    match (result, wanted) {
        (_, _) if ["whole", "plain", "list"].contains(&field) => result == wanted,
        (Value::Object(r), Value::Object(w)) => w.iter().all(|(k, w)| r.get(k).is_some_and(|r| contains(r, w, k))),
        (Value::Array(r), Value::Array(w)) => {
            let key = if field == "ports" { "port" } else { "name" };
            let same = |a: &Value, b: &Value| if a.is_object() { a.get(key) == b.get(key) } else { a == b };
            // In the same order, with others in between.
            let mut rest = r.iter();
            w.iter().all(|w| rest.by_ref().find(|r| same(r, w)).is_some_and(|r| contains(r, w, "")))
        }
        (r, w) => r == w,
    }
}

/// An object without what decoding drops: a three-way patch leaves nulls and directives in an item that it both adds and
/// deletes something from.
fn decoded(object: &Object) -> Object {
    fn value(v: &Value) -> Value {
        match v {
            Value::Object(map) => Value::Object(decoded(map)),
            Value::Array(items) => items.iter().map(value).collect(),
            scalar => scalar.clone(),
        }
    }
    object.iter().filter(|(k, v)| !k.starts_with('$') && !v.is_null()).map(|(k, v)| (k.clone(), value(v))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_patch_of_the_diff_gives_the_other([a, b, c] in three_objects(), unrelated in object()) {
        let schema = item();
        for (from, to) in [(&a, &b), (&b, &a), (&b, &c), (&a, &unrelated)] {
            let patch = diff(schema.root(), from, to).expect("a diff");
            let patched = apply(schema.root(), from.clone(), &patch).expect("applies");
            prop_assert_eq!(&patched, to, "patch {}", Value::Object(patch));
            prop_assert_eq!(&apply(schema.root(), patched, &patch).expect("applies again"), to, "not idempotent");
        }
    }

    #[test]
    fn a_three_way_patch_sets_removes_and_leaves_alone([original, modified, current] in three_objects()) {
        let schema = item();
        let patch = three_way(schema.root(), &original, &modified, &current, true, &[]).expect("a patch");
        let result = apply(schema.root(), current.clone(), &patch).expect("applies");
        let text = || format!("patch {}\nresult {}", Value::Object(patch.clone()), Value::Object(result.clone()));
        prop_assert!(contains(&Value::Object(result.clone()), &Value::Object(modified.clone()), ""), "{}", text());
        for name in original.keys().filter(|n| !modified.contains_key(*n)) {
            prop_assert!(!result.contains_key(name), "{name} is still there\n{}", text());
        }
        for (name, value) in current.iter().filter(|(n, _)| !modified.contains_key(*n) && !original.contains_key(*n)) {
            prop_assert_eq!(result.get(name), Some(value), "{} was touched\n{}", name, text());
        }
        // Nothing is left to do.
        let result = decoded(&result);
        let again = three_way(schema.root(), &modified, &modified, &result, true, &[]).expect("a patch");
        prop_assert!(apply(schema.root(), result.clone(), &again).expect("applies") == result, "{}", text());
    }

    #[test]
    fn only_overlapping_changes_conflict([original, modified, current] in three_objects()) {
        let schema = item();
        let patch = three_way(schema.root(), &original, &modified, &current, true, &[]).expect("a patch");
        let strict = three_way(schema.root(), &original, &modified, &original, false, &[]);
        prop_assert!(!matches!(strict, Err(DiffError::Conflict(_))), "nobody else changed anything");
        if let Ok(strict) = three_way(schema.root(), &original, &modified, &current, false, &[]) {
            prop_assert_eq!(strict, patch);
        }
    }

    #[test]
    fn hostile_patches_give_errors_not_panics(a in object(), p in patch(), q in patch()) {
        let schema = item();
        let _ = apply(schema.root(), a.clone(), &p);
        let _ = apply(schema.root(), q.clone(), &p);
        let _ = diff(schema.root(), &q, &p);
        let _ = have_conflicts(schema.root(), &q, &p);
        let _ = three_way(schema.root(), &p, &q, &a, false, &[]);
        let _ = three_way(schema.root(), &a, &p, &q, true, &[]);
    }
}
