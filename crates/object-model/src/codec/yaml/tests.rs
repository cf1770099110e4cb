use proptest::prelude::*;
use serde_json::json;

use super::*;

#[track_caller]
fn is(text: &str, value: Value) {
    assert_eq!(read(text.as_bytes()), Ok(value), "{text:?}");
}

#[track_caller]
fn refused(text: &str) -> String {
    read(text.as_bytes()).expect_err("should be refused").to_string()
}

#[test]
fn plain_scalars_mean_what_they_mean_to_kubernetes() {
    for (text, value) in [
        ("y", json!(true)),
        ("Yes", json!(true)),
        ("on", json!(true)),
        ("tRue", json!("tRue")),
        ("n", json!(false)),
        ("OFF", json!(false)),
        ("~", json!(null)),
        ("Null", json!(null)),
        ("", json!(null)),
        ("0777", json!(511)),
        ("0o17", json!(15)),
        ("08", json!(8)),
        ("0b11", json!(3)),
        ("-0x10", json!(-16)),
        ("1_000", json!(1000)),
        ("_1", json!("_1")),
        ("9223372036854775808", json!(9223372036854775808f64)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("1.5", json!(1.5)),
        (".5", json!(0.5)),
        ("1.0", json!(1)),
        ("1e3", json!(1000)),
        ("1e400", json!("1e400")),
        ("2001-12-14", json!("2001-12-14")),
        ("12:30:45", json!("12:30:45")),
        ("127.0.0.1", json!("127.0.0.1")),
        ("\"yes\"", json!("yes")),
        ("'1'", json!("1")),
        ("!!str 1", json!("1")),
        ("!!int \"5\"", json!(5)),
        ("!!float 5", json!(5)),
        ("!!binary aGk=", json!("hi")),
        ("!custom 5", json!("5")),
        ("|\n  a\n  b\n", json!("a\nb\n")),
        (">-\n  a\n  b\n", json!("a b")),
    ] {
        is(&format!("k: {text}\n"), json!({"k": value}));
    }
    assert_eq!(refused("a: .inf"), "json: unsupported value: +Inf");
    assert_eq!(refused("a: !!int x"), "yaml: line 1: cannot decode !!str `x` as a !!int");
    assert_eq!(refused("a: !!binary x"), "yaml: line 1: !!binary value contains invalid base64 data");
}

#[test]
fn keys_become_text() {
    is("1: a\ntrue: b\n1.5: c\nyes: d\n0x10: e\n", json!({"1": "a", "true": "d", "1.5": "c", "16": "e"}));
    is(".inf: a\n1e18: b\n", json!({".inf": "a", "1e+18": "b"}));
    assert_eq!(refused("a:\n  ~: b"), "yaml: line 2: invalid map key: only text, numbers and booleans can be keys");
    assert!(refused("? [1]\n: b").contains("invalid map key"));
}

#[test]
fn anchors_aliases_and_merges() {
    is("a: &x [1, 2]\nb: *x\n", json!({"a": [1, 2], "b": [1, 2]}));
    is("<<: {a: 2, b: 3}\na: 1\n", json!({"a": 1, "b": 3}));
    is("a: 1\n<<: {a: 2, b: 3}\n", json!({"a": 2, "b": 3}));
    is(
        "x: &x {a: 1}\nw: &w {a: 2, b: 3}\nz:\n  <<: [*x, *w]\n",
        json!({"x": {"a": 1}, "w": {"a": 2, "b": 3}, "z": {"a": 1, "b": 3}}),
    );
    is("&k a: *k\n", json!({"a": "a"}));
    assert_eq!(refused("<<: 5"), "yaml: line 1: map merge requires map or sequence of maps as the value");
    assert_eq!(refused("a: &a [*a]"), "yaml: line 1: anchor value contains itself");
    assert!(refused("a: *b").contains("line 1"));
}

#[test]
fn the_last_of_two_keys_counts_and_both_are_reported() {
    let (value, strict) = read_strict(b"a: 1\na: 2\nb:\n  c: 1\n  c: 2\n").unwrap();
    assert_eq!(value, json!({"a": 2, "b": {"c": 2}}));
    assert_eq!(
        strict.to_string(),
        "strict decoding error: yaml: unmarshal errors:\n  line 2: key \"a\" already set in map\n  line 5: key \"c\" already set in map"
    );
}

#[test]
fn whitespace_that_newer_yaml_forbids() {
    is("a:\tb\n", json!({"a": "b"}));
    is("a: [\n1,\n2\n]\nb: {\n\"c\": 3\n}\n", json!({"a": [1, 2], "b": {"c": 3}}));
    is("a: \"x\ny\"\nb: 'it''s\n\nz'\n", json!({"a": "x y", "b": "it's\nz"}));
    assert!(refused("a: \"x").contains("line"));
    // Many such lines are fine, and mending that does not help ends.
    let lines: String = (0..300).map(|i| format!("{i},\n")).collect();
    assert_eq!(read(format!("a: [\n{lines}]\n").as_bytes()).unwrap()["a"].as_array().map(Vec::len), Some(300));
    assert!(refused("a:\n b:\n  - \"x\r\no\r5\n17\n<<: \"ye\n").contains("line"));
}

#[test]
fn documents_split_as_kubectl_splits_them() {
    let split = |text: &'static str| -> Vec<&str> {
        documents(text.as_bytes()).map(|d| std::str::from_utf8(d.unwrap()).unwrap()).collect()
    };
    assert_eq!(split("---\na: 1\n--- # c\nb: 2\n---\n"), ["a: 1\n", "b: 2\n"]);
    assert_eq!(split(""), [""; 0]);
    assert_eq!(split("a"), ["a"]);
    assert_eq!(
        documents(b"a: 1\n---x\n").next().unwrap().unwrap_err().to_string(),
        "invalid Yaml document separator: x"
    );
    let all = read_all(b"# nothing\n---\na: 1\n---\n\n---\n{\"b\":\n\t2}\n").unwrap();
    assert_eq!(all, [json!({"a": 1}), json!({"b": 2})]);
    is("a: 1\n---\nb: [\n", json!({"a": 1}));
}

#[test]
fn bombs_and_depths_are_refused() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let previous = vec![format!("*a{}", i - 1); 10].join(", ");
        bomb += &format!("a{i}: &a{i} [{previous}]\n");
    }
    assert_eq!(refused(&bomb), "yaml: document contains excessive aliasing");
    let text = "x".repeat(1 << 20);
    let long = format!("a: &a {text}\nb: [{}]\n", vec!["*a"; 1000].join(", "));
    assert_eq!(refused(&long), "yaml: document contains excessive aliasing");

    assert!(refused(&"- ".repeat(MAX_DEPTH + 1)).contains("nested more than 100 levels deep"));
    // Brackets have a smaller bound of their own.
    assert!(!refused(&"[".repeat(1_000_000)).is_empty());
    let wrap = |inner: &str| format!("{}{inner}{}", "[".repeat(40), "]".repeat(40));
    let deep = format!("a: &a {}\nb: &b {}\nc: {}\n", wrap("1"), wrap("*a"), wrap("*b"));
    assert_eq!(refused(&deep), "yaml: line 3: lists and objects are nested more than 100 levels deep");
    assert_eq!(read(b"a: \xff"), Err(BadYaml::Encoding));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn json_is_yaml(value in json::tests::any_value()) {
        let text = json::to_string(&value);
        // Escapes of JSON that YAML does not have: none are written but \u ones, which both have.
        let ours = read(text.as_bytes());
        let expected = json::read(text.as_bytes()).unwrap();
        // Only a key of more than 1024 bytes or deeply nested brackets would be refused; neither is generated.
        prop_assert_eq!(json::to_string(&ours.unwrap()), json::to_string(&expected), "{}", text);
    }

    #[test]
    fn any_text_gives_an_answer(text in r#"[-a-c1-3:,\[\]{}"'&*!|>?<~#%@ \n\t.é]{0,40}"#, bytes in prop::collection::vec(any::<u8>(), 0..48)) {
        let _ = (read_strict(text.as_bytes()), read_all(text.as_bytes()), read_all(&bytes));
    }
}
