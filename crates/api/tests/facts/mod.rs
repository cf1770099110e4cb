//! The published facts and recordings of Kubernetes that tests compare with, where they are there.

#![allow(dead_code, reason = "every test file uses its part")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use serde_json::Value;

/// The folder, or a loud word that it is missing.
pub fn folder() -> Option<PathBuf> {
    let relative = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/kubernetes");
    let folder = std::env::var_os("FERRY_FACTS").map_or_else(|| PathBuf::from(relative), PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no facts of Kubernetes in {} (set FERRY_FACTS)", folder.display());
    None
}

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
    let file =
        std::fs::File::open(folder()?.join("recordings-v1.36.4.jsonl.gz")).expect("the recordings can be opened");
    let lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines();
    Some(lines.map(|line| {
        let mut entry: Value = serde_json::from_str(&line.expect("a line")).expect("a line is JSON");
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
