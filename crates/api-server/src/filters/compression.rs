//! Large answers are compressed for clients that can read them so.

use std::{
    io::Write,
    task::{Context, Poll},
};

use bytes::{BufMut, Bytes, BytesMut, buf::Writer};
use flate2::{Compression, write::GzEncoder};
use hyper::{
    HeaderMap, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, VARY},
};

use crate::body::{Body, Chunks};

/// Below this, compressing costs more than it saves.
const MIN_BYTES: usize = 128 << 10;

pub fn accepted(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT_ENCODING).iter().filter_map(|v| v.to_str().ok()).any(|v| {
        v.split(',').any(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            parts.next() == Some("gzip") && !parts.any(|p| p == "q=0")
        })
    })
}

/// Compresses the answer if it is worth it. Watches are never compressed: their events must not wait for each other.
pub fn compress(mut response: Response<Body>) -> Response<Body> {
    let worth = match response.body() {
        Body::Full(bytes) => bytes.len() >= MIN_BYTES,
        Body::List(_) => true,
        _ => false,
    };
    if !worth || response.headers().contains_key(CONTENT_ENCODING) || !response.headers().contains_key(CONTENT_TYPE) {
        return response;
    }
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    response.headers_mut().remove(CONTENT_LENGTH);
    response.map(|body| {
        let encoder = GzEncoder::new(BytesMut::new().writer(), Compression::fast());
        Body::Chunks(Box::new(Gzip { body, encoder: Some(encoder) }))
    })
}

struct Gzip {
    body: Body,
    encoder: Option<GzEncoder<Writer<BytesMut>>>,
}

impl Chunks for Gzip {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            let chunk = match self.body.poll_bytes(cx) {
                Poll::Ready(chunk) => chunk,
                Poll::Pending => return Poll::Pending,
            };
            // Writing to memory cannot fail.
            match chunk {
                Some(chunk) => {
                    let _ = encoder.write_all(&chunk);
                    let out = encoder.get_mut().get_mut().split();
                    if !out.is_empty() {
                        return Poll::Ready(Some(out.freeze()));
                    }
                }
                None => {
                    let rest = self.encoder.take().and_then(|e| e.finish().ok()).map(|w| w.into_inner().freeze());
                    return Poll::Ready(rest.filter(|r| !r.is_empty()));
                }
            }
        }
    }

    fn is_derived(&self) -> bool {
        true
    }
}
