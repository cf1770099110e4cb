use proptest::prelude::*;
use serde_json::{Number, Value, json};

use super::*;
use crate::codec::{MAX_DEPTH, StrictError, StrictErrors};

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>) -> String {
    read(bytes.as_ref()).expect_err("should be refused").to_string()
}

#[test]
fn integers_and_floats_are_kept_apart() {
    let value = read(b"[1, -0, 1.0, 1e3, 9223372036854775807, 9223372036854775808, -9223372036854775809]").unwrap();
    let kinds: Vec<bool> = value.as_array().unwrap().iter().map(Value::is_i64).collect();
    assert_eq!(kinds, [true, true, false, false, true, false, false]);
    assert_eq!(to_string(&value), "[1,0,1,1000,9223372036854775807,9223372036854776000,-9223372036854776000]");
    assert_eq!(to_string(&json!([1e21, 1.5e-7, 0.1])), "[1e+21,1.5e-7,0.1]");
    assert_eq!(refused("1e400"), "json: cannot unmarshal number 1e400 into Go value of type float64");
}

#[test]
fn text_as_go_reads_and_writes_it() {
    let value = read(b"\"a\\u003c\\ud83d\\ude00\\ud83d\xe2\x82 \\/\"").unwrap();
    assert_eq!(value, json!("a<😀\u{fffd}\u{fffd}\u{fffd} /"));
    assert_eq!(to_string(&json!("<>&\u{2028}\u{2029}€\u{1}\n")), r#""\u003c\u003e\u0026\u2028\u2029€\u0001\n""#);
}

#[test]
fn the_last_of_two_fields_counts_and_both_are_reported() {
    let text =
        br#"{"spec": {"x": 1, "x": {"y": 1, "y": 2}, "z": [{"k.l": 1, "k.l": 2}]}, "spec": {"a": 1}, "spec": 2}"#;
    let (value, duplicates) = read_strict(text).unwrap();
    assert_eq!(value, json!({"spec": 2}));
    assert_eq!(
        duplicates.to_string(),
        r#"strict decoding error: duplicate field "spec.x", duplicate field "spec.x.y", duplicate field "spec.z[0].k.l", duplicate field "spec""#
    );
    let many: Vec<String> = (0..300).map(|i| format!("\"{0}\":1,\"{0}\":2", i)).collect();
    assert_eq!(read_strict(format!("{{{}}}", many.join(",")).as_bytes()).unwrap().1.len(), 100);
}

#[test]
fn problems_come_in_the_order_of_the_document() {
    let text = br#"{"z": 1, "spec": {"odd": 1, "x": 1, "x": 2, "list": [{"more": 1}]}, "a": 1}"#;
    let mut unknown = StrictErrors::default();
    for field in ["a", "spec.list[0].more", "spec.odd", "z"] {
        unknown.push(StrictError::Unknown(field.to_owned()));
    }
    let problems = in_order(text, unknown).unwrap();
    assert_eq!(
        problems.to_string(),
        r#"strict decoding error: unknown field "z", unknown field "spec.odd", duplicate field "spec.x", unknown field "spec.list[0].more", unknown field "a""#
    );
}

#[test]
fn refusals_in_gos_words() {
    for (text, words) in [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("\"a", "unexpected end of JSON input"),
        ("tru", "invalid character ' ' in literal true (expecting 'e')"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("é", "invalid character 'Ã' looking for beginning of value"),
        ("{a", "invalid character 'a' looking for beginning of object key string"),
        ("{\"a\" 1", "invalid character '1' after object key"),
        ("{\"a\":1 1", "invalid character '1' after object key:value pair"),
        ("[1 1", "invalid character '1' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
        ("1 1", "invalid character '1' after top-level value"),
        ("01", "invalid character '1' after top-level value"),
        ("-", "invalid character ' ' in numeric literal"),
        ("1.", "invalid character ' ' after decimal point in numeric literal"),
        ("\"\n", "invalid character '\\n' in string literal"),
        ("\"\\x", "invalid character 'x' in string escape code"),
        ("'", "invalid character '\\'' looking for beginning of value"),
    ] {
        assert_eq!(refused(text), words, "{text}");
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(read(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(refused(nested(MAX_DEPTH + 1)), "lists and objects are nested more than 100 levels deep");
    assert_eq!(refused("{\"a\":".repeat(1_000_000)), "lists and objects are nested more than 100 levels deep");
}

pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Negative zero is written as -0 and read as the integer 0, in Go as well.
        any::<f64>()
            .prop_filter("-0", |f| *f != 0.0)
            .prop_filter_map("finite", |f| Number::from_f64(f).map(Value::Number)),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn what_is_written_reads_back(value in any_value()) {
        let text = to_string(&value);
        let (read, duplicates) = read_strict(text.as_bytes()).unwrap();
        prop_assert!(duplicates.is_empty());
        // Whole floats come back as integers, so compare as an independent reader sees it.
        prop_assert_eq!(to_string(&read), text.clone());
        let other: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(to_string(&other), text);
    }

    #[test]
    fn an_independent_reader_agrees(text in r#"[\[\]{},:"a1e.\-\\ntrufalse 0]{0,24}"#) {
        let other = serde_json::from_str::<Value>(&text);
        let ours = read(text.as_bytes());
        prop_assert_eq!(ours.is_ok(), other.is_ok(), "{}", text);
        if let (Ok(ours), Ok(other)) = (ours, other) {
            prop_assert_eq!(to_string(&ours).replace("-0", "0"), to_string(&other).replace("-0", "0"));
        }
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = read_strict(&bytes);
    }
}
