use serde_json::json;

use super::*;
use crate::schema::table::Table;

const TABLE: &str = "\
package core.v1 io.k8s.api.core.v1 -/v1
: Thing kind
 + meta.v1.TypeMeta 0
 + Inner 1
 always 2 string
 maybe 3 *string omitempty
 numbers 4 []int32 omitempty
 bytes 5 bytes omitempty
 limits 6 map[string]quantity omitempty
 at 7 *time omitempty
 share 8 *float64 omitempty
 port 9 *intstr omitempty
 raw 10 *raw omitempty
 inner 11 Inner omitempty
 extra 12 map[string]Extra omitempty
 schema 13 *apiextensions.v1.JSONSchemaProps omitempty
 few 14 []Inner omitempty
 flags 15 []bool omitempty
: Inner
 name 1 string omitempty
 count 2 int64 omitempty
= Extra []string message
: Printed kind
 + meta.v1.TypeMeta 0
 rows 0 []string
package meta.v1 io.k8s.apimachinery.pkg.apis.meta.v1 meta.k8s.io/v1
: TypeMeta
 kind 1 string omitempty
 apiVersion 2 string omitempty
package apiextensions.v1 io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1 apiextensions.k8s.io/v1
: JSONSchemaProps
 type 1 string omitempty
 items 2 *schema-or-list omitempty
 additionalProperties 3 *schema-or-bool omitempty
";

fn schema(name: &str) -> Schema {
    let table = Table::parse(TABLE).expect("the table");
    table.kind("", "v1", name).expect("the kind")
}

fn decoded(bytes: &[u8]) -> Result<Value, DecodeError> {
    decode(schema("Thing").root(), bytes)
}

fn encoded(value: Value) -> Vec<u8> {
    let mut out = Vec::new();
    encode(schema("Thing").root(), &value, &mut out).expect("a message");
    out
}

/// The message of a thing with nothing in it: what Go always writes.
const EMPTY: &[u8] = b"\x0a\x04\x0a\x00\x10\x00\x12\x00\x5a\x04\x0a\x00\x10\x00";

#[test]
fn zero_values_are_written_unless_they_are_pointers() {
    assert_eq!(encoded(json!({})), EMPTY);
    assert_eq!(decoded(EMPTY).expect("a thing"), json!({"always": "", "inner": {}}));
    assert_eq!(decoded(b"").expect("a thing"), json!({"always": "", "inner": {}}));
    assert_eq!(decoded(&encoded(json!({"maybe": ""}))).expect("a thing")["maybe"], "");
}

#[test]
fn the_envelope_names_the_kind() {
    let bytes = to_vec(&schema("Thing"), &json!({"apiVersion": "v1", "kind": "Thing"})).expect("an object");
    assert_eq!(bytes, [b"k8s\0\x0a\x0b\x0a\x02v1\x12\x05Thing\x12\x0e", EMPTY, b"\x1a\x00\x22\x00"].concat());
    assert_eq!(wrap("v1", "Thing", EMPTY), bytes);
    assert_eq!(unwrap(&bytes), Ok(Envelope { api_version: "v1", kind: "Thing", raw: EMPTY }));
    let value = read(&bytes, |_, kind| Some(schema(kind))).expect("an object");
    assert_eq!(value, json!({"apiVersion": "v1", "kind": "Thing", "always": "", "inner": {}}));
    let unknown = read(&bytes, |_, _| None).expect_err("a refusal").to_string();
    assert_eq!(unknown, r#"no kind "Thing" is registered for version "v1""#);
    assert_eq!(unwrap(b""), Err(DecodeError::Empty));
    assert_eq!(unwrap(b"k8s\0"), Err(DecodeError::EmptyBody));
    assert_eq!(
        unwrap(b"{}").expect_err("a refusal").to_string(),
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    );
}

#[test]
fn what_comes_twice_is_merged_or_replaced() {
    let twice = [&b"\x0a\x03\x0a\x01a"[..], b"\x0a\x02\x10\x05", b"\x12\x01x", b"\x12\x01y"].concat();
    assert_eq!(decoded(&twice).expect("a thing"), json!({"name": "a", "count": 5, "always": "y", "inner": {}}));
}

#[test]
fn lists_of_numbers_may_be_packed() {
    let mixed = b"\x20\x01\x22\x02\x02\x03\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x7a\x02\x00\x01";
    let value = decoded(mixed).expect("a thing");
    assert_eq!((&value["numbers"], &value["flags"]), (&json!([1, 2, 3, -1]), &json!([false, true])));
}

#[test]
fn unknown_fields_are_skipped() {
    let unknown = [
        &b"\xc0\x3e\x01"[..],                        // a number
        b"\xc1\x3e\x01\x02\x03\x04\x05\x06\x07\x08", // eight bytes
        b"\xc2\x3e\x02ab",                           // bytes
        b"\xc5\x3e\x01\x02\x03\x04",                 // four bytes
        b"\xc3\x3e\xcb\x3e\x08\x01\xcc\x3e\xc4\x3e", // a group in a group
        b"\x12\x01x",
    ]
    .concat();
    assert_eq!(decoded(&unknown).expect("a thing")["always"], "x");
}

#[test]
fn malformed_messages_are_refused() {
    use DecodeError::*;
    let cases: [(&[u8], DecodeError); 14] = [
        (b"\x12", Truncated),
        (b"\x12\x05abc", Truncated),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Truncated),
        (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Overflow),
        (b"\x80", Truncated),
        (b"\x02\x00", Tag { number: 0, wire_type: 2 }),
        (b"\x17\x00", Tag { number: 2, wire_type: 7 }),
        (b"\x10\x01", WireType { wire_type: 0, field: "always".to_owned() }),
        (b"\x0c", WireType { wire_type: 4, field: "Inner".to_owned() }),
        (b"\xc4\x3e", Group),
        (b"\xc3\x3e", Truncated),
        (b"\x3a\x03\x08\xff\xff", Truncated),
        (b"\x4a\x02\x08\x07", IntOrString),
        (b"\x52\x06\x0a\x04k8s\0", NestedObject),
    ];
    for (bytes, expected) in cases {
        assert_eq!(decoded(bytes), Err(expected), "{bytes:x?}");
    }
    assert!(matches!(decoded(b"\x52\x03\x0a\x01{"), Err(Json(_))));
    assert!(matches!(decoded(b"\x32\x05\x12\x03\x0a\x01x"), Err(Quantity(_))));
    assert!(matches!(decoded(b"\x41\x00\x00\x00\x00\x00\x00\xf8\x7f"), Err(Float(_))));
    assert!(matches!(decoded(b"\x3a\x08\x08\xff\xff\xff\xff\xff\xff\x7f"), Err(Time(_))));
}

#[test]
fn bombs_are_refused() {
    // `additionalProperties` in `additionalProperties` in …
    let mut nested = Vec::new();
    for _ in 0..2000 {
        let mut union = Vec::new();
        append_bytes(&mut union, 2, &nested);
        nested.clear();
        append_bytes(&mut nested, 3, &union);
    }
    let mut bytes = Vec::new();
    append_bytes(&mut bytes, 13, &nested);
    assert_eq!(decoded(&bytes), Err(DecodeError::Depth));
    // an unfinished group for every byte
    assert_eq!(decoded(&b"\xc3\x3e".repeat(1 << 19)), Err(DecodeError::Truncated));
    // packed numbers cost a byte each and are worth no more
    let mut packed = Vec::new();
    append_bytes(&mut packed, 4, &vec![1; 1 << 16]);
    assert!(decoded(&packed).is_ok());
    // raw extensions nested as JSON
    let mut raw = Vec::new();
    append_bytes(&mut raw, 1, &vec![b'['; 100_000]);
    let mut bytes = Vec::new();
    append_bytes(&mut bytes, 10, &raw);
    assert!(matches!(decoded(&bytes), Err(DecodeError::Json(BadJson::Depth))));
}

#[test]
fn a_message_makes_no_more_values_than_it_has_bytes() {
    const HEAVY: &str = "\
package core.v1 io.k8s.api.core.v1 -/v1
: List kind
 items 1 []Item
: Item
 a 1 string
 b 2 string
 c 3 string
 d 4 string
";
    let table = Table::parse(HEAVY).expect("the table");
    let schema = table.kind("", "v1", "List").expect("the kind");
    let bomb = b"\x0a\x00".repeat(100_000);
    assert_eq!(decode(schema.root(), &bomb), Err(DecodeError::TooManyValues));
    assert!(decode(schema.root(), &b"\x0a\x00".repeat(800)).is_ok());
}

#[test]
fn values_that_are_not_canonical_are_refused() {
    let cases = [
        (json!({"always": 1}), "string: 1 is no text"),
        (json!({"numbers": {}}), "[]int32: {} is no list"),
        (json!({"at": "yesterday"}), r#"v1.Time: "yesterday" is no time"#),
        (json!({"bytes": "!"}), r#"[]uint8: "!" is no base64"#),
        (json!({"inner": []}), "v1.Inner: [] is no object"),
    ];
    for (value, expected) in cases {
        let error = encode(schema("Thing").root(), &value, &mut Vec::new()).expect_err("a refusal");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_kind_without_messages_says_so() {
    let table = schema("Printed");
    let expected = "object *v1.Printed does not implement the protobuf marshalling interface and cannot be encoded to a \
                    protobuf message";
    assert_eq!(
        encode(table.root(), &json!({"rows": []}), &mut Vec::new()).expect_err("a refusal").to_string(),
        expected
    );
    assert_eq!(decode(table.root(), b"").expect_err("a refusal").to_string(), expected);
}

#[test]
fn named_lists_and_unions_are_messages() {
    let value = json!({"always": "", "inner": {}, "extra": {"a": ["x", "y"], "b": null},
        "schema": {"items": [{"type": "string"}], "additionalProperties": false}});
    assert_eq!(decoded(&encoded(value.clone())).expect("a thing"), value);
}
