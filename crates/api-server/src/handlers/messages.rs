//! Answers in protobuf, transcoded from the JSON that the cache holds.
//!
//! A message says its length before it begins. A list that is short is made whole; of a long one, the first pass only adds
//! up lengths and the second one makes what the connection takes, so memory does not grow with the result.

use std::task::{Context, Poll};

use api::schemas;
use bytes::{BufMut, Bytes, BytesMut};
use hyper::{Response, header};
use object_model::{
    codec::protobuf::{self, EncodeError, append_bytes},
    schema::{Schema, Shape},
    status::Status,
};
use serde_json::{Value, json};
use thiserror::Error;

use super::{
    read::{self, CHUNK_BYTES},
    respond::{Encoded, Writer},
};
use crate::{
    body::{Body, Chunks},
    negotiation::Encoding,
    registry::{Items, List},
    watch_cache::Entry,
};

/// Lists up to this size are made once and sent whole.
const WHOLE_BYTES: usize = 4 << 20;

/// Why something cannot be answered in protobuf.
#[derive(Debug, Error)]
pub enum NoMessage {
    #[error("{kind} of {api_version} has no protobuf message")]
    Kind { api_version: String, kind: String },
    #[error("the object is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// An object in its envelope, from its JSON.
pub fn object(json: &[u8]) -> Result<Vec<u8>, NoMessage> {
    let value: Value = serde_json::from_slice(json)?;
    let text = |name: &str| value[name].as_str().unwrap_or_default();
    let schema = schema(text("apiVersion"), text("kind"))?;
    Ok(protobuf::to_vec(&schema, &value)?)
}

fn schema(api_version: &str, kind: &str) -> Result<Schema, NoMessage> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let unknown = || NoMessage::Kind { api_version: api_version.to_owned(), kind: kind.to_owned() };
    schemas::schema_of(group, version, kind).ok_or_else(unknown)
}

/// Appends an event of a watch: its length in four bytes, and a `WatchEvent` without an envelope around it.
pub fn put_event(kind: &str, json: &[u8], out: &mut BytesMut) {
    let (kind, object) = match object(json) {
        Ok(object) => (kind, object),
        Err(error) => ("ERROR", status(&Status::internal(error))),
    };
    let mut raw = Vec::with_capacity(object.len() + 8);
    append_bytes(&mut raw, 1, &object);
    let mut event = Vec::with_capacity(raw.len() + 24);
    append_bytes(&mut event, 1, kind.as_bytes());
    append_bytes(&mut event, 2, &raw);
    out.put_u32(event.len() as u32);
    out.put_slice(&event);
}

fn status(status: &Status) -> Vec<u8> {
    // A status is made of texts and numbers, and its message is in the table.
    serde_json::to_vec(status).ok().and_then(|json| object(&json).ok()).unwrap_or_default()
}

/// A list, whole if it is short.
pub async fn list(writer: Writer, list: List) -> Result<Response<Body>, Status> {
    let items = ItemWriter::new(writer).map_err(Status::internal)?;
    let mut start = Vec::new();
    protobuf::encode(items.list.root(), &json!({"metadata": read::metadata(&list)}), &mut start)
        .map_err(Status::internal)?;
    let (mut all, mut length) = (Vec::new(), start.len());
    let mut counted = list.items.clone();
    loop {
        let mut chunk = Vec::new();
        let more = items.put_some(&mut counted, &mut chunk).map_err(Status::internal)?;
        length += chunk.len();
        if length <= WHOLE_BYTES {
            all.append(&mut chunk);
        } else {
            all = Vec::new();
        }
        if !more {
            break;
        }
        // Others want to be served as well.
        tokio::task::yield_now().await;
    }
    let (api_version, kind) = items.writer.list_kind();
    let mut head = protobuf::open(&api_version, kind, length);
    head.append(&mut start);
    let body = if length <= WHOLE_BYTES {
        head.append(&mut all);
        head.extend_from_slice(protobuf::CLOSE);
        Body::from(head)
    } else {
        Body::List(Box::new(ListChunks { items, rest: list.items, head, ended: false }))
    };
    let mut response = Response::new(body);
    let media = header::HeaderValue::from_static(Encoding::Protobuf.media_type());
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

/// Writes the items of one list as fields of its message.
struct ItemWriter {
    writer: Writer,
    list: Schema,
    /// The number of the field that repeats the items, and their type.
    number: u32,
    item: Schema,
}

impl ItemWriter {
    fn new(writer: Writer) -> Result<Self, NoMessage> {
        let (api_version, kind) = writer.list_kind();
        let list = schema(&api_version, kind)?;
        let unknown = || NoMessage::Kind { api_version: api_version.clone(), kind: kind.to_owned() };
        let items = match list.root().shape() {
            Shape::Struct(shape) => shape.field("items"),
            _ => None,
        };
        let items = items.ok_or_else(unknown)?;
        let item = list.root().to(items.r#type).item().ok_or_else(unknown)?;
        let (number, item) = (items.number, Schema::new(list.types().clone(), item.id()));
        Ok(Self { writer, list, number, item })
    }

    /// About a chunk of items. False when there are no more.
    fn put_some(&self, items: &mut Items, out: &mut Vec<u8>) -> Result<bool, NoMessage> {
        let mut outcome = Ok(());
        let (mut text, mut message) = (BytesMut::new(), Vec::new());
        let more = items.each(|entry| {
            message.clear();
            outcome = self.item(entry, &mut text, &mut message);
            append_bytes(out, self.number, &message);
            outcome.is_ok() && out.len() < CHUNK_BYTES
        });
        outcome.map(|()| more)
    }

    fn item(&self, entry: &Entry, text: &mut BytesMut, message: &mut Vec<u8>) -> Result<(), NoMessage> {
        text.clear();
        self.writer.item(Encoded { api_version: &entry.api_version, body: &entry.body }, text);
        let value: Value = serde_json::from_slice(text)?;
        Ok(protobuf::encode(self.item.root(), &value, message)?)
    }
}

/// A list whose length is known, made as the connection takes it.
struct ListChunks {
    items: ItemWriter,
    rest: Items,
    /// Sent before the first item.
    head: Vec<u8>,
    ended: bool,
}

impl Chunks for ListChunks {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut out = std::mem::take(&mut self.head);
        match self.items.put_some(&mut self.rest, &mut out) {
            Ok(true) => {}
            Ok(false) => {
                out.extend_from_slice(protobuf::CLOSE);
                self.ended = true;
            }
            // The same objects were encoded before; were it otherwise, the length would tell the client.
            Err(_) => self.ended = true,
        }
        Poll::Ready(Some(out.into()))
    }
}
