//! What requests and answers carry, as values for events.

use hyper::{HeaderMap, header};
use object_model::{
    codec::{protobuf, yaml},
    identity::GroupVersionKind,
};
use serde_json::Value;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The body of a request, whatever its form. What cannot be read is not recorded; the request will be refused for it.
pub fn read(content_type: &str, bytes: &[u8]) -> Value {
    let read = match content_type {
        PROTOBUF => from_protobuf(bytes),
        kind if kind.ends_with("yaml") => yaml::read(bytes).ok(),
        _ => serde_json::from_slice(bytes).ok(),
    };
    read.unwrap_or_default()
}

fn from_protobuf(bytes: &[u8]) -> Option<Value> {
    let envelope = protobuf::unwrap(bytes).ok()?;
    let kind = GroupVersionKind::parse(envelope.api_version, envelope.kind).ok()?;
    let schema = api::schemas::schema_of(&kind.group, &kind.version, &kind.kind)?;
    let mut value = protobuf::decode(schema.root(), envelope.raw).ok()?;
    value["apiVersion"] = envelope.api_version.into();
    value["kind"] = envelope.kind.into();
    Some(value)
}

/// An answer that is an object.
pub struct Answered<'a> {
    media: &'a str,
    bytes: &'a [u8],
}

pub fn answered<'a>(headers: &'a HeaderMap, bytes: &'a [u8]) -> Option<Answered<'a>> {
    let media = headers.get(header::CONTENT_TYPE)?.to_str().ok()?.split(';').next()?.trim();
    matches!(media, "application/json" | "application/yaml" | PROTOBUF).then_some(Answered { media, bytes })
}

impl Answered<'_> {
    /// Whether it is a Status, without reading all of it.
    pub fn is_status(&self) -> bool {
        let start = &self.bytes[..self.bytes.len().min(64)];
        let says = |text: &str| start.windows(text.len()).any(|window| window == text.as_bytes());
        match self.media {
            PROTOBUF => protobuf::unwrap(self.bytes).is_ok_and(|envelope| envelope.kind == "Status"),
            "application/yaml" => says("kind: Status"),
            _ => says("\"kind\":\"Status\""),
        }
    }

    pub fn value(&self) -> Value {
        read(self.media, self.bytes)
    }
}

/// Takes the managed fields out of an object, of the items of a list, and of the rows of a table.
pub fn drop_managed_fields(object: &mut Value) {
    fn drop(object: Option<&mut Value>) {
        if let Some(meta) = object.and_then(|o| o.get_mut("metadata")).and_then(Value::as_object_mut) {
            meta.remove("managedFields");
        }
    }
    drop(Some(object));
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        drop(Some(item));
    }
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        drop(row.get_mut("object"));
    }
}
