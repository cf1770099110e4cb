//! Kubernetes protobuf: one transcoder between values and the wire, driven by the schema.
//!
//! An object on the wire is `k8s\0` and an `Unknown` message, which says apiVersion and kind and holds the object's own
//! message. What Go's generated code does is done here: fields in the order of their numbers, scalars and structs that
//! are no pointers always there, map entries sorted by key, unknown fields skipped, messages that come twice merged.
//! Decoding gives the canonical form (`codec::canonical`); encoding takes it.
//!
//! Hostile input costs little: every length is checked before it is used, nesting is bounded, and no more values are
//! made than there are bytes (plus some), however cheap a message is on the wire.

mod decode;
mod encode;
mod wire;

use serde_json::Value;
use thiserror::Error;

use super::MAX_DEPTH;
use super::json::BadJson;
use crate::quantity::BadQuantity;
use crate::schema::{Ref, Schema};
use crate::value::Fields;

pub use wire::{append_bytes, append_double, append_varint};

/// What every object on the wire begins with.
pub const PREFIX: &[u8; 4] = b"k8s\0";

/// Why bytes are not the message they should be.
#[derive(Debug, Error, PartialEq)]
pub enum DecodeError {
    #[error("empty data")]
    Empty,
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    Prefix,
    #[error("empty body")]
    EmptyBody,
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("unexpected EOF")]
    Truncated,
    #[error("proto: integer overflow")]
    Overflow,
    #[error("proto: illegal tag {number} (wire type {wire_type})")]
    Tag { number: u64, wire_type: u8 },
    #[error("proto: unexpected end of group")]
    Group,
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    WireType { wire_type: u8, field: String },
    #[error("proto: messages are nested more than {MAX_DEPTH} levels deep")]
    Depth,
    #[error("proto: more values than the size of the message allows")]
    TooManyValues,
    #[error("proto: {0} is no moment that can be written")]
    Time(i64),
    #[error("impossible IntOrString.Type")]
    IntOrString,
    #[error("json: unsupported value: {0}")]
    Float(f64),
    #[error(transparent)]
    Quantity(#[from] BadQuantity),
    #[error("a protobuf object inside of a raw extension cannot be read")]
    NestedObject,
    #[error("raw extension: {0}")]
    Json(#[from] BadJson),
    #[error(transparent)]
    NoMessage(#[from] NoMessage),
}

/// Why a value cannot be written as a message.
#[derive(Debug, Error, PartialEq)]
pub enum EncodeError {
    #[error("{place}: {value} is no {expected}")]
    Value { place: String, expected: &'static str, value: String },
    #[error(transparent)]
    NoMessage(#[from] NoMessage),
}

/// A type that Kubernetes has no message for.
#[derive(Debug, Error, PartialEq)]
#[error("object {0} does not implement the protobuf marshalling interface and cannot be encoded to a protobuf message")]
pub struct NoMessage(pub String);

/// An object on the wire, its own message not yet read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    pub api_version: &'a str,
    pub kind: &'a str,
    /// The message of the object.
    pub raw: &'a [u8],
}

/// Opens an envelope.
pub fn unwrap(bytes: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    if bytes.is_empty() {
        return Err(DecodeError::Empty);
    }
    let body = bytes.strip_prefix(PREFIX).ok_or(DecodeError::Prefix)?;
    if body.is_empty() {
        return Err(DecodeError::EmptyBody);
    }
    decode::envelope(body)
}

/// Puts an object's message in an envelope.
pub fn wrap(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = open(api_version, kind, raw.len());
    out.extend_from_slice(raw);
    out.extend_from_slice(CLOSE);
    out
}

/// What stands in an envelope before an object's message of this length. After the message comes [`CLOSE`]. So a message
/// can be sent while it is made, if its length is known.
pub fn open(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    encode::envelope_start(api_version, kind, length)
}

/// The end of an envelope: content encoding and type, which Go writes even when they are empty.
pub const CLOSE: &[u8] = &[0x1a, 0, 0x22, 0];

/// Reads a message as a canonical value. An object's apiVersion and kind are in its envelope, not here.
pub fn decode(at: Ref<'_>, bytes: &[u8]) -> Result<Value, DecodeError> {
    decode::message(at, bytes)
}

/// Appends the message of a canonical value.
pub fn encode(at: Ref<'_>, value: &Value, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    encode::message(at, value, out)
}

/// Reads an object in its envelope. The kind that the envelope names must be one that `schema` knows.
pub fn read(bytes: &[u8], schema: impl FnOnce(&str, &str) -> Option<Schema>) -> Result<Value, DecodeError> {
    let Envelope { api_version, kind, raw } = unwrap(bytes)?;
    let Some(schema) = schema(api_version, kind) else {
        return Err(DecodeError::UnknownKind { api_version: api_version.to_owned(), kind: kind.to_owned() });
    };
    let mut value = decode(schema.root(), raw)?;
    if let Value::Object(object) = &mut value {
        for (name, text) in [("apiVersion", api_version), ("kind", kind)] {
            // a watch event is of a kind but does not say so
            if schema.root().child(name).is_some() {
                object.insert(name.to_owned(), text.into());
            }
        }
    }
    Ok(value)
}

/// Writes an object in its envelope.
pub fn to_vec(schema: &Schema, value: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::with_capacity(1024);
    let (api_version, kind) = (value.text("apiVersion"), value.text("kind"));
    encode::envelope(&mut out, api_version, kind, |out| encode(schema.root(), value, out))?;
    Ok(out)
}

#[cfg(test)]
mod tests;
