//! The requests of each row, as bytes.

use std::io::Write;

use serde_json::json;

/// Data of each object: the keys and what the server adds come on top.
const PAYLOAD_BYTES: usize = 1024;
/// One object in this many is selected by the rare label.
const RARE: usize = 100;
const APP: &str = "bench";
/// What stands before the number of a patch in the object, and how many digits it has.
pub const MARK: &[u8] = br#""patched":""#;
pub const DIGITS: usize = 8;
/// The header of a body.
pub const JSON: &str = "Content-Type: application/json\r\n";

pub struct Requests {
    host: String,
    collection: String,
    pub create: Vec<Vec<u8>>,
    pub get: Vec<Vec<u8>>,
    pub delete: Vec<Vec<u8>>,
    pub list: Vec<u8>,
    pub by_label: Vec<u8>,
    pub by_rare_label: Vec<u8>,
    /// One object only: it tells the revision to watch from.
    pub first: Vec<u8>,
}

impl Requests {
    pub fn new(host: &str, namespace: &str, objects: usize) -> Self {
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let get = |query: &str| request("GET", host, &format!("{collection}{query}"), "", b"");
        let each = |method: &str| -> Vec<_> {
            (0..objects).map(|i| request(method, host, &format!("{collection}/{}", name(i)), "", b"")).collect()
        };
        let create = |i: usize| request("POST", host, &collection, JSON, &object(i));
        Self {
            create: (0..objects).map(create).collect(),
            get: each("GET"),
            delete: each("DELETE"),
            list: get(""),
            by_label: get(&format!("?labelSelector=app%3D{APP}")),
            by_rare_label: get("?labelSelector=rare%3Dyes"),
            first: get("?limit=1"),
            host: host.to_owned(),
            collection,
        }
    }

    /// A patch of an object, to be recognised by its number in the events of it.
    pub fn patch(&self, object: usize, number: usize) -> Vec<u8> {
        let path = format!("{}/{}", self.collection, name(object));
        let body = format!(r#"{{"data":{{"patched":"{number:0DIGITS$}"}}}}"#);
        request("PATCH", &self.host, &path, "Content-Type: application/merge-patch+json\r\n", body.as_bytes())
    }

    pub fn watch(&self, from: &str) -> Vec<u8> {
        let path = format!("{}?watch=1&resourceVersion={from}", self.collection);
        request("GET", &self.host, &path, "", b"")
    }
}

/// The name of an object.
pub fn name(i: usize) -> String {
    format!("{APP}-{i:05}")
}

fn object(i: usize) -> Vec<u8> {
    object_named(&name(i), i)
}

/// The same under another name.
pub fn object_named(name: &str, i: usize) -> Vec<u8> {
    let payload: String = (0..PAYLOAD_BYTES).map(|at| char::from(b'a' + ((i * 31 + at * 7) % 26) as u8)).collect();
    let rare = if i.is_multiple_of(RARE) { "yes" } else { "no" };
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"app": APP, "rare": rare}},
        "data": {"payload": payload},
    });
    object.to_string().into_bytes()
}

/// `headers` are whole lines.
pub fn request(method: &str, host: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + headers.len() + body.len());
    // Writing to memory cannot fail.
    let _ = write!(
        out,
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: bench\r\nAccept: application/json\r\n{headers}"
    );
    if !body.is_empty() {
        let _ = write!(out, "Content-Length: {}\r\n", body.len());
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out
}
