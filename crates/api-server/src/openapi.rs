//! The OpenAPI documents: one per group and version (v3), and one of everything (v2), as JSON and as protobuf.
//!
//! They are made from the catalogue when somebody asks, and kept compressed from then on, which is how most clients take
//! them. When the catalogue changes, the documents of the versions that are still the same stay. What clients have
//! already, they know by its tag.

mod descriptions;
mod gnostic;
mod operations;
mod parameters;
mod schemas;
#[cfg(test)]
mod tests;

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    io::{Read, Write},
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use hyper::{
    Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::{
    body::Body,
    catalogue::{Resource, Served, Version},
    negotiation,
};
use descriptions::Descriptions;
use operations::Operations;
use schemas::Definitions;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

/// What a client asks for, and what it can take.
#[derive(Default)]
pub struct Asked {
    pub path: String,
    pub query: String,
    pub accept: String,
    pub gzip: bool,
    /// The tag of what the client has.
    pub known: String,
}

#[derive(Default)]
pub struct OpenApi {
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// The catalogue that the v3 documents belong to. As long as this is held, no other one has its address.
    of: Weak<Served>,
    /// The v3 documents by their path below `/openapi/v3/`.
    versions: Arc<BTreeMap<String, Document>>,
    /// The v2 document, and its catalogue.
    everything: Option<(Weak<Served>, Document)>,
}

#[derive(Clone)]
struct Document {
    tag: Arc<str>,
    gzip: Bytes,
    /// Compressed, too, from when it was first asked for.
    protobuf: Arc<OnceLock<Bytes>>,
    /// What it was made from.
    of: Arc<[Weak<Resource>]>,
}

impl OpenApi {
    /// Answers `/openapi/…`; `None` for other paths and for versions that are not served. May take long.
    pub fn answer(&self, asked: &Asked, served: &Arc<Served>) -> Option<Response<Body>> {
        match asked.path.strip_prefix("/openapi/")? {
            "v2" => {
                let Some(form) = form(&asked.accept, Dialect::V2) else {
                    return Some(status(StatusCode::NOT_ACCEPTABLE));
                };
                Some(self.everything(served).answer(form, Dialect::V2, asked))
            }
            "v3" => {
                let index = index(&self.versions(served)).to_string();
                let mut answer = tagged(Bytes::from(index.clone()), &hash(index.as_bytes()), &asked.known);
                set(&mut answer, header::CONTENT_TYPE, "application/json");
                Some(answer)
            }
            path => self.version(path.strip_prefix("v3/")?, asked, served),
        }
    }

    fn version(&self, path: &str, asked: &Asked, served: &Arc<Served>) -> Option<Response<Body>> {
        let document = self.versions(served).get(path)?.clone();
        let Some(form) = form(&asked.accept, Dialect::V3) else { return Some(status(StatusCode::NOT_ACCEPTABLE)) };
        let wanted = asked.query.split('&').find_map(|pair| pair.strip_prefix("hash=")).unwrap_or_default();
        if !wanted.is_empty() && *wanted != *document.tag {
            let mut moved = status(StatusCode::MOVED_PERMANENTLY);
            set(&mut moved, header::LOCATION, &address(path, &document.tag));
            return Some(moved);
        }
        let mut answer = document.answer(form, Dialect::V3, asked);
        if !wanted.is_empty() {
            set(&mut answer, header::CACHE_CONTROL, "public, immutable");
        }
        Some(answer)
    }

    fn versions(&self, served: &Arc<Served>) -> Arc<BTreeMap<String, Document>> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(made.of.as_ptr(), Arc::as_ptr(served)) {
            let texts = OnceCell::new();
            let documents = versions(served).map(|(path, group, version)| {
                let kept = made.versions.get(&path).filter(|document| document.is_of(version)).cloned();
                let document = kept.unwrap_or_else(|| {
                    let document = of_version(served, texts.get_or_init(Descriptions::read), group, version);
                    Document::new(&document, version.resources.values())
                });
                (path, document)
            });
            let documents = Arc::new(documents.collect());
            made.of = Arc::downgrade(served);
            made.versions = documents;
        }
        made.versions.clone()
    }

    fn everything(&self, served: &Arc<Served>) -> Document {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match &made.everything {
            Some((of, document)) if std::ptr::eq(of.as_ptr(), Arc::as_ptr(served)) => document.clone(),
            _ => {
                let document = Document::new(&all(served, &Descriptions::read()), std::iter::empty());
                made.everything = Some((Arc::downgrade(served), document.clone()));
                document
            }
        }
    }
}

impl Document {
    fn new<'a>(document: &Value, of: impl Iterator<Item = &'a Arc<Resource>>) -> Self {
        let json = serde_json::to_vec(document).unwrap_or_default();
        Self {
            tag: hash(&json).into(),
            gzip: compressed(&json),
            protobuf: Arc::default(),
            of: of.map(Arc::downgrade).collect(),
        }
    }

    fn is_of(&self, version: &Version) -> bool {
        let same =
            |(weak, resource): (&Weak<Resource>, &Arc<Resource>)| std::ptr::eq(weak.as_ptr(), Arc::as_ptr(resource));
        self.of.len() == version.resources.len() && self.of.iter().zip(version.resources.values()).all(same)
    }

    fn protobuf(&self, dialect: Dialect) -> &Bytes {
        self.protobuf.get_or_init(|| {
            let document: Value = serde_json::from_slice(&plain(&self.gzip)).unwrap_or_default();
            compressed(&gnostic::write(dialect, &document))
        })
    }

    fn answer(&self, form: Form, dialect: Dialect, asked: &Asked) -> Response<Body> {
        let has_it = asked.known == quoted(&self.tag);
        let body = match form {
            _ if has_it => Bytes::new(),
            Form::Json if asked.gzip => self.gzip.clone(),
            Form::Json => plain(&self.gzip).into(),
            Form::Protobuf => plain(self.protobuf(dialect)).into(),
        };
        let mut answer = tagged(body, &self.tag, &asked.known);
        if form == Form::Json && asked.gzip && !has_it {
            set(&mut answer, header::CONTENT_ENCODING, "gzip");
        }
        set(
            &mut answer,
            header::CONTENT_TYPE,
            if form == Form::Json { "application/json" } else { dialect.media_type() },
        );
        set(&mut answer, header::VARY, "Accept, Accept-Encoding");
        answer
    }
}

fn compressed(text: &[u8]) -> Bytes {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory cannot fail.
    let _ = gzip.write_all(text);
    gzip.finish().unwrap_or_default().into()
}

/// What was compressed here.
fn plain(gzip: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let _ = GzDecoder::new(gzip).read_to_end(&mut text);
    text
}

impl Dialect {
    /// Of documents in protobuf.
    fn media_type(self) -> &'static str {
        match self {
            Dialect::V2 => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
            Dialect::V3 => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        }
    }
}

/// The form a client likes best; `None` if it takes neither.
fn form(accept: &str, dialect: Dialect) -> Option<Form> {
    let accept = if accept.trim().is_empty() { "*/*" } else { accept };
    let media = dialect.media_type();
    negotiation::preferences(accept).find_map(|clause| match clause {
        "application/json" | "application/*" | "*/*" => Some(Form::Json),
        // An `@` stood in the name before.
        other if other == media || other.replace('@', ".") == media => Some(Form::Protobuf),
        _ => None,
    })
}

/// Path, group and version of every v3 document.
fn versions(served: &Served) -> impl Iterator<Item = (String, &str, &Version)> {
    served.groups.iter().flat_map(|group| {
        group.versions.iter().map(move |version| {
            let path = match &*group.name {
                "" => format!("api/{}", version.name),
                name => format!("apis/{name}/{}", version.name),
            };
            (path, &*group.name, version)
        })
    })
}

fn index(documents: &BTreeMap<String, Document>) -> Value {
    let entry = |(path, document): (&String, &Document)| {
        (path.clone(), json!({"serverRelativeURL": address(path, &document.tag)}))
    };
    json!({"paths": documents.iter().map(entry).collect::<serde_json::Map<_, _>>()})
}

fn address(path: &str, tag: &str) -> String {
    format!("/openapi/v3/{path}?hash={tag}")
}

/// The v3 document of one group and version.
fn of_version(served: &Served, texts: &Descriptions, group: &str, version: &Version) -> Value {
    let mut operations = Operations::new(Definitions::new(Dialect::V3, served, texts));
    operations.add(group, version);
    let (paths, schemas) = operations.finish();
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"BearerToken": token()}},
    })
}

/// The v2 document of everything.
fn all(served: &Served, texts: &Descriptions) -> Value {
    let mut operations = Operations::new(Definitions::new(Dialect::V2, served, texts));
    for (_, group, version) in versions(served) {
        operations.add(group, version);
    }
    let (paths, definitions) = operations.finish();
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": token()},
        "security": [{"BearerToken": []}],
    })
}

fn token() -> Value {
    json!({"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"})
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": api::schemas::KUBERNETES_VERSION})
}

fn hash(document: &[u8]) -> String {
    digest(&SHA256, document).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

/// A document that is not sent again to a client that has it.
fn tagged(document: Bytes, tag: &str, known: &str) -> Response<Body> {
    let tag = quoted(tag);
    let mut answer = if tag == known { status(StatusCode::NOT_MODIFIED) } else { Response::new(Body::from(document)) };
    set(&mut answer, header::ETAG, &tag);
    answer
}

fn status(code: StatusCode) -> Response<Body> {
    let mut answer = Response::new(Body::Empty);
    *answer.status_mut() = code;
    answer
}

fn set(answer: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}
