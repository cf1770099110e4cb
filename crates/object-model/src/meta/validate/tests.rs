use serde_json::json;

use super::*;

fn created(metadata: Value, namespaced: bool) -> Vec<String> {
    let object = json!({"metadata": metadata});
    let (mut errors, root) = (Errors::new(), Path::root());
    create(Meta::of(&object), namespaced, names::name_is_dns_subdomain, &root.child("metadata"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn updated(new: Value, old: Value) -> Vec<String> {
    let (new, old) = (json!({"metadata": new}), json!({"metadata": old}));
    let (mut errors, root) = (Errors::new(), Path::root());
    update(Meta::of(&new), Meta::of(&old), &root.child("metadata"), &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn good_metadata_passes() {
    let metadata = json!({"name": "a", "namespace": "ns", "generateName": "a-", "labels": {"x.io/y": "z"},
        "annotations": {"X.io/Y": "anything at all"}, "finalizers": ["x.io/f"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
        "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1"}]});
    assert_eq!(created(metadata, true), [""; 0]);
}

#[test]
fn names_and_namespaces() {
    assert_eq!(
        created(json!({}), true),
        ["metadata.name: Required value: name or generateName is required", "metadata.namespace: Required value"]
    );
    assert_eq!(
        created(json!({"name": "a", "namespace": "b"}), false),
        ["metadata.namespace: Forbidden: not allowed on this type"]
    );
    let problems = created(json!({"name": "A", "generateName": "Ab-", "namespace": "a.b"}), true);
    assert!(problems[0].starts_with("metadata.generateName: Invalid value: \"Ab-\": a lowercase"));
    assert!(problems[1].starts_with("metadata.name: Invalid value: \"A\": a lowercase"));
    assert_eq!(problems[2], "metadata.namespace: Invalid value: \"a.b\": must not contain dots");
}

#[test]
fn owners() {
    let owner = |kind: &str| json!({"uid": "u", "name": kind, "kind": kind, "apiVersion": "v1", "controller": true});
    assert_eq!(
        created(json!({"name": "a", "ownerReferences": [owner("A"), owner("B")]}), false),
        [
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"A","name":"A","uid":"u","controller":true},{"apiVersion":"v1","kind":"B","name":"B","uid":"u","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for A/A and B/B"#
        ]
    );
    assert_eq!(
        created(json!({"name": "a", "ownerReferences": [{}]}), false),
        [
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ]
    );
    assert_eq!(
        created(
            json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "u"}]}),
            false
        ),
        [
            r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"u"}: /v1, Kind=Event is disallowed from being an owner"#
        ]
    );
}

#[test]
fn the_rest_of_the_metadata() {
    let problems = created(
        json!({"name": "a", "generation": -1, "annotations": {"k": "x".repeat(ANNOTATIONS_MAX)},
            "finalizers": ["orphan", "foregroundDeletion"],
            "managedFields": [{"operation": "x", "fieldsType": "y", "manager": "a\nb"}]}),
        false,
    );
    assert_eq!(
        problems,
        [
            "metadata.generation: Invalid value: -1: must be greater than or equal to 0",
            "metadata.annotations: Too long: may not be more than 262144 bytes",
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and foregroundDeletion cannot be both set",
            "metadata.managedFields[0].operation: Invalid value: \"x\": must be `Apply` or `Update`",
            "metadata.managedFields[0].fieldsType: Invalid value: \"y\": must be `FieldsV1`",
            "metadata.managedFields[0].manager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)",
        ]
    );
}

#[test]
fn updates_keep_what_identifies_the_object() {
    let old = json!({"name": "a", "uid": "1", "resourceVersion": "5", "generation": 3, "deletionTimestamp": "2024-01-01T00:00:00Z",
        "finalizers": ["a"]});
    assert_eq!(updated(old.clone(), old.clone()), [""; 0]);
    let new = json!({"name": "b", "uid": "2", "generation": 2, "finalizers": ["c", "b"]});
    assert_eq!(
        updated(new, old),
        [
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{\"b\", \"c\"}",
            "metadata.resourceVersion: Invalid value: \"\": must be specified for an update",
            "metadata.generation: Invalid value: 2: must not be decremented",
            "metadata.name: Invalid value: \"b\": field is immutable",
            "metadata.uid: Invalid value: \"2\": field is immutable",
            "metadata.deletionTimestamp: Invalid value: null: field is immutable",
        ]
    );
}
