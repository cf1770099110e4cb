//! The OpenAPI documents: one per group and version (v3), and one of everything (v2).
//!
//! They are made from the catalogue whenever somebody asks, so they take no memory while nobody does. Only the tags of
//! the v3 documents are kept, for as long as the catalogue stays the same: clients keep documents by their tag and ask
//! for the index alone.

mod operations;
mod parameters;
mod schemas;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    header::{self, HeaderName, HeaderValue},
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::{
    body::Body,
    catalogue::{Served, Version},
};
use operations::Operations;
use schemas::Definitions;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V2,
    V3,
}

#[derive(Default)]
pub struct OpenApi {
    tags: Mutex<Tags>,
}

/// The tags of the v3 documents by their path below `/openapi/v3/`.
#[derive(Default)]
struct Tags {
    /// The catalogue they belong to. As long as this is held, no other one has its address.
    of: Weak<Served>,
    by_path: Arc<BTreeMap<String, String>>,
}

impl OpenApi {
    /// Answers `/openapi/…`; `None` for other paths and for versions that are not served.
    pub fn answer(
        &self,
        path: &str,
        query: &str,
        accept: &str,
        known: &str,
        served: &Arc<Served>,
    ) -> Option<Response<Body>> {
        let path = path.strip_prefix("/openapi/")?;
        if !takes_json(accept) {
            return Some(status(StatusCode::NOT_ACCEPTABLE));
        }
        match path {
            "v2" => Some(tagged(all(served), None, known)),
            "v3" => Some(tagged(bytes(&index(&self.tags(served))), None, known)),
            _ => self.version(path.strip_prefix("v3/")?, query, known, served),
        }
    }

    fn version(&self, path: &str, query: &str, known: &str, served: &Arc<Served>) -> Option<Response<Body>> {
        let (group, version) = find(served, path)?;
        let tags = self.tags(served);
        let tag = tags.get(path)?;
        let wanted = query.split('&').find_map(|pair| pair.strip_prefix("hash=")).unwrap_or_default();
        if !wanted.is_empty() && wanted != tag {
            let mut moved = status(StatusCode::MOVED_PERMANENTLY);
            set(&mut moved, header::LOCATION, &address(path, tag));
            return Some(moved);
        }
        let document = if known == quoted(tag) { Bytes::new() } else { bytes(&of_version(served, group, version)) };
        let mut answer = tagged(document, Some(tag), known);
        if !wanted.is_empty() {
            set(&mut answer, header::CACHE_CONTROL, "public, immutable");
        }
        Some(answer)
    }

    fn tags(&self, served: &Arc<Served>) -> Arc<BTreeMap<String, String>> {
        let mut tags = self.tags.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::ptr::eq(tags.of.as_ptr(), Arc::as_ptr(served)) {
            let by_path = versions(served).map(|(path, group, version)| {
                let document = bytes(&of_version(served, group, version));
                (path, hash(&document))
            });
            *tags = Tags { of: Arc::downgrade(served), by_path: Arc::new(by_path.collect()) };
        }
        tags.by_path.clone()
    }
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

fn find<'a>(served: &'a Served, path: &str) -> Option<(&'a str, &'a Version)> {
    versions(served).find(|(of, _, _)| of == path).map(|(_, group, version)| (group, version))
}

fn index(tags: &BTreeMap<String, String>) -> Value {
    let entry = |(path, tag): (&String, &String)| (path.clone(), json!({"serverRelativeURL": address(path, tag)}));
    json!({"paths": tags.iter().map(entry).collect::<serde_json::Map<_, _>>()})
}

fn address(path: &str, tag: &str) -> String {
    format!("/openapi/v3/{path}?hash={tag}")
}

/// The v3 document of one group and version.
fn of_version(served: &Served, group: &str, version: &Version) -> Value {
    let mut operations = Operations::new(Definitions::new(Dialect::V3, served));
    operations.add(group, version);
    let (paths, schemas) = operations.finish();
    let token = json!({
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"
    });
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"BearerToken": token}},
    })
}

/// The v2 document of everything.
fn all(served: &Served) -> Bytes {
    let mut operations = Operations::new(Definitions::new(Dialect::V2, served));
    for (_, group, version) in versions(served) {
        operations.add(group, version);
    }
    let (paths, definitions) = operations.finish();
    let token = json!({
        "description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"
    });
    bytes(&json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": token},
        "security": [{"BearerToken": []}],
    }))
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": api::schemas::KUBERNETES_VERSION})
}

/// A client that asks for protobuf alone gets nothing; one that takes JSON as well gets that.
fn takes_json(accept: &str) -> bool {
    let media = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
    accept.is_empty()
        || accept.split(',').map(media).any(|m| matches!(&*m, "application/json" | "application/*" | "*/*"))
}

fn bytes(document: &Value) -> Bytes {
    serde_json::to_vec(document).unwrap_or_default().into()
}

fn hash(document: &[u8]) -> String {
    digest(&SHA256, document).as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn quoted(tag: &str) -> String {
    format!("\"{tag}\"")
}

/// A document that is not sent again to a client that has it.
fn tagged(document: Bytes, tag: Option<&str>, known: &str) -> Response<Body> {
    let tag = quoted(&tag.map_or_else(|| hash(&document), str::to_owned));
    let mut answer = if tag == known { status(StatusCode::NOT_MODIFIED) } else { Response::new(Body::from(document)) };
    set(&mut answer, header::ETAG, &tag);
    set(&mut answer, header::CONTENT_TYPE, "application/json");
    set(&mut answer, header::VARY, "Accept");
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
