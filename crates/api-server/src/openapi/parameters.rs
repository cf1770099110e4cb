//! The parameters of requests.

use serde_json::{Value, json};

use super::Dialect;

/// Name and type.
pub type Parameter = (&'static str, &'static str);

pub const LIST: [Parameter; 10] = [
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
pub const WRITE: [Parameter; 3] = [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")];
/// kubectl reads from these whether it may ask for a dry run and for validation.
pub const PATCH: [Parameter; 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];
pub const DELETE: [Parameter; 4] = [
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("propagationPolicy", "string"),
];
const LOG: [Parameter; 9] = [
    ("container", "string"),
    ("follow", "boolean"),
    ("insecureSkipTLSVerifyBackend", "boolean"),
    ("limitBytes", "integer"),
    ("previous", "boolean"),
    ("sinceSeconds", "integer"),
    ("stream", "string"),
    ("tailLines", "integer"),
    ("timestamps", "boolean"),
];
const EXEC: [Parameter; 6] = [
    ("command", "string"),
    ("container", "string"),
    ("stderr", "boolean"),
    ("stdin", "boolean"),
    ("stdout", "boolean"),
    ("tty", "boolean"),
];

/// Of the subresources that carry no objects.
pub fn of_stream(subresource: &str) -> &'static [Parameter] {
    match subresource {
        "log" => &LOG,
        "exec" => &EXEC,
        "attach" => EXEC.get(1..).unwrap_or_default(),
        "portforward" => &[("ports", "integer")],
        "proxy" => &[("path", "string")],
        _ => &[],
    }
}

pub fn query(dialect: Dialect, (name, r#type): Parameter) -> Value {
    one(dialect, name, "query", r#type)
}

pub fn path(dialect: Dialect, name: &str) -> Value {
    let mut parameter = one(dialect, name, "path", "string");
    parameter["required"] = true.into();
    parameter
}

fn one(dialect: Dialect, name: &str, place: &str, r#type: &str) -> Value {
    match dialect {
        Dialect::V2 => json!({"name": name, "in": place, "type": r#type, "uniqueItems": true}),
        Dialect::V3 => json!({"name": name, "in": place, "schema": {"type": r#type, "uniqueItems": true}}),
    }
}
