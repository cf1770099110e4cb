//! Field sets, comparisons, merges and removals of values.

use super::*;

fn fields_of(value: &Value) -> Value {
    encode_fields(&field_set(&SCHEMA, value))
}

fn differ(old: Value, new: Value) -> [Value; 3] {
    let found = compare(&SCHEMA, &old, &new).unwrap();
    [found.added, found.modified, found.removed].map(|set| encode_fields(&set))
}

#[test]
fn fields_of_every_sort() {
    let value = json!({
        "metadata": {"labels": {"a": "b"}, "finalizers": ["f"]},
        "spec": {
            "text": "t", "selector": {"x": "y"}, "probe": {}, "count": null,
            "items": [{"name": "a", "args": ["1"], "tags": ["t", "u"], "ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]}],
            "free": {"a": {"b": [1]}, "c": 1},
        },
        "status": {},
    });
    assert_eq!(
        fields_of(&value),
        json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"f\"": {}}},
            "f:spec": {
                "f:text": {}, "f:selector": {}, "f:probe": {}, "f:count": {},
                "f:items": {"k:{\"name\":\"a\"}": {
                    ".": {}, "f:name": {}, "f:args": {}, "f:tags": {"v:\"t\"": {}, "v:\"u\"": {}},
                    "f:ports": {
                        "k:{\"port\":1,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}},
                        "k:{\"port\":1,\"protocol\":\"UDP\"}": {".": {}, "f:port": {}, "f:protocol": {}},
                    },
                }},
                "f:free": {"f:a": {".": {}, "f:b": {}}, "f:c": {}},
            },
            "f:status": {},
        })
    );
}

#[test]
fn duplicates_are_owned_as_one() {
    let twice = json!({"spec": {"items": [{"name": "a", "image": "1"}, {"name": "b"}, {"name": "a", "image": "2"}]}});
    assert_eq!(
        fields_of(&twice),
        json!({"f:spec": {"f:items": {"k:{\"name\":\"a\"}": {}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}})
    );
    let once = json!({"spec": {"items": [{"name": "a", "image": "1"}, {"name": "b"}]}});
    let item = |below: Value| json!({"f:spec": {"f:items": {"k:{\"name\":\"a\"}": below}}});
    let inside = || item(json!({".": {}, "f:image": {}, "f:name": {}}));
    assert_eq!(differ(twice.clone(), once.clone()), [inside(), json!({}), item(json!({}))]);
    assert_eq!(differ(once, twice.clone()), [item(json!({})), json!({}), inside()]);
    let mut other = twice.clone();
    other["spec"]["items"][2]["image"] = json!("3");
    assert_eq!(differ(twice.clone(), other), [json!({}), item(json!({})), json!({})]);
    assert_eq!(differ(twice.clone(), twice), [json!({}), json!({}), json!({})]);
}

#[test]
fn comparisons() {
    let old = json!({"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"count": 1, "selector": {"a": "1"}, "free": {"x": {"y": 1}}}});
    let new = json!({"metadata": {"labels": {"a": "2", "c": "1"}}, "spec": {"count": 1.0, "selector": {"a": "2"}, "free": {"x": "s"}, "probe": {"path": "/"}}});
    assert_eq!(
        differ(old, new),
        [
            json!({"f:metadata": {"f:labels": {"f:c": {}}}, "f:spec": {"f:probe": {".": {}, "f:path": {}}}}),
            json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:selector": {}, "f:free": {"f:x": {}}}}),
            json!({"f:metadata": {"f:labels": {"f:b": {}}}, "f:spec": {"f:free": {"f:x": {"f:y": {}}}}}),
        ]
    );
}

#[test]
fn comparisons_of_null_and_empty() {
    let spec = |value: Value| json!({"spec": {"items": value}});
    let items = json!({"f:spec": {"f:items": {}}});
    assert_eq!(differ(spec(Value::Null), spec(json!([]))), [json!({}), items, json!({})]);
    let item = json!({"f:spec": {"f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}}}});
    assert_eq!(differ(spec(json!([{"name": "a"}])), spec(Value::Null)), [json!({}), json!({}), item]);
}

#[test]
fn items_without_keys_are_told() {
    let bad = |items: Value| compare(&SCHEMA, &json!({}), &json!({"spec": {"items": items}})).unwrap_err().to_string();
    assert_eq!(
        bad(json!([{"image": "x"}])),
        ".spec.items: element 0: associative list with keys has an element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)"
    );
    assert_eq!(
        bad(json!([{"name": "a"}, null, 1])),
        "errors:\n  .spec.items: element 1: associative list with keys may not have a null element\n  .spec.items: element 2: associative list with keys may not have non-map elements"
    );
}

#[test]
fn validation_in_kubernetes_words() {
    let bad = |value: Value| validate(&SCHEMA, &value, Duplicates::Refused).unwrap_err().to_string();
    assert_eq!(bad(json!({"spec": {"count": "1"}})), ".spec.count: expected numeric (int or float), got string");
    assert_eq!(bad(json!({"spec": {"text": 1}})), ".spec.text: expected string, got &value.valueUnstructured{Value:1}");
    assert_eq!(bad(json!({"spec": {"flag": "x"}})), ".spec.flag: expected boolean, got &{x}");
    assert_eq!(bad(json!({"spec": {"items": {"a": [1, "b"]}}})), ".spec.items: expected list, got &{map[a:[1 b]]}");
    assert_eq!(bad(json!({"spec": []})), ".spec: expected map, got &{[]}");
    assert_eq!(bad(json!({"spec": {"nope": 1}})), ".spec.nope: field not declared in schema");
    let twice = json!({"spec": {"items": [{"name": "a", "tags": ["x", "x"]}, {"name": "a"}]}});
    assert_eq!(
        bad(twice.clone()),
        "errors:\n  .spec.items[name=\"a\"].tags: duplicate entries for key [=\"x\"]\n  .spec.items: duplicate entries for key [name=\"a\"]"
    );
    assert_eq!(validate(&SCHEMA, &twice, Duplicates::Allowed), Ok(()));
    assert_eq!(
        validate(&SCHEMA, &json!({"spec": {"free": {"any": [{}]}, "items": null}}), Duplicates::Refused),
        Ok(())
    );
}

#[test]
fn merging_lists_keeps_order() {
    let merged = |live: &[&str], applied: &[&str]| {
        let list =
            |names: &[&str]| json!({"spec": {"items": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}});
        let out = merge(&SCHEMA, &list(live), &list(applied)).unwrap();
        let items = out["spec"]["items"].as_array().cloned().unwrap_or_default();
        items.iter().map(|i| i["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>().join("")
    };
    for (live, applied, expected) in [
        ("abc", "b", "abc"),
        ("abc", "cb", "acb"),
        ("abc", "d", "abcd"),
        ("abc", "da", "dabc"),
        ("abcd", "xbyd", "axbcyd"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
        ("abc", "cba", "cba"),
    ] {
        let split = |s: &'static str| s.split("").filter(|c| !c.is_empty()).collect::<Vec<_>>();
        assert_eq!(merged(&split(live), &split(applied)), expected, "{live} {applied}");
    }
}

#[test]
fn merging_values() {
    let live = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"selector": {"a": "1"}, "free": {"x": 1, "l": [1]}, "items": [{"name": "a", "image": "1", "tags": ["t"]}]}});
    let applied = json!({"metadata": {"labels": {"b": "1"}}, "spec": {"selector": {"b": "1"}, "free": {"x": {"y": 1}, "l": [2]}, "items": [{"name": "a", "tags": ["u"]}]}});
    assert_eq!(
        merge(&SCHEMA, &live, &applied).unwrap(),
        json!({"metadata": {"labels": {"a": "1", "b": "1"}}, "spec": {"selector": {"b": "1"}, "free": {"x": {"y": 1}, "l": [2]}, "items": [{"name": "a", "image": "1", "tags": ["t", "u"]}]}})
    );
    // Null says nothing about lists and maps that are there.
    let null = json!({"metadata": {"labels": null}, "spec": {"text": null, "items": null}});
    let merged = merge(&SCHEMA, &live, &null).unwrap();
    assert_eq!(merged["metadata"], live["metadata"]);
    assert_eq!(merged["spec"]["items"], live["spec"]["items"]);
    assert_eq!(merged["spec"]["text"], Value::Null);
}

#[test]
fn removing_and_extracting() {
    let value = json!({
        "metadata": {"labels": {"a": "1", "b": "1"}},
        "spec": {"items": [{"name": "a", "image": "1", "tags": ["t", "u"]}, {"name": "b"}], "selector": {"a": "1"}, "text": "t"},
    });
    let fields = set(json!({
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:items": {"k:{\"name\":\"a\"}": {"f:tags": {"v:\"t\"": {}}}}, "f:selector": {}},
    }));
    assert_eq!(
        remove_items(&SCHEMA, &value, &fields),
        json!({"metadata": {"labels": {"b": "1"}}, "spec": {"items": [{"name": "a", "image": "1", "tags": ["u"]}, {"name": "b"}], "text": "t"}})
    );
    assert_eq!(
        extract_items(&SCHEMA, &value, &fields),
        json!({"metadata": {"labels": {"a": "1"}}, "spec": {"items": [{"name": "a", "tags": ["t"]}], "selector": {"a": "1"}}})
    );
}

#[test]
fn sets_follow_a_schema_that_became_atomic() {
    let mut old = set(
        json!({"f:spec": {"f:selector": {".": {}, "f:a": {}}, "f:text": {}, "f:items": {"k:{\"name\":\"a\"}": {"f:args": {"i:0": {}}}}}}),
    );
    assert!(reconcile(&SCHEMA, &mut old));
    assert_eq!(
        old,
        set(json!({"f:spec": {"f:selector": {}, "f:text": {}, "f:items": {"k:{\"name\":\"a\"}": {"f:args": {}}}}}))
    );
    assert!(!reconcile(&SCHEMA, &mut old));
}

#[test]
fn the_empty_object_has_what_go_always_writes() {
    assert_eq!(
        empty_object(&SCHEMA, &KIND),
        json!({"apiVersion": "test/v1", "kind": "Thing", "metadata": {}, "spec": {}, "status": {}})
    );
    assert_eq!(empty_object(&thing(""), &KIND), json!({"apiVersion": "test/v1", "kind": "Thing"}));
}
