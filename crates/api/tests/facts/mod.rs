//! The recordings of Kubernetes that tests compare with, where they are there.

#![allow(dead_code, reason = "every test file uses its part")]

use serde_json::Value;

/// A request to a real server and its answer.
pub struct Recording {
    pub id: u64,
    pub kind: String,
    pub what: String,
    pub method: String,
    pub path: String,
    /// What the client asked for, if not the plain object.
    pub accept: Option<String>,
    /// Of a patch, its type.
    pub content_type: Option<String>,
    pub code: u64,
    pub body: Value,
    pub answer: Value,
}

/// Every recorded request.
pub fn recordings() -> Option<impl Iterator<Item = Recording>> {
    Some(testing::recordings()?.map(|line| {
        let mut entry: Value = serde_json::from_str(&line).expect("a line is JSON");
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Recording {
            id: entry["id"].as_u64().unwrap_or_default(),
            kind: text(&entry, "kind"),
            what: text(&entry, "what"),
            method: text(&entry, "method"),
            path: text(&entry, "path"),
            accept: entry["accept"].as_str().map(str::to_owned),
            content_type: entry["ctype"].as_str().map(str::to_owned),
            code: entry["code"].as_u64().unwrap_or_default(),
            body: entry["body"].take(),
            answer: entry["resp"].take(),
        }
    }))
}
