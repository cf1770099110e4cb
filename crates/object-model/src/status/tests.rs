use serde_json::{Value, json};

use super::*;
use crate::field::Path;

fn pods() -> GroupResource {
    GroupResource::fixed("", "pods")
}

fn as_json(status: &Status) -> Value {
    serde_json::to_value(status).unwrap()
}

#[test]
fn not_found_as_kube_apiserver_writes_it() {
    let text = crate::codec::json::to_string(&Status::not_found(&GroupResource::fixed("apps", "deployments"), "x"));
    assert_eq!(
        text,
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"x\" not found","reason":"NotFound","details":{"name":"x","group":"apps","kind":"deployments"},"code":404}"#
    );
}

#[test]
fn one_error_stands_alone_and_several_in_brackets_each_once() {
    let root = Path::root();
    let (spec, name) = (root.child("spec"), root.child("name"));
    let mut errors = Errors::new();
    errors.required(&spec, "");
    let one = Status::invalid(&GroupKind::fixed("", "Pod"), "a", &errors);
    assert_eq!(one.message, "Pod \"a\" is invalid: spec: Required value");

    errors.invalid(&name, "x<y", "bad");
    errors.required(&spec, "");
    let several = Status::invalid(&GroupKind::fixed("apps", "Deployment"), "a", &errors);
    assert_eq!(
        several.message,
        "Deployment.apps \"a\" is invalid: [spec: Required value, name: Invalid value: \"x<y\": bad]"
    );
    assert_eq!(
        as_json(&several)["details"],
        json!({"name": "a", "group": "apps", "kind": "Deployment", "causes": [
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec"},
            {"reason": "FieldValueInvalid", "message": "Invalid value: \"x<y\": bad", "field": "name"},
            {"reason": "FieldValueRequired", "message": "Required value", "field": "spec"},
        ]})
    );
}

#[test]
fn values_in_field_errors() {
    let root = Path::root();
    let mut errors = Errors::new();
    errors.invalid(&root, 5, "");
    errors.invalid(&root, 2.5e7, "");
    errors.invalid(&root, true, "");
    errors.invalid(&root, json!({"b": "<", "a": [1]}), "");
    errors.invalid(&root, Value::Null, "");
    errors.invalid_shown(&root, "v1.X{}", "no");
    errors.too_long(&root, 1);
    errors.too_long(&root, 63);
    errors.too_long_characters(&root, 2);
    errors.too_short(&root, 1);
    errors.too_many(&root, 3, 1);
    errors.too_few(&root, 0, 2);
    errors.not_supported(&root, "c", &["a", "b"]);
    errors.not_supported(&root, "c", &[]);
    let bodies: Vec<String> = errors.iter().map(|e| e.body()).collect();
    assert_eq!(
        bodies,
        [
            "Invalid value: 5",
            "Invalid value: 2.5e+07",
            "Invalid value: true",
            "Invalid value: {\"a\":[1],\"b\":\"\\u003c\"}",
            "Invalid value: null",
            "Invalid value: v1.X{}: no",
            "Too long: may not be more than 1 byte",
            "Too long: may not be more than 63 bytes",
            "Too long: may not be more than 2 characters",
            "Too short: must be at least 1 character",
            "Too many: 3: must have at most 1 item",
            "Too few: 0: must have at least 2 items",
            "Unsupported value: \"c\": supported values: \"a\", \"b\"",
            "Unsupported value: \"c\"",
        ]
    );
}

#[test]
fn every_failure_has_its_code_reason_and_words() {
    let cases = [
        (Status::already_exists(&pods(), "a"), 409, "AlreadyExists", "pods \"a\" already exists"),
        (Status::conflict(&pods(), "a", "why"), 409, "Conflict", "Operation cannot be fulfilled on pods \"a\": why"),
        (Status::forbidden(&pods(), "a", "why"), 403, "Forbidden", "pods \"a\" is forbidden: why"),
        (Status::forbidden(&pods(), "", "why"), 403, "Forbidden", "pods is forbidden: why"),
        (Status::forbidden(&GroupResource::default(), "", "why"), 403, "Forbidden", "forbidden: why"),
        (Status::unauthorized(""), 401, "Unauthorized", "not authorized"),
        (Status::timeout("x", 1), 504, "Timeout", "Timeout: x"),
        (Status::internal("x"), 500, "InternalError", "Internal error occurred: x"),
        (Status::gone("x"), 410, "Gone", "x"),
        (Status::expired("x"), 410, "Expired", "x"),
        (
            Status::method_not_allowed(),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        (Status::request_entity_too_large("x"), 413, "RequestEntityTooLarge", "Request entity too large: x"),
        (
            Status::not_acceptable(&["a/b", "c/d"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: a/b, c/d",
        ),
        (
            Status::generic(503, "GET", &pods(), "a", ""),
            503,
            "ServiceUnavailable",
            "the server is currently unable to handle the request (get pods a)",
        ),
        (
            Status::generic(502, "GET", &GroupResource::default(), "", "x"),
            502,
            "InternalError",
            "an error on the server (\"x\") has prevented the request from succeeding",
        ),
    ];
    for (status, code, reason, message) in cases {
        assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (code, reason, message));
    }
    assert_eq!(as_json(&Status::too_many_requests("x", 7))["details"], json!({"retryAfterSeconds": 7}));
}

#[test]
fn statuses_read_back() {
    let status = Status::too_large_resource_version(9, 5, 1);
    let text = serde_json::to_string(&status).unwrap();
    assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    let foreign: Status = serde_json::from_str(r#"{"reason":"Strange","code":418,"other":1}"#).unwrap();
    assert_eq!(foreign.reason.as_str(), "Strange");
}
