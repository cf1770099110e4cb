//! The language by example. Every case is an expression that must be true, or the words it must fail with.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::*;

mod cost;
mod hostile;
mod libraries;
mod messages;

fn object() -> Json {
    json!({
        "metadata": {"name": "web", "labels": {"app": "web", "tier": "front"}, "annotations": {}},
        "spec": {
            "replicas": 3, "ratio": 0.5, "paused": false, "port": "http", "nothing": null,
            "created": "2024-02-29T12:34:56.5Z", "every": "1m30s", "data": "aGk=",
            "containers": [{"name": "a", "image": "x:1", "ports": [80, 443]}, {"name": "b", "image": "y:2"}]
        }
    })
}

fn typed() -> Type {
    let container = ObjectType::new(
        "container",
        [("name", Type::String), ("image", Type::String), ("ports", Type::list(Type::Int))],
    );
    let spec = ObjectType::new(
        "spec",
        [
            ("replicas", Type::Int),
            ("ratio", Type::Double),
            ("paused", Type::Bool),
            ("port", Type::Dyn),
            ("nothing", Type::String),
            ("created", Type::Timestamp),
            ("every", Type::Duration),
            ("data", Type::Bytes),
            ("containers", Type::list(Type::Object(container))),
        ],
    );
    let labels = Type::map(Type::String, Type::String);
    let metadata =
        ObjectType::new("metadata", [("name", Type::String), ("labels", labels.clone()), ("annotations", labels)]);
    Type::Object(ObjectType::new("object", [("metadata", Type::Object(metadata)), ("spec", Type::Object(spec))]))
}

fn environment() -> Environment {
    Environment::kubernetes()
        .with_variable("object", Type::Dyn)
        .with_variable("self", typed())
        .with_variable("authorizer", Type::Library(LibraryType::Authorizer))
        .with_library(Library::Bindings)
}

/// Allows everybody to get pods, and everybody to read `/healthz`.
struct Pods;

impl Authorizer for Pods {
    fn decide(&self, question: &Question<'_>) -> Decision {
        let allowed = match &question.what {
            What::Path(path) => *path == "/healthz",
            What::Resource { resource, field_selector, .. } => *resource == "pods" && field_selector.is_empty(),
        };
        let reason = question.service_account.map_or("user".to_owned(), |(ns, name)| format!("{ns}/{name}"));
        Decision { allowed: allowed && question.verb == "get", reason, error: None }
    }
}

fn with_activation<R>(run: impl FnOnce(&Activation<'_>) -> R) -> R {
    let object = object();
    let activation = Activation::new()
        .with("object", Value::json(&object))
        .with("self", Value::typed(&object, &typed()))
        .with("authorizer", Value::authorizer(Arc::new(Pods)));
    run(&activation)
}

fn evaluate(text: &str) -> Result<Json, String> {
    let program = environment().compile(text).map_err(|errors| errors.to_string())?;
    with_activation(|activation| {
        let value = program.evaluate(activation, &mut Budget::default()).map_err(|error| error.to_string())?;
        value.to_json().ok_or_else(|| value.type_name().to_owned())
    })
}

/// What a table says must hold does hold, all of it.
fn all_hold(expressions: &[&str]) {
    let wrong: Vec<String> = expressions
        .iter()
        .filter_map(|text| match evaluate(text) {
            Ok(Json::Bool(true)) => None,
            other => Some(format!("{text}\n    {other:?}")),
        })
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), expressions.len(), wrong.join("\n"));
}

fn all_fail(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(evaluate(text), Err((*expected).to_owned()), "{text}");
    }
}

#[test]
fn literals_and_operators() {
    all_hold(&[
        "true",
        "!false",
        "!!true",
        "1 + 2 * 3 == 7",
        "(1 + 2) * 3 == 9",
        "7 / 2 == 3 && -7 / 2 == -3 && -7 % 3 == -1",
        "7u / 2u == 3u && 7u % 4u == 3u",
        "7.0 / 2.0 == 3.5",
        "2 - 3 - 4 == -5",
        "-(3) == -3 && -object.spec.replicas == -3",
        "0x1F == 31 && 0xFFu == 255u && -0x10 == -16",
        "1e3 == 1000.0 && .5 == 0.5 && 1.5e-1 == 0.15",
        "-9223372036854775808 < 9223372036854775807",
        r#""a" + 'b' == "ab""#,
        r#"'''it's''' == "it's" && """a"b""" == 'a"b'"#,
        r#"r"\n" == "\\n" && "\n" != r"\n""#,
        r#""\x41\u0042\U00000043\104" == "ABCD""#,
        r#"b"\xff" != b"\xfe" && b"abc" == bytes("abc")"#,
        "[1, 2] + [3] == [1, 2, 3]",
        "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}",
        "{1: 'x', 2: 'y'}[1] == 'x' && {true: 1}[true] == 1",
        "[1, 2, 3][0] == 1",
        "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1}",
        "1 < 2 && 2 <= 2 && 'a' < 'b' && b'a' < b'b' && false < true",
        "1 < 1.5 && 2u > 1 && 1.0 <= 1u && -1 < 0u",
        "true ? 1 == 1 : 1 / 0 == 1",
        "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1) != 'a' && dyn(null) != 1",
        "null == null",
        "[[]] == [[]] && [] == []",
        "dyn(9223372036854775807) != 9223372036854775808.0",
        "type(1) == int && type('a') == string && type([]) == list && type(null) == null_type",
        "type(type(1)) == type && type(timestamp(0)) == google.protobuf.Timestamp",
        "// a comment\n true // and another",
        "[1, 2,].size() == 2 && {'a': 1,}.size() == 1",
    ]);
}

#[test]
fn failures_are_forgiven_where_the_other_side_decides() {
    all_hold(&[
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1)",
        "!(1 / 0 == 1 && false)",
        "[1, 0].exists(x, 1 / x == 1)",
        "!([0, 2].all(x, 1 / x == 1))",
        "[0, 1].exists(x, 1 / x == 1)",
    ]);
    all_fail(&[
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("false || 1 / 0 == 1", "division by zero"),
        ("[0, 1].all(x, 1 / x == 1)", "division by zero"),
        ("[0, 1].map(x, 1 / x) == []", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("-(-9223372036854775808)", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("object.spec.missing", "no such key: missing"),
        ("object.spec.replicas.x", "no such overload"),
        ("[1][1]", "index out of bounds: 1"),
        ("{'a': 1}['b']", "no such key: b"),
        ("object.spec.replicas + 'a'", "no such overload"),
        ("int('x')", "type conversion error from 'string' to 'int'"),
        ("optional.none().value()", "optional.none() dereference"),
        ("[1, 2].transformMapEntry(i, v, {'same': v})", "insert failed: key same already exists"),
        ("dyn(1).map(x, x)", "got 'int', expected iterable type"),
    ]);
}

#[test]
fn macros_over_lists_and_maps() {
    all_hold(&[
        "has(object.spec) && !has(object.status) && has(object.metadata.labels.app)",
        "has(object.spec.nothing) && !has(self.spec.nothing)",
        "[1, 2, 3].all(x, x > 0) && [].all(x, false)",
        "[1, 2, 3].exists(x, x == 2) && ![].exists(x, true)",
        "[1, 2, 2].exists_one(x, x == 1) && ![1, 1].exists_one(x, x == 1) && [1].existsOne(x, x == 1)",
        "[1, 2, 3].map(x, x * 2) == [2, 4, 6]",
        "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
        "[1, 2, 3].filter(x, x != 2) == [1, 3]",
        "{'a': 1, 'b': 2}.map(k, k) == ['a', 'b']",
        "{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])",
        "object.spec.containers.map(c, c.name) == ['a', 'b']",
        "object.spec.containers.all(c, object.metadata.labels.all(l, l != c.name))",
        "[[1, 2], [3]].map(l, l.map(x, x + size(l))) == [[3, 4], [4]]",
        "[1, 2].all(i, v, v == i + 1)",
        "{'a': 1}.all(k, v, k == 'a' && v == 1)",
        "[1, 2].exists(i, v, i == 1 && v == 2) && [5, 6].existsOne(i, v, v == 6) && [5].exists_one(i, v, i == 0)",
        "[4, 5].transformList(i, v, i * v) == [0, 5]",
        "[4, 5].transformList(i, v, i > 0, v) == [5]",
        "{'a': 1, 'b': 2}.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
        "['x', 'y'].transformMapEntry(i, v, {v: i}) == {'x': 0, 'y': 1}",
        "cel.bind(x, 1 + 2, x * x) == 9",
        "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
        "[1, 2].map(x, [1, 2].map(y, x * y)) == [[1, 2], [2, 4]]",
        "[1].map(object, object + 1) == [2]",
    ]);
}

#[test]
fn optionals() {
    all_hold(&[
        "object.?spec.?replicas.orValue(0) == 3",
        "object.?status.?phase.orValue('none') == 'none'",
        "object.?status.phase.hasValue() == false",
        "object.spec.?replicas.hasValue()",
        "optional.of(1).value() == 1 && !optional.none().hasValue()",
        "optional.none().or(optional.of(2)).value() == 2",
        "optional.ofNonZeroValue('').hasValue() == false && optional.ofNonZeroValue('a').value() == 'a'",
        "optional.of(2).optMap(x, x + 1).value() == 3 && !optional.none().optMap(x, x).hasValue()",
        "optional.of({'a': 1}).optFlatMap(m, m.?b).orValue(7) == 7",
        "[1, 2][?1].value() == 2 && ![1, 2][?5].hasValue()",
        "{'a': 1}[?'b'].orValue(3) == 3",
        "[?optional.of(1), ?optional.none()] == [1]",
        "{?'a': optional.none(), 'b': 1} == {'b': 1}",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        "[optional.of(1), optional.none()].unwrapOpt() == [1]",
        "optional.unwrap([optional.of(1), optional.none()]) == [1]",
        "has(object.?spec.replicas)",
        "optional.of([1, 2])[1].value() == 2",
        "self.?spec.?port.orValue(dyn('x')) == 'http'",
    ]);
}

#[test]
fn objects_are_wrapped_by_their_declared_types() {
    all_hold(&[
        "self.spec.replicas + 1 == 4 && object.spec.replicas + 1 == 4",
        "self.spec.ratio * 2.0 == 1.0",
        "self.spec.created.getFullYear() == 2024 && self.spec.created.getMilliseconds() == 500",
        "self.spec.every == duration('90s') && self.spec.every.getSeconds() == 90",
        "self.spec.data == b'hi'",
        "self.spec.port == 'http' && type(self.spec.port) == string",
        "self.spec.containers[0].ports.sum() == 523",
        "self.metadata.labels['app'] == 'web' && self.metadata.labels.tier == 'front'",
        "size(self.metadata.labels) == 2 && self.metadata.annotations.size() == 0",
        "self.spec.containers.exists(c, c.image.startsWith('y'))",
    ]);
}

#[test]
fn conversions() {
    all_hold(&[
        "int('12') == 12 && int(3.9) == 3 && int(-3.9) == -3 && int(5u) == 5",
        "uint('12') == 12u && uint(3) == 3u",
        "double('1.5') == 1.5 && double(2) == 2.0",
        "string(12) == '12' && string(1.5) == '1.5' && string(true) == 'true' && string(b'hi') == 'hi'",
        "string(1e20) == '1e+20' && string(100.0) == '100'",
        "bool('true') && !bool('f')",
        "string(duration('1h30m')) == '5400s' && string(duration('1.5s')) == '1.5s'",
        "string(timestamp('2024-01-02T03:04:05Z')) == '2024-01-02T03:04:05Z'",
        "timestamp(0) == timestamp('1970-01-01T00:00:00Z') && int(timestamp('1970-01-01T00:01:00Z')) == 60",
        "bytes('é').size() == 2 && 'é'.size() == 1",
        "dyn([1]) == [1.0]",
    ]);
}

#[test]
fn times() {
    all_hold(&[
        "timestamp('2024-02-29T00:00:00Z') + duration('24h') == timestamp('2024-03-01T00:00:00Z')",
        "timestamp('2024-01-01T00:00:00Z') - timestamp('2023-12-31T23:00:00Z') == duration('1h')",
        "timestamp('2024-01-01T00:00:00Z') < timestamp('2024-01-01T00:00:01Z')",
        "duration('1h') > duration('59m') && duration('1m') + duration('1s') == duration('61s')",
        "timestamp('2024-02-29T12:34:56Z').getMonth() == 1",
        "timestamp('2024-02-29T12:34:56Z').getDate() == 29",
        "timestamp('2024-02-29T12:34:56Z').getDayOfMonth() == 28",
        "timestamp('2024-02-29T12:34:56Z').getDayOfYear() == 59",
        "timestamp('2024-02-29T12:34:56Z').getDayOfWeek() == 4",
        "timestamp('2024-02-29T12:34:56Z').getHours() == 12",
        "timestamp('2024-02-29T12:34:56Z').getHours('America/Los_Angeles') == 4",
        "timestamp('2024-07-01T12:00:00Z').getHours('Europe/Berlin') == 14",
        "timestamp('2024-07-01T12:00:00Z').getMinutes('+05:30') == 30",
        "timestamp('2024-07-01T12:00:00Z').getHours('-02:00') == 10",
        "duration('3730s').getHours() == 1 && duration('3730s').getMinutes() == 62",
        "duration('1.5s').getMilliseconds() == 1500",
    ]);
    all_fail(&[
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("timestamp(0).getHours('Nowhere/Land')", "unknown time zone Nowhere/Land"),
    ]);
}

#[test]
fn programs_tell_their_type() {
    for (text, expected) in [
        ("1 == 1", "bool"),
        ("'a'", "string"),
        ("[1]", "list(int)"),
        ("object.x", "dyn"),
        ("self.metadata.labels", "map(string, string)"),
        ("self.spec.?replicas", "optional_type(int)"),
        ("self.spec.containers.map(c, c.name)", "list(string)"),
        ("[]", "list(dyn)"),
        ("true ? 1 : 2", "int"),
        ("self.spec.replicas > 1 ? dyn(1) : dyn('a')", "dyn"),
        ("quantity('1')", "kubernetes.Quantity"),
    ] {
        let program = environment().compile(text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
        assert_eq!(program.output().to_string(), expected, "{text}");
    }
}

#[test]
fn variables_can_be_found_when_they_are_needed() {
    let environment = Environment::kubernetes()
        .with_variable("variables", Type::Object(ObjectType::new("variables", [("twice", Type::Int)])))
        .with_variable("variables.twice", Type::Int);
    let program = environment.compile("variables.twice + variables.twice").expect("compiles");
    let asked = std::cell::Cell::new(0);
    let resolve = |name: &str| {
        asked.set(asked.get() + 1);
        (name == "variables.twice").then_some(Ok(Value::Int(21)))
    };
    let resolve: &Resolve<'_> = &resolve;
    let activation = Activation::new().with_resolver(resolve);
    let value = program.evaluate(&activation, &mut Budget::default()).expect("evaluates");
    assert_eq!((value.to_json(), asked.get()), (Some(json!(42)), 2));
    let errors = environment.compile("variables.thrice").err().map(|errors| errors.to_string());
    assert_eq!(
        errors.as_deref(),
        Some("ERROR: <input>:1:10: undefined field 'thrice'\n | variables.thrice\n | .........^")
    );
}

#[test]
fn objects_are_constructed() {
    let environment = environment().with_mutations();
    let program = environment
        .compile("Object{spec: Object.spec{replicas: self.spec.replicas + 1, ?paused: optional.none()}}")
        .expect("compiles");
    let value = with_activation(|activation| {
        program.evaluate(activation, &mut Budget::default()).expect("evaluates").to_json()
    });
    assert_eq!(value, Some(json!({"spec": {"replicas": 4}})));
    let patch = "[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b~c'), value: 1}]";
    let program = environment.compile(patch).expect("compiles");
    assert_eq!(program.output().to_string(), "list(JSONPatch)");
    let value = with_activation(|activation| {
        program.evaluate(activation, &mut Budget::default()).expect("evaluates").to_json()
    });
    assert_eq!(value, Some(json!([{"op": "add", "path": "/metadata/labels/a~1b~0c", "value": 1}])));
}

#[test]
fn programs_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Program>();
    shared::<Environment>();
}
