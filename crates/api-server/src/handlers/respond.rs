//! How objects are written into answers: whole, as items, as events, as views. Everything is JSON first; protobuf is made of
//! it by [`super::messages`].
//!
//! An object in the version it is stored in is copied from the cache's bytes; only other versions and views are made
//! anew.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::{Response, StatusCode, header};
use object_model::{codec::yaml, status::Status};
use serde_json::{Value, json};
use storage::Revision;

use super::messages;
use crate::{
    body::Body,
    catalogue::Resource,
    clock::Clock,
    conversion,
    negotiation::{Content, Encoding, Negotiated, View},
    watch_cache::write_header,
};

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// An object's bytes as the cache or a write has them.
#[derive(Clone, Copy)]
pub struct Encoded<'a> {
    pub api_version: &'a str,
    pub body: &'a [u8],
}

/// Writes objects of one resource in the form that a client asked for.
#[derive(Clone)]
pub struct Writer {
    resource: Arc<Resource>,
    api_version: Box<str>,
    form: Negotiated,
    include: Include,
    /// Ages are as of the moment when they are told, which for a watch may be much later than the request.
    clock: Arc<dyn Clock>,
    /// Columns have been told in this stream already.
    columns_told: bool,
}

/// How much of each object stands in a table's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Writer {
    pub fn new(resource: Arc<Resource>, form: Negotiated, include: Include, clock: Arc<dyn Clock>) -> Self {
        let api_version = resource.api_version().into();
        Self { resource, api_version, form, include, clock, columns_told: false }
    }

    pub fn encoding(&self) -> Encoding {
        self.form.encoding
    }

    /// The whole object, in its view, as JSON.
    pub fn object(&self, object: Encoded<'_>, out: &mut BytesMut) {
        match self.form.view {
            View::Object => self.plain(object, true, out),
            View::Metadata(version) => partial(version, object, out),
            View::Table(version) => {
                self.table_head(version, &json!({"resourceVersion": revision_of(object)}), true, out);
                self.row(object, out);
                out.put_slice(b"]}");
            }
        }
    }

    /// What stands before the items of a list; `meta` is its metadata.
    pub fn list_head(&self, meta: &Value, out: &mut BytesMut) {
        let (api_version, kind) = self.list_kind();
        if let View::Table(version) = self.form.view {
            return self.table_head(version, meta, true, out);
        }
        write_header(kind, &api_version, out);
        out.put_slice(br#""metadata":"#);
        put_json(meta, out);
        out.put_slice(br#","items":["#);
    }

    /// The version and kind of lists.
    pub fn list_kind(&self) -> (String, &str) {
        match self.form.view {
            View::Table(version) => (format!("meta.k8s.io/{version}"), "Table"),
            View::Metadata(version) => (format!("meta.k8s.io/{version}"), "PartialObjectMetadataList"),
            View::Object => (self.api_version.to_string(), &self.resource.list_kind),
        }
    }

    /// One item of a list.
    pub fn item(&self, object: Encoded<'_>, out: &mut BytesMut) {
        match self.form.view {
            View::Object => self.plain(object, self.resource.custom, out),
            View::Metadata(version) => partial(version, object, out),
            View::Table(_) => self.row(object, out),
        }
    }

    pub fn list_tail(&self, out: &mut BytesMut) {
        out.put_slice(b"]}");
    }

    /// One event of a watch.
    pub fn event(&mut self, kind: &str, object: Encoded<'_>, out: &mut BytesMut) {
        let first = !std::mem::replace(&mut self.columns_told, true);
        self.tell(kind, out, |out| match self.form.view {
            View::Table(version) => {
                self.table_head(version, &json!({"resourceVersion": revision_of(object)}), first, out);
                self.row(object, out);
                out.put_slice(b"]}");
            }
            _ => self.object(object, out),
        });
    }

    /// A bookmark: everything up to this revision has been told.
    pub fn bookmark(&self, revision: Revision, ends_initial: bool, out: &mut BytesMut) {
        let mut meta = json!({"resourceVersion": revision.to_string()});
        if ends_initial {
            meta["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        let (kind, api_version) = match self.form.view {
            View::Object => (self.resource.kind.to_string(), self.api_version.to_string()),
            View::Metadata(version) => ("PartialObjectMetadata".into(), format!("meta.k8s.io/{version}")),
            View::Table(version) => ("Table".into(), format!("meta.k8s.io/{version}")),
        };
        let object = match self.form.view {
            View::Table(_) => {
                json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": revision.to_string()},
                "columnDefinitions": [], "rows": []})
            }
            _ => json!({"kind": kind, "apiVersion": api_version, "metadata": meta}),
        };
        self.tell("BOOKMARK", out, |out| put_json(&object, out));
    }

    /// An error, as the last event of a watch.
    pub fn error(&self, status: &Status, out: &mut BytesMut) {
        self.tell("ERROR", out, |out| put_json(status, out));
    }

    /// An event about an object that `write` writes as JSON: a line, or a frame.
    fn tell(&self, kind: &str, out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
        if self.form.encoding == Encoding::Protobuf {
            let mut text = BytesMut::new();
            write(&mut text);
            return messages::put_event(kind, &text, out);
        }
        out.put_slice(br#"{"type":""#);
        out.put_slice(kind.as_bytes());
        out.put_slice(br#"","object":"#);
        write(out);
        out.put_slice(b"}\n");
    }

    fn plain(&self, object: Encoded<'_>, with_header: bool, out: &mut BytesMut) {
        if *object.api_version != *self.api_version {
            let mut value = object.value(&self.resource.kind);
            conversion::convert(&mut value, &self.api_version);
            if let (false, Some(fields)) = (with_header, value.as_object_mut()) {
                fields.remove("apiVersion");
                fields.remove("kind");
            }
            return put_json(&value, out);
        }
        if with_header {
            write_header(&self.resource.kind, object.api_version, out);
        } else {
            out.put_u8(b'{');
        }
        out.put_slice(object.body);
    }

    fn table_head(&self, version: &str, meta: &Value, with_columns: bool, out: &mut BytesMut) {
        write_header("Table", &format!("meta.k8s.io/{version}"), out);
        out.put_slice(br#""metadata":"#);
        put_json(meta, out);
        out.put_slice(br#","columnDefinitions":"#);
        let columns = if with_columns { self.resource.columns.definitions() } else { json!([]) };
        put_json(&columns, out);
        out.put_slice(br#","rows":["#);
    }

    fn row(&self, object: Encoded<'_>, out: &mut BytesMut) {
        // Columns are about the stored version, whichever one is asked for.
        let mut value = object.value(&self.resource.kind);
        out.put_slice(br#"{"cells":"#);
        put_json(&Value::Array((self.resource.columns.cells)(&value, self.clock.seconds())), out);
        if let Some(conditions) = (self.resource.columns.conditions)(&value) {
            out.put_slice(br#","conditions":"#);
            put_json(&conditions, out);
        }
        match self.include {
            Include::None => {}
            Include::Metadata => {
                out.put_slice(br#","object":"#);
                partial("v1", object, out);
            }
            Include::Object => {
                out.put_slice(br#","object":"#);
                conversion::convert(&mut value, &self.api_version);
                put_json(&value, out);
            }
        }
        out.put_u8(b'}');
    }
}

impl Encoded<'_> {
    /// The object as a value.
    pub fn value(&self, kind: &str) -> Value {
        let mut text = BytesMut::with_capacity(self.body.len() + 96);
        write_header(kind, self.api_version, &mut text);
        text.put_slice(self.body);
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// `PartialObjectMetadata`: the body up to the end of its metadata.
fn partial(version: &str, object: Encoded<'_>, out: &mut BytesMut) {
    write_header("PartialObjectMetadata", &format!("meta.k8s.io/{version}"), out);
    out.put_slice(&object.body[..metadata_end(object.body)]);
    out.put_u8(b'}');
}

/// Where the first object in a body, its metadata, ends.
fn metadata_end(body: &[u8]) -> usize {
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    for (i, byte) in body.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'{' if !in_text => depth += 1,
            b'}' if !in_text => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    body.len()
}

/// The resourceVersion in a body, where there is one.
fn revision_of(object: Encoded<'_>) -> String {
    let from = br#""metadata":{"resourceVersion":""#.len();
    let digits = object.body.get(from..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit());
    digits.map(|b| char::from(*b)).collect()
}

fn put_json(value: &impl serde::Serialize, out: &mut BytesMut) {
    // Writing to memory cannot fail, and keys are always text.
    let _ = serde_json::to_writer(out.writer(), value);
}

/// An answer with an object, given as JSON, in the encoding that was asked for.
pub fn answer(code: StatusCode, encoding: Encoding, json: Bytes) -> Response<Body> {
    let body = match encoding {
        Encoding::Json => json,
        Encoding::Yaml => {
            let value: Value = serde_json::from_slice(&json).unwrap_or_default();
            yaml::write(&value).into()
        }
        Encoding::Protobuf => match messages::object(&json) {
            Ok(message) => message.into(),
            Err(error) => return status(&Status::internal(error)),
        },
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(encoding.media_type()));
    response
}

/// Marks an answer that is a `Status` as JSON, which may be told in whatever form the client reads.
#[derive(Clone, Copy)]
struct InAnyForm;

/// A `Status` in the form that the client asked for. Any other answer is left as it is.
pub fn settle_status(accept: Option<&str>, mut response: Response<Body>) -> Response<Body> {
    if response.extensions_mut().remove::<InAnyForm>().is_none() {
        return response;
    }
    let encoding = Negotiated::read(accept, Content::BuiltIn).unwrap_or_default().encoding;
    let (mut head, body) = response.into_parts();
    match body {
        Body::Full(json) if encoding != Encoding::Json => {
            let told = answer(head.status, encoding, json);
            head.headers.extend(told.headers().clone());
            Response::from_parts(head, told.into_body())
        }
        body => Response::from_parts(head, body),
    }
}

/// An error or a success without an object.
pub fn status(status: &Status) -> Response<Body> {
    // Kubernetes leaves the code out of a success.
    let code = match (&*status.status, u16::try_from(status.code).ok().and_then(|c| StatusCode::from_u16(c).ok())) {
        ("Success", None) => StatusCode::OK,
        (_, code) => code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let mut response = answer(code, Encoding::Json, serde_json::to_vec(status).unwrap_or_default().into());
    if let Some(seconds) = status.details.as_ref().map(|d| d.retry_after_seconds).filter(|s| *s > 0) {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response.extensions_mut().insert(InAnyForm);
    response
}

/// The answer to HEAD: what the answer to GET says of itself, without its body.
pub fn head_only(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Body::Full(bytes) = body {
        head.headers.insert(header::CONTENT_LENGTH, bytes.len().into());
    }
    Response::from_parts(head, Body::Empty)
}

/// Which form a request asked for, and how much of it in tables.
pub fn negotiate(
    accept: Option<&str>,
    include: Option<&str>,
    content: Content,
) -> Result<(Negotiated, Include), Status> {
    let include = match include {
        None | Some("" | "Metadata") => Include::Metadata,
        Some("None") => Include::None,
        Some("Object") => Include::Object,
        Some(other) => {
            return Err(Status::bad_request(format!("unrecognized includeObject value: {other:?}")));
        }
    };
    Ok((Negotiated::read(accept, content)?, include))
}
