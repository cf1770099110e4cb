use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::schema::testing::{any_schema, any_value, load, messages, parse};
use crate::schema::{ListKind, Scalar, Shape, validate};
use crate::value::Fields;

/// Checks a schema whose place is shown as `s`.
fn parse_at_s(schema: &Value) -> Result<Schema, Errors> {
    parse(schema, &Path::Root.child("s"), Options::default())
}

/// Checks a schema in property `f` of an object; paths are shown below `s.properties[f]`.
#[track_caller]
fn expect(schema: Value, expected: &[&str]) {
    expect_root(json!({"type": "object", "properties": {"f": schema}}), expected);
}

#[track_caller]
fn expect_root(schema: Value, expected: &[&str]) {
    let found = match parse_at_s(&schema) {
        Ok(_) => vec![],
        Err(errors) => messages(&errors),
    };
    assert_eq!(found, expected, "for {schema}");
}

#[test]
fn every_node_has_a_type() {
    expect_root(json!({}), &["s.type: Required value: must not be empty at the root"]);
    expect_root(json!({"type": "string"}), &[r#"s.type: Invalid value: "string": must be object at the root"#]);
    expect(json!({}), &["s.properties[f].type: Required value: must not be empty for specified object fields"]);
    expect(
        json!({"type": "array", "items": {}}),
        &["s.properties[f].items.type: Required value: must not be empty for specified array items"],
    );
    expect(json!({"type": "array"}), &["s.properties[f].items: Required value: must be specified"]);
    expect(
        json!({"type": "object", "additionalProperties": {}}),
        &["s.properties[f].additionalProperties.type: Required value: must not be empty for specified object fields"],
    );
    expect(json!({"x-kubernetes-preserve-unknown-fields": true}), &[]);
    expect(json!({"x-kubernetes-int-or-string": true}), &[]);
    expect(
        json!({"type": "text"}),
        &[
            r#"s.properties[f].type: Unsupported value: "text": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
    expect(json!(null), &["s.properties[f].type: Required value: must not be empty for specified object fields"]);
}

#[test]
fn the_root_is_an_object_with_names_only_in_its_metadata() {
    let root = |more: Value| {
        let mut schema = json!({"type": "object"});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    expect_root(
        root(json!({"additionalProperties": {"type": "string"}})),
        &["s.additionalProperties: Forbidden: must not be used at the root"],
    );
    expect_root(root(json!({"nullable": true})), &["s.nullable: Forbidden: nullable cannot be true at the root"]);
    expect_root(
        root(json!({"properties": {"kind": {"type": "integer"}}})),
        &[r#"s.properties[kind].type: Invalid value: "integer": must be string"#],
    );
    let metadata = |m: Value| root(json!({"properties": {"metadata": m}}));
    expect_root(metadata(json!({"type": "object"})), &[]);
    expect_root(metadata(json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}})), &[]);
    let words = "s.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified";
    expect_root(metadata(json!({"type": "object", "properties": {"labels": {"type": "object"}}})), &[words]);
    expect_root(metadata(json!({"type": "object", "minProperties": 1})), &[words]);
    expect_root(
        metadata(json!({"type": "array", "items": {"type": "string"}})),
        &[r#"s.properties[metadata].type: Invalid value: "array": must be object"#, words],
    );
    expect_root(
        metadata(json!({"type": "object", "properties": {"name": {"type": "string", "default": "x"}}})),
        &["s.properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"],
    );
    let kind = root(json!({"properties": {"kind": {"type": "string", "default": "Foo"}}}));
    expect_root(kind, &["s.properties[kind].default: Forbidden: must not be set in top-level kind"]);
}

#[test]
fn combinations_say_nothing_of_structure() {
    let forbidden = [
        (json!({"type": "string"}), "type", "must be empty to be structural"),
        (json!({"additionalProperties": true}), "additionalProperties", "must be undefined to be structural"),
        (json!({"default": 1}), "default", "must be undefined to be structural"),
        (json!({"title": "x"}), "title", "must be empty to be structural"),
        (json!({"description": "x"}), "description", "must be empty to be structural"),
        (json!({"nullable": true}), "nullable", "must be false to be structural"),
        (
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (json!({"x-kubernetes-int-or-string": true}), "x-kubernetes-int-or-string", "must be false to be structural"),
        (
            json!({"x-kubernetes-validations": [{"rule": "true"}]}),
            "x-kubernetes-validations",
            "must be empty to be structural",
        ),
    ];
    for (branch, name, words) in forbidden {
        for junctor in ["allOf", "anyOf", "oneOf"] {
            let words = format!("s.properties[f].{junctor}[0].{name}: Forbidden: {words}");
            expect(json!({"type": "object", junctor: [branch]}), &[&words]);
        }
        let words = format!("s.properties[f].not.{name}: Forbidden: {words}");
        expect(json!({"type": "object", "not": branch}), &[&words]);
    }
    let any_of = json!([{"type": "integer"}, {"type": "string"}]);
    expect(json!({"x-kubernetes-int-or-string": true, "anyOf": any_of}), &[]);
    expect(json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": any_of}, {"minimum": 1}]}), &[]);
    expect(
        json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]}),
        &[
            "s.properties[f].anyOf[0].type: Forbidden: must be empty to be structural",
            "s.properties[f].anyOf[1].type: Forbidden: must be empty to be structural",
        ],
    );
    expect_root(
        json!({"type": "object", "properties": {"metadata": {"type": "object"}}, "not": {"properties": {"metadata": {}}}}),
        &["s.not.properties[metadata]: Forbidden: must not be specified in a nested context"],
    );
}

#[test]
fn combinations_speak_of_what_is_specified() {
    let with = |branch: Value| json!({"type": "object", "properties": {"foo": {"type": "string"}}, "allOf": [branch]});
    expect_root(with(json!({"properties": {"foo": {"minLength": 2}}})), &[]);
    expect_root(
        with(json!({"properties": {"bar": {"minLength": 2}}})),
        &["s.properties[bar]: Required value: because it is defined in s.allOf[0].properties[bar]"],
    );
    expect_root(
        with(json!({"items": {"minLength": 2}})),
        &["s.items: Required value: because it is defined in s.allOf[0].items"],
    );
}

#[test]
fn patterns_must_compile() {
    expect(json!({"type": "string", "pattern": "^[a-z]+$"}), &[]);
    expect(
        json!({"type": "string", "pattern": "a("}),
        &[
            "s.properties[f].pattern: Invalid value: \"a(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `a(`",
        ],
    );
}

#[test]
fn embedded_resources_are_objects() {
    let resource = |more: Value| {
        let mut schema = json!({"type": "object", "x-kubernetes-embedded-resource": true});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    expect(resource(json!({"x-kubernetes-preserve-unknown-fields": true})), &[]);
    expect(
        resource(
            json!({"properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}}),
        ),
        &[],
    );
    let empty = "s.properties[f].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
    expect(resource(json!({})), &[empty]);
    expect(
        resource(json!({"type": "array", "items": {"type": "string"}})),
        &[
            empty,
            r#"s.properties[f].type: Invalid value: "array": must be object if x-kubernetes-embedded-resource is true"#,
        ],
    );
    expect(
        resource(json!({"properties": {"metadata": {"type": "string"}}})),
        &[r#"s.properties[f].properties[metadata].type: Invalid value: "string": must be object"#],
    );
    expect(
        json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
        &[
            "s.properties[f].x-kubernetes-preserve-unknown-fields: Invalid value: true: must be false if x-kubernetes-int-or-string is true",
        ],
    );
}

#[test]
fn list_and_map_types() {
    let at = |path: &str, words: &str| format!("s.properties[f]{path}: {words}");
    let keyed = |items: Value, keys: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
    let item = |more: Value| {
        let mut schema = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "o": {"type": "object"}}});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    expect(keyed(item(json!({})), json!(["k"])), &[]);
    expect(
        keyed(item(json!({"required": [], "properties": {"k": {"type": "string", "default": "d"}}})), json!(["k"])),
        &[],
    );
    let no_default = at(
        ".items.properties[k].default",
        "Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
    );
    expect(keyed(item(json!({"required": []})), json!(["k"])), &[&no_default]);
    expect(
        keyed(item(json!({"nullable": true})), json!(["k"])),
        &[&at(".items.nullable", "Forbidden: cannot be nullable when x-kubernetes-list-type is map")],
    );
    expect(
        keyed(item(json!({})), json!([])),
        &[&at(".x-kubernetes-list-map-keys", "Required value: must not be empty if x-kubernetes-list-type is map")],
    );
    expect(
        keyed(item(json!({})), json!(["k", "k"])),
        &[&at(".x-kubernetes-list-map-keys", r#"Invalid value: ["k","k"]: must not contain duplicate entries"#)],
    );
    expect(
        keyed(item(json!({})), json!(["z"])),
        &[&at(".x-kubernetes-list-map-keys", r#"Invalid value: ["z"]: entries must all be names of item properties"#)],
    );
    expect(
        keyed(item(json!({"required": ["o"]})), json!(["o"])),
        &[&at(
            ".items.properties[o].type",
            r#"Invalid value: "object": must be a scalar type if parent array's x-kubernetes-list-type is map"#,
        )],
    );
    expect(
        keyed(json!({"type": "string"}), json!(["k"])),
        &[&at(
            ".items.type",
            r#"Invalid value: "string": must be object if parent array's x-kubernetes-list-type is map"#,
        )],
    );
    let set = |items: Value| json!({"type": "array", "x-kubernetes-list-type": "set", "items": items});
    expect(set(json!({"type": "string"})), &[]);
    expect(set(json!({"type": "object", "x-kubernetes-map-type": "atomic"})), &[]);
    let words = "must be atomic as item of a list with x-kubernetes-list-type=set";
    expect(
        set(json!({"type": "object"})),
        &[&at(".items.x-kubernetes-map-type", &format!("Invalid value: null: {words}"))],
    );
    expect(
        set(set(json!({"type": "string"}))),
        &[&at(".items.x-kubernetes-list-type", &format!("Invalid value: \"set\": {words}"))],
    );
    expect(
        json!({"type": "string", "x-kubernetes-list-type": "set"}),
        &[&at(".type", r#"Invalid value: "string": must be array if x-kubernetes-list-type is specified"#)],
    );
    expect(
        json!({"type": "string", "x-kubernetes-map-type": "x"}),
        &[
            &at(".type", r#"Invalid value: "string": must be object if x-kubernetes-map-type is specified"#),
            &at(".x-kubernetes-map-type", r#"Unsupported value: "x": supported values: "atomic", "granular""#),
        ],
    );
    expect(
        json!({"type": "array", "x-kubernetes-list-map-keys": ["a"], "items": {"type": "string"}}),
        &[&at(".x-kubernetes-list-type", "Required value: must be map if x-kubernetes-list-map-keys is non-empty")],
    );
}

#[test]
fn keywords_that_kubernetes_has_not() {
    expect(json!({"type": "object", "$ref": "x"}), &["s.properties[f].$ref: Forbidden: $ref is not supported"]);
    expect(json!({"type": "object", "id": "x"}), &["s.properties[f].id: Forbidden: id is not supported"]);
    expect(
        json!({"type": "object", "patternProperties": {"a": {"type": "string"}}}),
        &["s.properties[f].patternProperties: Forbidden: patternProperties is not supported"],
    );
    expect(
        json!({"type": "array", "items": [{"type": "string"}]}),
        &["s.properties[f].items: Forbidden: items must be a schema object and not an array"],
    );
    expect(
        json!({"type": "object", "$schema": "x"}),
        &[r#"s: Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#],
    );
    expect(
        json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}}),
        &[
            "s.properties[f].uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ],
    );
    expect(
        json!({"x-kubernetes-preserve-unknown-fields": false, "type": "object"}),
        &["s.properties[f].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined"],
    );
    expect(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
        &["s.properties[f].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    expect(json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": true}), &[]);
}

#[test]
fn defaults_must_fit() {
    let default = |schema: Value, value: Value| {
        let mut schema = schema;
        schema["default"] = value;
        schema
    };
    let object = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}});
    expect(default(object.clone(), json!({"a": 1})), &[]);
    expect(
        default(object.clone(), json!({"a": 0})),
        &["s.properties[f].default.a: Invalid value: 0: a in body should be greater than or equal to 1"],
    );
    expect(
        default(object.clone(), json!({"b": 0})),
        &[r#"s.properties[f].default: Invalid value: {"b":0}: must not have unknown fields"#],
    );
    expect(
        default(json!({"type": "integer"}), json!("x")),
        &[r#"s.properties[f].default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    expect(
        default(json!({"type": "array", "items": {"type": "string"}}), json!([1])),
        &[r#"s.properties[f].default.[0]: Invalid value: "integer": [0] in body must be of type string: "integer""#],
    );
    expect(
        default(json!({"type": "object", "additionalProperties": {"type": "string"}}), json!({"k": 1})),
        &[r#"s.properties[f].default.k: Invalid value: "integer": .k in body must be of type string: "integer""#],
    );
    expect(default(json!({"type": "string", "nullable": true}), json!(null)), &[]);
    let resource =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}});
    expect(default(resource.clone(), json!({"apiVersion": "v1", "kind": "Pod"})), &[]);
    expect(default(resource.clone(), json!({"kind": "Pod"})), &["s.properties[f].default.apiVersion: Required value"]);
    expect(
        default(resource.clone(), json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}})),
        &[
            r#"s.properties[f].default.metadata: Invalid value: {"name":5}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"#,
        ],
    );
    let with_metadata = |metadata: Value| {
        let mut schema = resource.clone();
        schema["properties"]["metadata"] = json!({"type": "object", "properties": metadata});
        schema
    };
    expect(with_metadata(json!({"name": {"type": "string", "default": "x"}})), &[]);
    expect(
        with_metadata(json!({"name": {"type": "string", "default": "a/b"}})),
        &[
            r#"s.properties[f].properties[metadata].properties[name].default: Invalid value: "a/b": must result in valid metadata: metadata.name: Invalid value: "a/b": may not contain '/'"#,
        ],
    );
    expect(
        with_metadata(
            json!({"labels": {"type": "object", "additionalProperties": {"type": "string", "default": "x"}}}),
        ),
        &[
            "s.properties[f].properties[metadata].properties[labels].additionalProperties.default: Forbidden: must not be set inside additionalProperties applying to object metadata",
        ],
    );
}

#[test]
fn expression_rules_are_carried_and_checked_for_form() {
    let rules = |rules: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": rules});
    let at = |path: &str, words: &str| format!("s.properties[f].x-kubernetes-validations[0].{path}: {words}");
    expect(rules(json!([{"rule": ""}])), &[&at("rule", "Required value: rule is not specified")]);
    expect(
        rules(json!([{"rule": "a\nb"}])),
        &[&at("message", "Required value: message must be specified if rule contains line breaks")],
    );
    expect(
        rules(json!([{"rule": "a", "reason": "No", "fieldPath": ".b"}])),
        &[
            &at(
                "reason",
                r#"Unsupported value: "No": supported values: "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired""#,
            ),
            &at("fieldPath", r#"Invalid value: ".b": must be a valid path"#),
        ],
    );
    let schema = json!({"type": "object", "properties": {"f": rules(json!([
        {"rule": "self.a != ''", "message": "m", "messageExpression": "e", "reason": "FieldValueRequired", "fieldPath": ".a", "optionalOldSelf": true},
    ]))}});
    let schema = parse_at_s(&schema).expect("valid");
    let field = schema.root().child("f").expect("a field");
    let rule = &field.rules().expect("rules").expressions[0];
    assert_eq!((&*rule.rule, &*rule.message, &*rule.message_expression), ("self.a != ''", "m", "e"));
    assert_eq!(
        (rule.reason.as_deref(), &*rule.field_path, rule.optional_old_self),
        (Some("FieldValueRequired"), ".a", Some(true))
    );
}

#[test]
fn with_a_status_subresource_the_root_says_little() {
    let parse_with_status = |schema: &Value| parse(schema, &Path::Root.child("s"), Options { status: true });
    assert!(parse_with_status(&json!({"type": "object", "required": ["spec"]})).is_ok());
    let errors = parse_with_status(&json!({"type": "object", "minProperties": 1})).expect_err("refused");
    let words = messages(&errors).remove(0);
    assert!(
        words.starts_with(r#"s: Invalid value: {"minProperties":1,"type":"object"}: only [Description Type Format"#),
        "{words}"
    );
}

#[test]
fn shapes() {
    let schema = parse_at_s(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}}}},
        "port": {"x-kubernetes-int-or-string": true},
        "map": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer", "format": "int32"}},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "resource": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}))
    .expect("valid");
    let shape = |name: &str| schema.root().child(name).map(|node| node.shape().clone());
    assert!(matches!(shape("set"), Some(Shape::List(list)) if list.kind == ListKind::Set));
    assert!(matches!(shape("keyed"), Some(Shape::List(list)) if list.kind == ListKind::Map(["k".into()].into())));
    assert_eq!(shape("port"), Some(Shape::Scalar(Scalar::IntOrString)));
    assert!(matches!(shape("map"), Some(Shape::Map(map)) if map.atomic));
    assert_eq!(shape("any"), Some(Shape::Any));
    assert_eq!(shape("kind"), Some(Shape::Scalar(Scalar::String)));
    let root_metadata = schema.root().child("metadata").expect("metadata");
    assert_eq!(
        root_metadata.child("labels").and_then(|l| l.child("x")).map(|l| l.shape().clone()),
        Some(Shape::Scalar(Scalar::String))
    );
    let resource = schema.root().child("resource").expect("a field");
    assert!(matches!(resource.shape(), Shape::Struct(s) if s.embedded && s.preserve_unknown));
    assert_eq!(resource.child("metadata").map(|m| m.id()), Some(root_metadata.id()), "copied once");
}

#[test]
fn served_defaults_are_pruned() {
    let schema = json!({"type": "object", "properties": {
        "o": {"type": "object", "default": {"a": 1, "unknown": 1}, "properties": {"a": {"type": "integer"}}}}});
    let schema = load(schema);
    let default = schema.root().child("o").and_then(|node| node.node().default.clone());
    assert_eq!(default.as_deref(), Some(&json!({"a": 1})));
}

#[test]
fn unknown_formats_are_told() {
    let schema = json!({"type": "object", "properties": {
        "a": {"type": "string", "format": "date-time"}, "b": {"type": "string", "format": "int32"},
        "c": {"type": "integer", "format": "int32"}, "d": {"type": "array", "items": {"format": "nonsense"}}}});
    assert_eq!(unknown_formats(&schema), ["int32", "nonsense"]);
}

#[test]
fn hostile_schemas_are_refused() {
    let mut deep = json!({"type": "string"});
    for _ in 0..2000 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert_eq!(
        messages(&parse_at_s(&deep).expect_err("refused")),
        [r#"s: Invalid value: "": schema is nested too deeply"#]
    );
    for keyword in ["not", "items", "additionalProperties"] {
        let mut deep = json!({"type": "object"});
        for _ in 0..100 {
            deep = json!({"type": "object", keyword: deep});
        }
        assert!(parse_at_s(&deep).is_err());
    }
    let mut allowed = json!({"type": "string"});
    for _ in 0..60 {
        allowed = json!({"type": "object", "properties": {"a": allowed}});
    }
    assert!(parse_at_s(&allowed).is_ok());
    for wrong in [
        json!(1),
        json!([]),
        json!({"type": 5}),
        json!({"properties": []}),
        json!({"maxLength": "x"}),
        json!({"enum": 1}),
    ] {
        assert!(parse_at_s(&wrong).is_err(), "{wrong}");
    }
    let bomb =
        json!({"type": "object", "properties": {"f": {"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"}}});
    assert!(parse_at_s(&bomb).is_err());
}

/// Answers of kube-apiserver to definitions with something changed in them.
#[test]
fn recorded_definitions() {
    let Some(lines) = testing::recordings() else { return };
    let mut compared = 0;
    for line in lines.filter(|line| line.contains("openAPIV3Schema")) {
        let record: Value = serde_json::from_str(&line).expect("a record");
        let code = record.int("code");
        if record.text("kind") != "CustomResourceDefinition"
            || record.text("method") != "POST"
            || !matches!(code, Some(201 | 422))
        {
            continue;
        }
        let Some([version]) = record.at(&["body", "spec", "versions"]).and_then(Value::as_array).map(Vec::as_slice)
        else {
            continue;
        };
        let Some(schema) = version.at(&["schema", "openAPIV3Schema"]).filter(|schema| schema.is_object()) else {
            continue;
        };
        let spec = Path::Root.child("spec");
        let validation = spec.child("validation");
        let expected: Vec<String> = record
            .at(&["resp", "details", "causes"])
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter(|cause| cause.text("field").contains("openAPIV3Schema"))
            .map(|cause| format!("{}: {}", cause.text("field"), cause.text("message")))
            .collect();
        let options = Options { status: version.at(&["subresources", "status"]).is_some() };
        let found = parse(schema, &validation.child("openAPIV3Schema"), options);
        assert_eq!(
            found.err().map(|errors| messages(&errors)).unwrap_or_default(),
            expected,
            "{}",
            record.text("what")
        );
        compared += 1;
    }
    assert!(compared > 100, "only {compared} recordings compared");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_schema_is_accepted_or_refused(schema in any_schema(), value in any_value()) {
        if let Ok(schema) = parse_at_s(&json!({"type": "object", "properties": {"f": schema}})) {
            validate::validate(&schema, &json!({"f": value}));
        }
    }

    #[test]
    fn any_value_is_read_as_a_schema_or_refused(value in any_value()) {
        let _ = parse_at_s(&value);
        let _ = parse_at_s(&json!({"type": "object", "properties": {"f": value}}));
    }

    #[test]
    fn defaults_of_accepted_schemas_are_valid(schema in any_schema()) {
        if let Ok(schema) = parse_at_s(&json!({"type": "object", "properties": {"f": schema}})) {
            let field = schema.root().child("f").expect("a field");
            if let Some(default) = &field.node().default {
                let errors = validate::validate(&schema, &json!({"f": default}));
                prop_assert_eq!(messages(&errors), Vec::<String>::new());
            }
        }
    }
}
