use serde_json::{Value, json};

use super::*;
use crate::schema::table::Table;

const TABLE: &str = "\
package core.v1 io.k8s.api.core.v1 -/v1
: Thing kind
 + meta.v1.TypeMeta 0
 + Inner 1
 text 2 string omitempty
 always 3 string
 count 4 *int32 omitempty
 plain 5 int64 omitempty
 share 6 float64 omitempty
 list 7 []string
 few 8 []Inner omitempty
 labels 9 map[string]string
 bytes 10 bytes omitempty
 secret 11 map[string]bytes omitempty
 limits 12 map[Resource]quantity omitempty
 at 13 time omitempty
 seen 14 *microtime omitempty
 made 15 time omitzero
 for 16 *duration omitempty
 port 17 intstr omitempty
 raw 18 raw omitempty
 maybe 19 *raw omitempty
 status 20 Status omitempty
 pointer 21 *Status omitempty
 flag 22 *bool
 protocol 23 Protocol omitempty
: Inner
 name 1 string omitempty
: Status
 ready 1 int32
 phase 2 string omitempty
= Protocol string
= Resource string
package meta.v1 io.k8s.apimachinery.pkg.apis.meta.v1 meta.k8s.io/v1
: TypeMeta
 kind 1 string omitempty
 apiVersion 2 string omitempty
package apiextensions.v1 io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1 apiextensions.k8s.io/v1
: JSONSchemaProps
 type 1 string omitempty
 items 2 *schema-or-list omitempty
 additionalProperties 3 *schema-or-bool omitempty
 dependencies 4 map[string]schema-or-strings omitempty
 default 5 *json omitempty
";

fn read(definition: &str, mut value: Value) -> Result<(Value, Vec<String>), String> {
    let table = Table::parse(TABLE).expect("the table");
    let schema = table.definition(definition).expect("the definition");
    let unknown = canonicalise(&schema, &mut value).map_err(|e| e.to_string())?;
    Ok((value, unknown.iter().map(ToString::to_string).collect()))
}

/// The canonical form of a thing without what is always there.
fn thing(given: Value) -> Value {
    let (mut value, unknown) = read("io.k8s.api.core.v1.Thing", given).expect("a thing");
    assert_eq!(unknown, Vec::<String>::new());
    let (empty, _) = read("io.k8s.api.core.v1.Thing", json!({})).expect("a thing");
    let (Value::Object(fields), Value::Object(empty)) = (&mut value, &empty) else { panic!("no object") };
    fields.retain(|key, value| empty.get(key) != Some(value));
    value
}

fn refusal(given: Value) -> String {
    read("io.k8s.api.core.v1.Thing", given).expect_err("a refusal")
}

#[test]
fn what_go_always_writes_is_added() {
    let (value, _) = read("io.k8s.api.core.v1.Thing", json!({})).expect("a thing");
    assert_eq!(
        value,
        json!({"always": "", "list": null, "labels": null, "at": null, "port": 0, "raw": null, "flag": null,
            "status": {"ready": 0}})
    );
}

#[test]
fn empty_values_go_unless_a_pointer_holds_them() {
    assert_eq!(thing(json!({"text": "", "plain": 0, "few": [], "bytes": "", "secret": {}, "share": 0.0})), json!({}));
    assert_eq!(thing(json!({"text": null, "count": null, "pointer": null, "list": null})), json!({}));
    assert_eq!(
        thing(json!({"count": 0, "flag": false, "pointer": {}})),
        json!({"count": 0, "flag": false, "pointer": {"ready": 0}})
    );
    assert_eq!(thing(json!({"list": [], "labels": {}})), json!({}), "always written, empty: null");
    assert_eq!(
        thing(json!({"list": [null], "few": [null], "secret": {"a": null}, "labels": {"a": null}})),
        json!({"list": [""], "few": [{}], "secret": {"a": ""}, "labels": {"a": ""}})
    );
}

#[test]
fn scalars_are_written_as_kubernetes_does() {
    assert_eq!(
        thing(json!({"limits": {"a": "1000m", "b": 0.5, "c": " 1024Ki "}})),
        json!({"limits": {"a": "1", "b": "500m", "c": "1Mi"}})
    );
    assert_eq!(
        thing(json!({"at": "2026-01-01T01:00:00.5+01:00", "seen": "2026-01-01T00:00:00.123456Z", "for": "90s"})),
        json!({"at": "2026-01-01T00:00:00Z", "seen": "2026-01-01T00:00:00.123456Z", "for": "1m30s"})
    );
    assert_eq!(thing(json!({"made": "0001-01-01T00:00:00Z", "at": "0001-01-01T00:00:00Z"})), json!({}));
    assert_eq!(thing(json!({"share": 2.0, "port": "http"})), json!({"share": 2, "port": "http"}));
    assert_eq!(thing(json!({"share": 2.5})), json!({"share": 2.5}));
    assert_eq!(thing(json!({"bytes": "YW\nJj"})), json!({"bytes": "YWJj"}));
    assert_eq!(thing(json!({"bytes": "YR=="})), json!({"bytes": "YQ=="}), "stray bits in the last character");
}

#[test]
fn free_form_values_stay() {
    let free = json!({"a": null, "b": [], "c": {"d": ""}});
    assert_eq!(thing(json!({"raw": free, "maybe": free})), json!({"raw": free, "maybe": free}));
}

#[test]
fn unknown_fields_are_dropped_and_reported() {
    let given = json!({"nope": 1, "status": {"x": {}}, "few": [{}, {"y": 1}], "Text": "case matters", "raw": {"z": 1}});
    let (value, unknown) = read("io.k8s.api.core.v1.Thing", given).expect("a thing");
    assert_eq!(
        unknown,
        [
            r#"unknown field "Text""#,
            r#"unknown field "few[1].y""#,
            r#"unknown field "nope""#,
            r#"unknown field "status.x""#
        ]
    );
    assert_eq!(value["status"], json!({"ready": 0}));
    assert!(value.get("nope").is_none());
}

#[test]
fn wrong_types_are_refused_in_the_words_of_go() {
    let cases = [
        (json!({"text": 1}), "json: cannot unmarshal number into Go struct field Thing.text of type string"),
        (json!({"name": true}), "json: cannot unmarshal bool into Go struct field Thing.Inner.name of type string"),
        (json!({"few": ["x"]}), "json: cannot unmarshal string into Go struct field Thing.few of type v1.Inner"),
        (json!({"few": {}}), "json: cannot unmarshal object into Go struct field Thing.few of type []v1.Inner"),
        (
            json!({"protocol": []}),
            "json: cannot unmarshal array into Go struct field Thing.protocol of type v1.Protocol",
        ),
        (json!({"count": 1.5}), "json: cannot unmarshal number 1.5 into Go struct field Thing.count of type int32"),
        (
            json!({"count": 2147483648i64}),
            "json: cannot unmarshal number 2147483648 into Go struct field Thing.count of type int32",
        ),
        (
            json!({"plain": u64::MAX}),
            "json: cannot unmarshal number 18446744073709551615 into Go struct field Thing.plain of type int64",
        ),
        (
            json!({"limits": 1}),
            "json: cannot unmarshal number into Go struct field Thing.limits of type map[v1.Resource]resource.Quantity",
        ),
        (
            json!({"status": {"phase": 1}}),
            "json: cannot unmarshal number into Go struct field Status.status.phase of type string",
        ),
        (json!({"at": 1}), "json: cannot unmarshal number into Go struct field Thing.at of type string"),
        (json!({"port": true}), "json: cannot unmarshal bool into Go struct field Thing.port of type int32"),
        (json!({"bytes": "a"}), "illegal base64 data at input byte 0"),
        (json!({"bytes": "ab=c"}), "illegal base64 data at input byte 2"),
        (json!({"bytes": "abc=d"}), "illegal base64 data at input byte 4"),
        (json!({"secret": {"a": "ab!d"}}), "illegal base64 data at input byte 2"),
        (json!({"bytes": "ab="}), "illegal base64 data at input byte 3"),
    ];
    for (given, expected) in cases {
        assert_eq!(refusal(given), expected);
    }
    assert_eq!(
        read("io.k8s.api.core.v1.Thing", json!("x")).expect_err("a refusal"),
        "json: cannot unmarshal string into Go value of type v1.Thing"
    );
}

#[test]
fn malformed_quantities_come_before_wrong_types() {
    assert!(refusal(json!({"always": 1, "limits": {"a": "x"}})).starts_with("quantities must match"));
}

#[test]
fn schemas_in_unions_are_read_as_schemas() {
    let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    let given = json!({"items": {"type": "", "x": 1}, "additionalProperties": true, "default": {"a": null},
        "dependencies": {"a": ["b"], "c": {"type": "object"}, "d": []}});
    let (value, unknown) = read(name, given).expect("a schema");
    assert_eq!(unknown, Vec::<String>::new(), "their decoder does not report");
    let expected = json!({"items": {}, "additionalProperties": true, "default": {"a": null},
        "dependencies": {"a": ["b"], "c": {"type": "object"}, "d": null}});
    assert_eq!(value, expected);
    assert_eq!(read(name, json!({"items": []})).expect("a schema").0, json!({}));
    assert_eq!(
        read(name, json!({"additionalProperties": 1})).expect_err("a refusal"),
        "boolean or JSON schema expected"
    );
    assert_eq!(
        read(name, json!({"items": [{"items": {"type": 1}}]})).expect_err("a refusal"),
        "json: cannot unmarshal number into Go struct field JSONSchemaProps.items.items.type of type string"
    );
}
