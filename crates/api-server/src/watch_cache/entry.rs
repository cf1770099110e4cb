//! One object as the cache holds it: its encoded bytes once, with what selectors need beside them.
//!
//! # The stored form
//!
//! The store holds an object as JSON that begins `{"apiVersion":…,"kind":…,"metadata":{` and has no resourceVersion: the
//! revision is known only at commit. The cache splices it in and keeps the part after the header, the *body*:
//! `"metadata":{"resourceVersion":"7",…},…}`. Every answer is made of it without encoding again: an object is header +
//! body, a list item of a built-in kind is `{` + body, a watch event wraps header + body.

use bytes::{BufMut, Bytes, BytesMut};
use object_model::{
    codec::MAX_DEPTH,
    value::{Fields, Object},
};
use serde::Deserialize;
use serde_json::Value;
use storage::Revision;

const METADATA: &[u8] = br#""metadata":{"#;

/// One object at one revision.
#[derive(Debug)]
pub struct Entry {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub revision: Revision,
    /// The version in which the object is stored.
    pub api_version: Box<str>,
    /// Everything after the header; see the module documentation.
    pub body: Bytes,
    /// Sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The values of the resource's selectable fields, in its order; absent ones are empty.
    pub fields: Box<[Box<str>]>,
}

/// A stored value that is not in the stored form.
#[derive(Debug, thiserror::Error)]
#[error("{key} is not a stored object: {reason}")]
pub struct Malformed {
    pub key: String,
    pub reason: String,
}

/// A field that objects can be selected by.
#[derive(Clone, Debug)]
pub enum SelectableField {
    /// Of a built-in kind.
    Read { name: &'static str, read: fn(&Value) -> String },
    /// Of a custom one, by its path.
    Path(Box<str>),
}

impl From<&api::kinds::Selectable> for SelectableField {
    fn from(field: &api::kinds::Selectable) -> Self {
        Self::Read { name: field.name, read: field.read }
    }
}

impl SelectableField {
    pub fn name(&self) -> &str {
        match self {
            Self::Read { name, .. } => name,
            Self::Path(path) => path,
        }
    }

    /// The value as text, the way field selectors compare it.
    fn read(&self, object: &Value) -> Box<str> {
        match self {
            Self::Read { read, .. } => read(object).into(),
            Self::Path(path) => match object.at(&path.split('.').collect::<Vec<_>>()) {
                Some(Value::String(text)) => text.as_str().into(),
                None | Some(Value::Null) => Box::default(),
                Some(other) => other.to_string().into(),
            },
        }
    }
}

/// An object at one revision has one state.
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.revision == other.revision && self.name == other.name && self.namespace == other.namespace
    }
}

impl Entry {
    /// Reads a stored value. `name` is the key below the resource's prefix. What this lets through can be read as a value
    /// by everyone, also inside of a list or an event.
    pub fn read(
        key: &str,
        name: &str,
        stored: &[u8],
        revision: Revision,
        selectable: &[SelectableField],
    ) -> Result<Self, Malformed> {
        let malformed = |reason: String| Malformed { key: key.to_owned(), reason };
        let (namespace, name) = name.split_once('/').unwrap_or(("", name));
        find(stored, METADATA).ok_or_else(|| malformed("it has no metadata".into()))?;
        if nesting(stored) > MAX_DEPTH {
            return Err(malformed(format!("it is nested more than {MAX_DEPTH} levels deep")));
        }
        let (api_version, labels, fields) = if selectable.is_empty() {
            let head: Head = serde_json::from_slice(stored).map_err(|e| malformed(e.to_string()))?;
            (head.api_version, head.metadata.labels, Box::default())
        } else {
            let value: Value = serde_json::from_slice(stored).map_err(|e| malformed(e.to_string()))?;
            let head = Head::deserialize(&value).map_err(|e| malformed(e.to_string()))?;
            (head.api_version, head.metadata.labels, selectable.iter().map(|f| f.read(&value)).collect())
        };
        Ok(Self {
            namespace: namespace.into(),
            name: name.into(),
            revision,
            api_version,
            body: body_of(stored, Some(revision)),
            labels: labels.unwrap_or_default().into_iter().collect(),
            fields,
        })
    }

    /// The same object as it is told when it goes away at `revision`.
    pub fn at(&self, revision: Revision) -> Self {
        Self {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            revision,
            api_version: self.api_version.clone(),
            body: respliced(&self.body, revision),
            labels: self.labels.clone(),
            fields: self.fields.clone(),
        }
    }

    /// The key below the resource's prefix.
    pub fn key(&self) -> String {
        if self.namespace.is_empty() { self.name.to_string() } else { format!("{}/{}", self.namespace, self.name) }
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok().map(|i| &*self.labels[i].1)
    }

    /// The object as a value, resourceVersion included.
    pub fn object(&self, kind: &str) -> Value {
        let mut text = BytesMut::with_capacity(self.body.len() + 64);
        self.write(kind, &mut text);
        // Only an entry that was made otherwise than by `read` could be refused.
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes the whole object as JSON in its stored version.
    pub fn write(&self, kind: &str, out: &mut BytesMut) {
        write_header(kind, &self.api_version, out);
        out.put_slice(&self.body);
    }

    /// What the entry weighs, roughly.
    pub fn weight(&self) -> usize {
        self.body.len() + 256
    }
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "apiVersion")]
    api_version: Box<str>,
    metadata: HeadMeta,
}

#[derive(Deserialize)]
struct HeadMeta {
    labels: Option<std::collections::BTreeMap<Box<str>, Box<str>>>,
}

/// Writes `{"kind":…,"apiVersion":…,`, to be followed by a body.
pub fn write_header(kind: &str, api_version: &str, out: &mut BytesMut) {
    out.put_slice(br#"{"kind":""#);
    out.put_slice(kind.as_bytes());
    out.put_slice(br#"","apiVersion":""#);
    out.put_slice(api_version.as_bytes());
    out.put_slice(br#"","#);
}

/// An object in the stored form, without its resourceVersion.
pub fn encode_stored(object: &Value) -> Bytes {
    let nothing = Object::new();
    let object = object.as_object().unwrap_or(&nothing);
    let mut out = Vec::with_capacity(1024);
    let empty = Value::Object(Object::new());
    let text = |name: &str| object.get(name).cloned().unwrap_or(Value::String(String::new()));
    out.extend_from_slice(br#"{"apiVersion":"#);
    write_value(&text("apiVersion"), &mut out);
    out.extend_from_slice(br#","kind":"#);
    write_value(&text("kind"), &mut out);
    out.extend_from_slice(br#","metadata":"#);
    match object.get("metadata") {
        Some(Value::Object(meta)) if meta.contains_key("resourceVersion") => {
            let mut meta = meta.clone();
            meta.remove("resourceVersion");
            write_value(&Value::Object(meta), &mut out);
        }
        Some(meta) => write_value(meta, &mut out),
        None => write_value(&empty, &mut out),
    }
    for (name, value) in object {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            out.push(b',');
            write_value(&Value::String(name.clone()), &mut out);
            out.push(b':');
            write_value(value, &mut out);
        }
    }
    out.push(b'}');
    out.into()
}

fn write_value(value: &Value, out: &mut Vec<u8>) {
    // Writing to memory cannot fail, and a value's keys are always text.
    let _ = serde_json::to_writer(out, value);
}

/// The body of a stored object, with its revision in it if it has one.
pub fn body_of(stored: &[u8], revision: Option<Revision>) -> Bytes {
    let from_metadata = &stored[find(stored, METADATA).unwrap_or_default()..];
    let Some(revision) = revision else { return Bytes::copy_from_slice(from_metadata) };
    let rest = &from_metadata[METADATA.len()..];
    let mut out = BytesMut::with_capacity(from_metadata.len() + 44);
    put_revision(revision, &mut out);
    if rest.first() != Some(&b'}') {
        out.put_u8(b',');
    }
    out.put_slice(rest);
    out.freeze()
}

/// A body with another revision.
fn respliced(body: &[u8], revision: Revision) -> Bytes {
    let prefix = METADATA.len() + br#""resourceVersion":""#.len();
    let digits = body[prefix..].iter().take_while(|b| b.is_ascii_digit()).count();
    let rest = &body[prefix + digits + 1..];
    let mut out = BytesMut::with_capacity(body.len() + 20);
    put_revision(revision, &mut out);
    out.put_slice(rest);
    out.freeze()
}

fn put_revision(revision: Revision, out: &mut BytesMut) {
    out.put_slice(METADATA);
    out.put_slice(br#""resourceVersion":""#);
    out.put_slice(revision.to_string().as_bytes());
    out.put_u8(b'"');
}

/// How deep lists and objects are nested in JSON.
fn nesting(json: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text, mut escaped) = (0usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' | b'[' if !in_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
