//! GET and LIST.

use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::{HeaderMap, Response, StatusCode, header};
use object_model::status::Status;
use serde_json::{Value, json};
use storage::Revision;

use super::{
    Call, messages,
    respond::{self, Encoded, Writer},
};
use crate::{
    body::{Body, Chunks},
    negotiation::{Content, Encoding},
    options::ListOptions,
    registry::{Items, List, Selection},
};

/// How much of a list is handed to the connection at a time.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// What a request accepts, from its headers and options.
pub(super) fn negotiate(
    call: &Call<'_>,
    headers: &HeaderMap,
    include: Option<&str>,
) -> Result<(Encoding, Writer), Status> {
    negotiate_for(Content::of(call.resource.custom), call, headers, include)
}

pub(super) fn negotiate_for(
    content: Content,
    call: &Call<'_>,
    headers: &HeaderMap,
    include: Option<&str>,
) -> Result<(Encoding, Writer), Status> {
    let accept = headers.get(header::ACCEPT).and_then(|v| v.to_str().ok());
    let (form, include) = respond::negotiate(accept, include, content)?;
    let clock = call.server.registry.clock.clone();
    Ok((form.encoding, Writer::new(call.resource.clone(), form, include, clock)))
}

pub async fn get(call: &Call<'_>, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let options = ListOptions::read(&call.query)?;
    let (encoding, writer) = negotiate(call, headers, options.include_object.as_deref())?;
    let answer = call.server.registry.get(&call.target(), &options.resource_version).await?;
    let mut out = BytesMut::with_capacity(answer.body.len() + 256);
    writer.object(Encoded { api_version: &answer.api_version, body: &answer.body }, &mut out);
    Ok(respond::answer(StatusCode::OK, encoding, out.freeze()))
}

pub async fn list(call: &Call<'_>, headers: &HeaderMap) -> Result<Response<Body>, Status> {
    let options = ListOptions::read(&call.query)?;
    let (_, writer) = negotiate(call, headers, options.include_object.as_deref())?;
    let selection = Selection::new(&call.target(), &options)?;
    let list = call.server.registry.list(&call.target(), selection, &options).await?;
    answer_list(writer, list).await
}

/// A list in the form that was asked for.
pub(super) async fn answer_list(writer: Writer, list: List) -> Result<Response<Body>, Status> {
    let encoding = writer.encoding();
    if encoding == Encoding::Protobuf {
        return messages::list(writer, list).await;
    }
    let mut chunks = ListChunks::new(writer, list);
    if encoding == Encoding::Yaml {
        let mut all = BytesMut::new();
        while let Some(chunk) = chunks.next() {
            all.put_slice(&chunk);
        }
        return Ok(respond::answer(StatusCode::OK, encoding, all.freeze()));
    }
    // Most lists are short: they go out whole, with their length.
    let first = chunks.next().unwrap_or_default();
    let body = if chunks.ended {
        Body::from(first)
    } else {
        chunks.pending = Some(first);
        Body::List(Box::new(chunks))
    };
    let mut response = Response::new(body);
    let json = header::HeaderValue::from_static(encoding.media_type());
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    Ok(response)
}

/// The metadata of a list. What is not stored has no revision.
pub(super) fn metadata(list: &List) -> Value {
    let mut meta = json!({});
    if list.revision > Revision(0) {
        meta["resourceVersion"] = list.revision.to_string().into();
    }
    if let Some(next) = &list.r#continue {
        meta["continue"] = next.as_str().into();
    }
    if let Some(remaining) = list.remaining {
        meta["remainingItemCount"] = remaining.into();
    }
    meta
}

/// A list as JSON, made as the connection takes it: memory does not grow with the result.
struct ListChunks {
    writer: Writer,
    items: Items,
    /// Written before the first item.
    head: Option<Bytes>,
    /// Made already, and handed out next.
    pending: Option<Bytes>,
    first: bool,
    ended: bool,
}

impl ListChunks {
    fn new(writer: Writer, list: List) -> Self {
        let meta = metadata(&list);
        let mut head = BytesMut::new();
        writer.list_head(&meta, &mut head);
        Self { writer, items: list.items, head: Some(head.freeze()), pending: None, first: true, ended: false }
    }

    fn next(&mut self) -> Option<Bytes> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        if self.ended {
            return None;
        }
        let mut out = BytesMut::with_capacity(CHUNK_BYTES + (8 << 10));
        if let Some(head) = self.head.take() {
            out.put_slice(&head);
        }
        let (writer, first) = (&self.writer, &mut self.first);
        let more = self.items.each(|entry| {
            if !std::mem::replace(first, false) {
                out.put_u8(b',');
            }
            writer.item(Encoded { api_version: &entry.api_version, body: &entry.body }, &mut out);
            out.len() < CHUNK_BYTES
        });
        if !more {
            self.writer.list_tail(&mut out);
            self.ended = true;
        }
        Some(out.freeze())
    }
}

impl Chunks for ListChunks {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Poll::Ready(self.next())
    }
}
