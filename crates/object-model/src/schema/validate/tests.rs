use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::testing::{any_object, any_schema, any_value, load, messages};

/// Validates `value` in field `f` of an object.
#[track_caller]
fn expect(schema: Value, value: Value, expected: &[&str]) {
    let schema = load(json!({"type": "object", "properties": {"f": schema}}));
    assert_eq!(messages(&validate(&schema, &json!({"f": value}))), expected, "for {value}");
}

#[track_caller]
fn expect_type(schema: Value, types: &str, good: &[Value], bad: &[(Value, &str)]) {
    for value in good {
        expect(schema.clone(), value.clone(), &[]);
    }
    for (value, found) in bad {
        let words = format!("f: Invalid value: {found:?}: f in body must be of type {types}: {found:?}");
        expect(schema.clone(), value.clone(), &[&words]);
    }
}

#[test]
fn types() {
    let (null, flag, int, float) = (json!(null), json!(true), json!(42), json!(1.2));
    let (text, list, object) = (json!("x"), json!([]), json!({}));
    let names = [
        (&null, "null"),
        (&flag, "boolean"),
        (&int, "integer"),
        (&float, "number"),
        (&text, "string"),
        (&list, "array"),
        (&object, "object"),
    ];
    let others = |good: &[&Value]| -> Vec<(Value, &str)> {
        names.iter().filter(|(v, _)| !good.contains(v)).map(|(v, name)| ((*v).clone(), *name)).collect()
    };
    expect_type(json!({"type": "object"}), "object", &[json!({})], &others(&[&object]));
    expect_type(
        json!({"type": "object", "nullable": true}),
        "object",
        &[json!({}), json!(null)],
        &others(&[&object, &null]),
    );
    expect_type(
        json!({"type": "array", "items": {"type": "string"}}),
        "array",
        &[json!([]), json!(["a"])],
        &others(&[&list]),
    );
    expect_type(json!({"type": "string"}), "string", &[json!("")], &others(&[&text]));
    expect_type(json!({"type": "boolean"}), "boolean", &[json!(false)], &others(&[&flag]));
    expect_type(json!({"type": "number"}), "number", &[json!(1), json!(1.5)], &others(&[&int, &float]));
    expect_type(
        json!({"x-kubernetes-int-or-string": true}),
        "integer,string",
        &[json!(1), json!("1")],
        &others(&[&int, &text]),
    );
    let nullable = json!({"x-kubernetes-int-or-string": true, "nullable": true});
    expect_type(nullable, "integer,string", &[json!(1), json!(null)], &others(&[&int, &text, &null]));
    expect_type(json!({"x-kubernetes-preserve-unknown-fields": true}), "", &names.map(|(v, _)| v.clone()), &[]);
    expect(json!({"type": "integer"}), json!(3.0), &[]);
    expect(
        json!({"type": "integer"}),
        json!(3.5),
        &[
            r#"f: Invalid value: "number": f in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in f"#,
        ],
    );
}

#[test]
fn int_or_string_may_name_its_types_again() {
    let schema = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
    expect(schema.clone(), json!(1), &[]);
    expect(schema.clone(), json!("a"), &[]);
    expect(
        schema,
        json!(true),
        &[
            r#"f: Invalid value: "boolean": f in body must be of type integer,string: "boolean""#,
            r#"<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)"#,
            r#"f: Invalid value: "boolean": f in body must be of type integer: "boolean""#,
        ],
    );
    let all = json!({"x-kubernetes-int-or-string": true, "nullable": true,
        "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]});
    expect(all.clone(), json!(null), &[]);
    expect(
        all,
        json!(1.2),
        &[
            r#"f: Invalid value: "number": f in body must be of type integer,string: "number""#,
            r#"<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)"#,
            r#"f: Invalid value: "number": f in body must be of type integer: "number""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer (default format) in f"#,
            r#"<nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated"#,
        ],
    );
}

#[test]
fn text() {
    let limits = json!({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-zé]+$"});
    expect(limits.clone(), json!("éé"), &[]);
    expect(limits.clone(), json!("ééé"), &[]);
    expect(limits.clone(), json!("éééé"), &["f: Too long: may not be more than 3 bytes"]);
    expect(limits.clone(), json!("é"), &[r#"f: Invalid value: "é": f in body should be at least 2 chars long"#]);
    expect(limits, json!("A1"), &[r#"f: Invalid value: "A1": f in body should match '^[a-zé]+$'"#]);
    expect(json!({"type": "string", "maxLength": 1}), json!("ab"), &["f: Too long: may not be more than 1 byte"]);
    expect(
        json!({"type": "string", "pattern": "+"}),
        json!("foo"),
        &[
            "f: Invalid value: \"foo\": f in body should match '+, but pattern is invalid: error parsing regexp: missing argument to repetition operator: `+`'",
        ],
    );
}

#[test]
fn formats() {
    let date = json!({"type": "string", "format": "date-time"});
    expect(date.clone(), json!("2024-01-01T00:00:00Z"), &[]);
    expect(date.clone(), json!("x"), &[r#"f: Invalid value: "x": f in body must be of type date-time: "x""#]);
    expect(date.clone(), json!(5), &[r#"f: Invalid value: "int64": f in body must be of type date-time: "int64""#]);
    expect(date.clone(), json!(true), &[r#"f: Invalid value: "": f in body must be of type date-time: """#]);
    expect(date, json!([]), &[r#"f: Invalid value: "array": f in body must be of type string: "array""#]);
    expect(
        json!({"type": "string", "format": "k8s-long-name"}),
        json!("a.-"),
        &[r#"f: Invalid value: "a.-": f in body must be of type k8s-long-name: "a.-""#],
    );
    expect(json!({"type": "string", "format": "nonsense"}), json!("x"), &[]);
    let int32 = json!({"type": "integer", "format": "int32"});
    expect(int32.clone(), json!(2147483647), &[]);
    expect(
        int32.clone(),
        json!(2147483648i64),
        &[r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in f"#],
    );
    expect(int32, json!("x"), &[r#"f: Invalid value: "string": f in body must be of type integer: "string""#]);
    expect(
        json!({"type": "integer", "format": "int64"}),
        json!(u64::MAX),
        &[
            r#"f: Invalid value: "float64": f in body must be of type int64: "float64""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int64 in f"#,
        ],
    );
    expect(
        json!({"type": "number", "format": "float"}),
        json!(1e300),
        &[r#"<nil>: Invalid value: "": Checked value must be of type number with format float in f"#],
    );
    expect(json!({"type": "number", "format": "double"}), json!(1e300), &[]);
}

#[test]
fn numbers() {
    let range = json!({"type": "integer", "minimum": 1, "maximum": 3});
    expect(range.clone(), json!(1), &[]);
    expect(range.clone(), json!(0), &["f: Invalid value: 0: f in body should be greater than or equal to 1"]);
    expect(range, json!(4), &["f: Invalid value: 4: f in body should be less than or equal to 3"]);
    let open =
        json!({"type": "number", "minimum": 0.5, "exclusiveMinimum": true, "maximum": 1e21, "exclusiveMaximum": true});
    expect(open.clone(), json!(0.75), &[]);
    expect(open.clone(), json!(0.5), &["f: Invalid value: 0.5: f in body should be greater than 0.5"]);
    expect(open, json!(1e21), &["f: Invalid value: 1e+21: f in body should be less than 1e+21"]);
    let multiple = json!({"type": "integer", "multipleOf": 3});
    expect(multiple.clone(), json!(-6), &[]);
    expect(multiple, json!(4), &["f: Invalid value: 4: f in body should be a multiple of 3"]);
    expect(json!({"type": "number", "multipleOf": 0.1}), json!(0.7), &[]);
    expect(
        json!({"type": "number", "multipleOf": 0.25}),
        json!(0.3),
        &["f: Invalid value: 0.3: f in body should be a multiple of 0.25"],
    );
    expect(
        json!({"type": "integer", "multipleOf": -1}),
        json!(4),
        &["f: Invalid value: -1: factor MultipleOf declared for f must be positive: -1"],
    );
    // A bound that an integer cannot be is wrong for every value.
    expect(
        json!({"type": "integer", "maximum": 1.5}),
        json!(1),
        &[r#"<nil>: Invalid value: "": Maximum boundary value must be of type integer (default format) in f"#],
    );
}

#[test]
fn listed_values() {
    let values = json!({"type": "string", "enum": ["a", "b"]});
    expect(values.clone(), json!("a"), &[]);
    expect(values.clone(), json!("c"), &[r#"f: Unsupported value: "c": supported values: "a", "b""#]);
    expect(
        values,
        json!(true),
        &[
            r#"f: Invalid value: "boolean": f in body must be of type string: "boolean""#,
            r#"f: Unsupported value: true: supported values: "a", "b""#,
        ],
    );
    expect(json!({"type": "integer", "enum": [1, 2]}), json!(1.0), &[]);
    expect(
        json!({"type": "integer", "enum": [1, 2]}),
        json!(3),
        &[r#"f: Unsupported value: 3: supported values: "1", "2""#],
    );
    expect(
        json!({"type": "object", "nullable": true, "enum": [{}]}),
        json!(null),
        &[r#"f: Unsupported value: null: supported values: "{}""#],
    );
}

#[test]
fn objects() {
    let nested = json!({"type": "object", "required": ["a", "b"], "properties": {
        "a": {"type": "string"}, "b": {"type": "array", "items": {"type": "object", "required": ["c"]}}}});
    expect(nested.clone(), json!({}), &["f.a: Required value", "f.b: Required value"]);
    expect(nested, json!({"a": "", "b": [{"c": 1}, {}]}), &["f.b[1].c: Required value"]);
    expect(
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "maxProperties": 2}),
        json!({"a": 1, "b": 2, "c": 3}),
        &["f: Too many: 3: must have at most 2 items"],
    );
    expect(
        json!({"type": "object", "minProperties": 1}),
        json!({}),
        &["f: Invalid value: 0: f in body should have at least 1 properties"],
    );
    expect(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        json!({"k.x": "v"}),
        &[r#"f.k.x: Invalid value: "string": f.k.x in body must be of type integer: "string""#],
    );
    expect(
        json!({"type": "object", "additionalProperties": false}),
        json!({"k": 1}),
        &[r#"f: Invalid value: "k": f.k in body is a forbidden property"#],
    );
    expect(json!({"type": "object", "additionalProperties": true}), json!({"k": 1}), &[]);
    let untyped = json!({"x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}, "items": {"type": "integer"}});
    expect(
        untyped.clone(),
        json!({"a": 1, "z": 1}),
        &[r#"f.a: Invalid value: "integer": f.a in body must be of type string: "integer""#],
    );
    expect(
        untyped,
        json!([true]),
        &[r#"f[0]: Invalid value: "boolean": f[0] in body must be of type integer: "boolean""#],
    );
}

#[test]
fn lists() {
    let list = json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}});
    expect(list.clone(), json!([]), &["f: Invalid value: 0: f in body should have at least 1 items"]);
    expect(list.clone(), json!(["a", "b", "c"]), &["f: Too many: 3: must have at most 2 items"]);
    expect(list, json!([1]), &[r#"f[0]: Invalid value: "integer": f[0] in body must be of type string: "integer""#]);
}

#[test]
fn sets_and_keys() {
    let set = |items: Value| json!({"type": "array", "x-kubernetes-list-type": "set", "items": items});
    expect(set(json!({"type": "string"})), json!(["a", "b", "a", "a"]), &[r#"f[2]: Duplicate value: "a""#]);
    let any = set(json!({"x-kubernetes-preserve-unknown-fields": true}));
    expect(any.clone(), json!([1, 1.0, "1", true, null, {"a": 1}, [1]]), &[]);
    expect(
        any,
        json!([{"a": 1, "b": 2}, {"b": 2, "a": 1}, null, null]),
        &[r#"f[1]: Duplicate value: {"a":1,"b":2}"#, "f[3]: Duplicate value: null"],
    );
    let item = json!({"type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true});
    let keyed = |keys: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": item});
    expect(keyed(json!(["a"])), json!([{"a": 1, "b": 1}, {"a": 1}, {"a": 2}]), &[r#"f[1]: Duplicate value: {"a":1}"#]);
    expect(keyed(json!(["a"])), json!([{"b": 1}, {"b": 2}, {"a": null}]), &["f[1]: Duplicate value: {}"]);
    expect(
        keyed(json!(["a", "b"])),
        json!([{"a": 1}, {"a": 1, "b": 1}, {"a": 1}, null]),
        &[r#"f[2]: Duplicate value: {"a":1}"#],
    );
    expect(
        keyed(json!(["a"])),
        json!([{"a": 1}, 5]),
        &[
            r#"f[1]: Invalid value: "integer": f[1] in body must be of type object: "integer""#,
            "f[1]: Invalid value: 5: must be an object for an array of list-type map",
        ],
    );
    let long: Vec<usize> = (0..100).chain([7]).collect();
    expect(set(json!({"type": "integer"})), json!(long), &["f[100]: Duplicate value: 7"]);
    let nested = json!({"type": "object", "additionalProperties": set(json!({"type": "string"}))});
    expect(nested, json!({"k": ["a", "a"]}), &[r#"f[k][1]: Duplicate value: "a""#]);
}

#[test]
fn combinations() {
    let object = |more: Value| {
        let mut schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let either = json!([{"required": ["a"]}, {"required": ["b"]}]);
    let one = object(json!({"oneOf": either}));
    expect(one.clone(), json!({"a": "x"}), &[]);
    expect(
        one.clone(),
        json!({}),
        &[
            r#"<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found none valid"#,
            "f.a: Required value",
        ],
    );
    expect(
        one,
        json!({"a": "", "b": ""}),
        &[r#"<nil>: Invalid value: "": "f" must validate one and only one schema (oneOf). Found 2 valid alternatives"#],
    );
    let any = object(json!({"anyOf": either}));
    expect(any.clone(), json!({"b": ""}), &[]);
    expect(
        any,
        json!({}),
        &[r#"<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)"#, "f.a: Required value"],
    );
    let all = object(json!({"allOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["a"]}]}));
    expect(
        all,
        json!({"b": ""}),
        &["f.a: Required value", r#"<nil>: Invalid value: "": "f" must validate all the schemas (allOf)"#],
    );
    expect(
        object(json!({"not": {"required": ["a"]}})),
        json!({"a": ""}),
        &[r#"<nil>: Invalid value: "": "f" must not validate the schema (not)"#],
    );
    // The alternative that got furthest explains itself.
    let deep = object(json!({"anyOf": [
        {"properties": {"a": {"enum": ["x"]}}},
        {"properties": {"a": {"minLength": 1}, "b": {"enum": ["y"]}}},
    ]}));
    expect(
        deep,
        json!({"a": "q", "b": "z"}),
        &[
            r#"<nil>: Invalid value: "": "f" must validate at least one schema (anyOf)"#,
            r#"f.b: Unsupported value: "z": supported values: "y""#,
        ],
    );
    expect(
        json!({"type": "string", "not": {"pattern": "^a"}}),
        json!("abc"),
        &[r#"<nil>: Invalid value: "": "f" must not validate the schema (not)"#],
    );
}

#[test]
fn metadata_rules_of_the_object() {
    let schema = load(json!({"type": "object", "properties": {
        "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"}}}}}));
    assert!(validate(&schema, &json!({"metadata": {"name": "abc", "creationTimestamp": null}})).is_empty());
    assert_eq!(
        messages(&validate(&schema, &json!({"metadata": {"name": "a1"}}))),
        [r#"metadata.name: Invalid value: "a1": metadata.name in body should match '^[a-z]+$'"#]
    );
    assert_eq!(
        messages(&validate(&schema, &json!({"metadata": {"name": "abcd"}}))),
        ["metadata.name: Too long: may not be more than 3 bytes"]
    );
}

#[test]
fn embedded_resources() {
    let resource =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true});
    expect(resource.clone(), json!({"apiVersion": "v1", "kind": "Pod"}), &[]);
    expect(resource.clone(), json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}), &[]);
    expect(resource.clone(), json!({}), &["f.apiVersion: Required value", "f.kind: Required value"]);
    expect(
        resource.clone(),
        json!({"apiVersion": "a/b/c", "kind": ""}),
        &[
            r#"f.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c"#,
            r#"f.kind: Invalid value: "": must not be empty"#,
        ],
    );
    let schema = load(json!({"type": "object", "properties": {"f": resource}}));
    let found = messages(&validate(
        &schema,
        &json!({"f": {"apiVersion": "v1", "kind": "No.Kind", "metadata": {"name": "a/b", "namespace": "A"}}}),
    ));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].starts_with(
        r#"f.kind: Invalid value: "No.Kind": may have mixed case, but should otherwise match: a DNS-1035 label"#
    ));
    assert_eq!(found[1], r#"f.metadata.name: Invalid value: "a/b": may not contain '/'"#);
    assert!(found[2].starts_with(r#"f.metadata.namespace: Invalid value: "A": a lowercase RFC 1123 label"#));
}

#[track_caller]
fn expect_update(schema: Value, old: Value, new: Value, expected: &[&str]) {
    let schema = load(json!({"type": "object", "properties": {"f": schema}}));
    assert_eq!(messages(&validate_update(&schema, &json!({"f": new}), &json!({"f": old}))), expected);
}

#[test]
fn what_was_wrong_and_is_unchanged_is_tolerated() {
    let object = json!({"type": "object", "required": ["z"], "properties": {
        "a": {"type": "string", "maxLength": 1}, "b": {"type": "string", "maxLength": 1}, "z": {"type": "string"}}});
    expect_update(object.clone(), json!({"a": "long"}), json!({"a": "long"}), &[]);
    // The field is tolerated; the object around it changed, so what the object lacks is told again.
    expect_update(object.clone(), json!({"a": "long"}), json!({"a": "long", "b": ""}), &["f.z: Required value"]);
    expect_update(
        object.clone(),
        json!({"a": "long", "z": ""}),
        json!({"a": "long", "b": "more", "z": ""}),
        &["f.b: Too long: may not be more than 1 byte"],
    );
    expect_update(
        object,
        json!({"a": "long"}),
        json!({"a": "longer"}),
        &["f.a: Too long: may not be more than 1 byte", "f.z: Required value"],
    );
    // Fields that the schema does not name cannot be compared.
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "minProperties": 3});
    let words = "f: Invalid value: 1: f in body should have at least 3 properties";
    expect_update(open, json!({"x": 1}), json!({"x": 1}), &[words]);
}

#[test]
fn items_are_compared_by_key() {
    let item =
        json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "string", "maxLength": 1}}});
    let keyed = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "maxItems": 2, "items": item});
    let list =
        |items: &[(&str, &str)]| Value::from(items.iter().map(|(k, v)| json!({"k": k, "v": v})).collect::<Vec<_>>());
    expect_update(keyed.clone(), list(&[("a", "bad"), ("b", "")]), list(&[("b", "x"), ("a", "bad")]), &[]);
    expect_update(
        keyed.clone(),
        list(&[("a", "bad")]),
        list(&[("b", "bad"), ("a", "bad")]),
        &["f[0].v: Too long: may not be more than 1 byte"],
    );
    // Only the order changed: the whole list counts as unchanged.
    expect_update(keyed, list(&[("a", ""), ("b", ""), ("c", "")]), list(&[("c", ""), ("b", ""), ("a", "")]), &[]);
    let atomic = json!({"type": "array", "items": item});
    expect_update(atomic.clone(), list(&[("a", "bad")]), list(&[("a", "bad")]), &[]);
    expect_update(
        atomic,
        list(&[("a", "bad")]),
        list(&[("a", "bad"), ("b", "")]),
        &["f[0].v: Too long: may not be more than 1 byte"],
    );
}

#[test]
fn combinations_are_tolerated_only_as_a_whole() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "allOf": [{"properties": {"a": {"maxLength": 1}}}]});
    let all = r#"<nil>: Invalid value: "": "f" must validate all the schemas (allOf). None validated"#;
    expect_update(schema.clone(), json!({"a": "long"}), json!({"a": "long"}), &[]);
    expect_update(
        schema,
        json!({"a": "long"}),
        json!({"a": "long", "b": ""}),
        &["f.a: Too long: may not be more than 1 byte", all],
    );
}

#[test]
fn duplicates_are_tolerated_while_the_old_object_has_some() {
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    expect_update(set.clone(), json!(["a", "a"]), json!(["a", "a", "b", "b"]), &[]);
    expect_update(set, json!(["a"]), json!(["a", "a"]), &[r#"f[1]: Duplicate value: "a""#]);
}

#[test]
fn status_is_checked_alone() {
    let schema = load(json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["x"]},
        "status": {"type": "object", "required": ["r"], "properties": {"n": {"type": "integer"}}}}}));
    let errors =
        validate_status_update(&schema, &json!({"spec": {}, "status": {"n": "x"}}), &json!({"spec": {}, "status": {}}));
    assert_eq!(
        messages(&errors),
        [
            r#"status.n: Invalid value: "string": n in body must be of type integer: "string""#,
            "status.r: Required value",
        ]
    );
    assert!(validate_status_update(&schema, &json!({"spec": {}}), &json!({"status": {}})).is_empty());
}

#[test]
fn errors_are_bounded() {
    let schema = load(json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}}));
    let errors = validate(&schema, &json!({"l": vec![1; 100_000]}));
    assert!(errors.len() > 1000 && errors.to_string().len() < 4 * Errors::MOST_BYTES, "{} errors", errors.len());
}

#[test]
fn nested_combinations_cost_no_more_than_their_size() {
    let mut branch = json!({"minLength": 5});
    for _ in 0..30 {
        branch = json!({"anyOf": [{"oneOf": [branch, {"maxLength": 0}]}, {"maxLength": 0}]});
    }
    expect(json!({"type": "string", "anyOf": [branch]}), json!("long enough"), &[]);
    let schema = load(json!({"type": "object", "properties": {"f": {"type": "string", "anyOf": [branch]}}}));
    assert!(!validate(&schema, &json!({"f": "no"})).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn anything_can_be_checked_against_anything(schema in any_schema(), value in any_value(), old in any_value()) {
        let schema = load(schema);
        let errors = validate(&schema, &value);
        prop_assert_eq!(&errors, &validate(&schema, &value));
        // Nothing is worse for having been there before.
        prop_assert!(validate_update(&schema, &value, &old).len() <= errors.len());
    }

    #[test]
    fn an_object_that_fits_its_schema_fits_however_it_came(schema in any_schema(), object in any_object(), old in any_object()) {
        let schema = load(schema);
        if validate(&schema, &object).is_empty() {
            prop_assert!(validate_update(&schema, &object, &old).is_empty());
        }
    }
}
