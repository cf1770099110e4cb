//! Bodies of requests: read within limits, and decoded whatever their form.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{HeaderMap, body::Body, header::CONTENT_TYPE};
use object_model::status::Status;

use crate::body::RequestBody;

/// The largest body of a request.
pub const MAX_BODY_BYTES: usize = 3 << 20;

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    Json,
    Yaml,
    Protobuf,
}

const KNOWN: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

impl MediaType {
    /// Without a Content-Type a body is JSON.
    pub fn of(headers: &HeaderMap) -> Result<Self, Status> {
        match content_type(headers) {
            "" | "application/json" => Ok(MediaType::Json),
            "application/yaml" => Ok(MediaType::Yaml),
            "application/vnd.kubernetes.protobuf" => Ok(MediaType::Protobuf),
            _ => Err(Status::unsupported_media_type(KNOWN)),
        }
    }
}

/// The media type of a request's body, without parameters.
pub fn content_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// How much of a refused body is taken, so that its sender gets to read why.
const DISCARD_BYTES: usize = 16 << 20;
const DISCARD_WITHIN: Duration = Duration::from_secs(1);

/// All of a body, unless it is too large.
pub async fn read(mut body: RequestBody) -> Result<Bytes, Status> {
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large(body));
    }
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::bad_request(format!("the body could not be read: {e}")))?;
        if let Ok(data) = frame.into_data() {
            if all.len() + data.len() > MAX_BODY_BYTES {
                return Err(too_large(body));
            }
            if all.is_empty() && body.is_end_stream() {
                return Ok(data);
            }
            all.extend_from_slice(&data);
        }
    }
    Ok(all.freeze())
}

/// Refuses a body. A connection that is closed on a sender loses the answer with it, so the rest is read and dropped.
fn too_large(mut body: RequestBody) -> Status {
    tokio::spawn(tokio::time::timeout(DISCARD_WITHIN, async move {
        let mut taken = 0;
        while let (true, Some(Ok(frame))) = (taken < DISCARD_BYTES, body.frame().await) {
            taken += frame.data_ref().map_or(0, Bytes::len);
        }
    }));
    Status::request_entity_too_large(format!("limit is {MAX_BODY_BYTES}"))
}
