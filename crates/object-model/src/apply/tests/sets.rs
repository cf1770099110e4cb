//! Path elements, sets and FieldsV1.

use super::*;

#[test]
fn elements_read_and_write() {
    for text in [
        "f:spec",
        "f:",
        "f:a:b",
        "f:.",
        r#"k:{"name":"web"}"#,
        r#"k:{"port":80,"protocol":"TCP"}"#,
        r#"v:"a\u003cb""#,
        "v:1",
        "v:true",
        "v:null",
        "i:3",
        "i:-1",
    ] {
        assert_eq!(Element::parse(text).unwrap().encoded(), text);
    }
    assert_eq!(Element::parse(r#"k:{"b":1,"a":2.0}"#).unwrap().encoded(), r#"k:{"a":2,"b":1}"#);
    assert_eq!(Element::parse("v:1.0").unwrap(), Element::parse("v:1").unwrap());
}

#[test]
fn bad_fields_are_errors() {
    for bad in [
        json!({"f": {}}),
        json!({"": {}}),
        json!({"fx": {}}),
        json!({"ff:x": {}}),
        json!({"é:x": {}}),
        json!({"k:": {}}),
        json!({"k:1": {}}),
        json!({"k:{": {}}),
        json!({"v:": {}}),
        json!({"i:x": {}}),
        json!({"i:99999999999999999999": {}}),
        json!({"f:a": 1}),
        json!({"f:a": []}),
        json!("x"),
        json!([]),
    ] {
        assert!(decode_fields(&bad).is_err(), "{bad}");
    }
    let mut deep = json!({});
    for _ in 0..600 {
        deep = json!({"f:a": deep});
    }
    assert_eq!(decode_fields(&deep), Err(BadFields::TooDeep));
    // Types of elements that are not known are nobody's loss.
    assert_eq!(encode_fields(&set(json!({"z:x": {}, "f:a": {}}))), json!({"f:a": {}}));
}

#[test]
fn fields_are_members_by_dot_or_by_being_empty() {
    let fields = json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}, "f:e": {}});
    let paths: Vec<String> = set(fields.clone()).paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths, [".a", ".e", ".a.b", ".c.d"]);
    assert_eq!(encode_fields(&set(fields)), json!({"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}, "f:e": {}}));
    assert_eq!(set(json!({"f:a": null})), set(json!({"f:a": {}})));
    assert_eq!(set(json!({"f:a": {".": {}}})), set(json!({"f:a": {}})));
}

#[test]
fn text_is_in_the_order_of_elements() {
    let fields = set(json!({
        "i:2": {}, "i:10": {}, "v:\"b\"": {}, "v:10": {}, "v:9": {}, "v:true": {},
        "k:{\"port\":80}": {}, "k:{\"port\":9}": {".": {}, "f:name": {}}, "f:z": {}, "f:a": {},
    }));
    assert_eq!(
        fields_text(&fields),
        r#"{"f:a":{},"f:z":{},"k:{\"port\":9}":{".":{},"f:name":{}},"k:{\"port\":80}":{},"v:9":{},"v:10":{},"v:\"b\"":{},"v:true":{},"i:2":{},"i:10":{}}"#
    );
}

#[test]
fn paths_read_as_kubernetes_writes_them() {
    let fields = set(json!({"f:spec": {
        "k:{\"containerPort\":80,\"protocol\":\"T\\\"P\"}": {"f:name": {}}, "v:\"x\"": {}, "i:0": {}, "v:1.5": {},
    }}));
    assert_eq!(
        fields.to_string(),
        ".spec[=1.5]\n.spec[=\"x\"]\n.spec[0]\n.spec[containerPort=80,protocol=\"T\\\"P\"].name"
    );
}

#[test]
fn differences_with_parents() {
    let a = set(json!({"f:a": {".": {}, "f:b": {".": {}, "f:c": {}}}, "f:x": {}}));
    let b = set(json!({"f:a": {"f:b": {}}}));
    assert_eq!(a.difference(&b), set(json!({"f:a": {".": {}, "f:b": {"f:c": {}}}, "f:x": {}})));
    assert_eq!(a.recursive_difference(&b), set(json!({"f:a": {}, "f:x": {}})));
    assert_eq!(a.leaves(), set(json!({"f:a": {"f:b": {"f:c": {}}}, "f:x": {}})));
    assert!(a.has(&FieldPath::of_fields(&["a", "b"]).0));
    assert!(!a.has(&FieldPath::of_fields(&["a", "b", "d"]).0) && !a.has(&[]));
    assert_eq!(a.below(&Element::field("a")).unwrap().len(), 2);
}

#[test]
fn filters() {
    let fields = set(json!({
        "f:spec": {".": {}, "f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:tags": {"v:\"t\"": {}}}}, "f:text": {}},
        "f:status": {"f:ready": {}},
    }));
    let without = Filter::Without(Set::of_fields(&[&["status"], &["spec", "text"]]));
    assert_eq!(
        without.apply(&fields),
        set(
            json!({"f:spec": {".": {}, "f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}, "f:tags": {"v:\"t\"": {}}}}}})
        )
    );
    let step = |name| Some(Element::field(name));
    let only = Filter::Only(vec![vec![step("spec"), step("items"), None, step("tags")]]);
    assert_eq!(
        only.apply(&fields),
        set(json!({"f:spec": {".": {}, "f:items": {"k:{\"name\":\"a\"}": {".": {}, "f:tags": {"v:\"t\"": {}}}}}}))
    );
}
