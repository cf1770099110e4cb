//! Everything that is not a resource: discovery, OpenAPI, health, metrics, version.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{
    Request, Response, StatusCode,
    header::{self, HeaderValue},
};
use object_model::status::Status;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{plain, respond};
use crate::{
    Server,
    body::{Body, RequestBody},
    catalogue::Served,
    discovery,
    filters::compression,
    health,
    negotiation::{Content, Encoding, Negotiated},
    openapi::Asked,
    request_info::RequestInfo,
};

pub async fn handle(
    server: &Arc<Server>,
    info: &RequestInfo,
    request: Request<RequestBody>,
) -> Result<Response<Body>, Status> {
    if !matches!(info.verb, "get" | "head") {
        return Ok(plain(StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed\n"));
    }
    let (request, _) = request.into_parts();
    let query = request.uri.query().unwrap_or_default();
    let text = |name: header::HeaderName| request.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let (accept, known) = (text(header::ACCEPT), text(header::IF_NONE_MATCH));
    let path = info.path.trim_end_matches('/');
    if health::is_asked_by(path) {
        let store = server.check_store().await;
        let answer = server.health.answer(path, query, store);
        return Ok(answer.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "404 page not found\n")));
    }
    if path.starts_with("/openapi/") {
        let gzip = compression::accepted(&request.headers);
        let [path, query, accept, known] = [path, query, accept, known].map(str::to_owned);
        return openapi(server.clone(), Asked { path, query, accept, known, gzip }).await;
    }
    if let Some(text) = server.fairness.debug(path, query) {
        return Ok(plain(StatusCode::OK, &text));
    }
    match path {
        "/version" => Ok(json_answer(&version())),
        "/.well-known/openid-configuration" => {
            Ok(cached("application/json", &server.authentication.service_accounts.discovery(&server.address)))
        }
        "/openid/v1/jwks" => {
            Ok(cached("application/jwk-set+json", &server.authentication.service_accounts.keys.to_jwks()))
        }
        "/metrics" => Ok(metrics(server)),
        "" => Ok(json_answer(&root_paths(&server.catalogue.served()))),
        _ => match discovery(server, path, accept, known) {
            Some(answer) => answer,
            None => Ok(plain(StatusCode::NOT_FOUND, "404 page not found\n")),
        },
    }
}

/// Documents take long to make, and much memory: elsewhere, so that others are served meanwhile, and a few at a time, also of
/// those whose clients have gone.
async fn openapi(server: Arc<Server>, asked: Asked) -> Result<Response<Body>, Status> {
    static MAKERS: Semaphore = Semaphore::const_new(2);
    let turn = MAKERS.acquire().await.map_err(Status::internal)?;
    let made = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        server.openapi.answer(&asked, &server.catalogue.served())
    });
    let made = made.await.map_err(Status::internal)?;
    Ok(made.unwrap_or_else(|| plain(StatusCode::NOT_FOUND, "404 page not found\n")))
}

/// `None` where nothing is served.
fn discovery(server: &Arc<Server>, path: &str, accept: &str, known: &str) -> Option<Result<Response<Body>, Status>> {
    let served = server.catalogue.served();
    if let ("/api" | "/apis", Some(version)) = (path, aggregated_version(accept)) {
        let document = discovery::aggregated(&served, path == "/api", version);
        let media = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
        return Some(Ok(tagged(&document, &media, known)));
    }
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let document = match parts.as_slice() {
        ["api"] => discovery::core_versions(&server.address),
        ["apis"] => discovery::groups(&served),
        ["apis", group] => discovery::group(served.group(group)?),
        ["api", version] => discovery::resources("", served.version("", version)?),
        ["apis", group, version] => discovery::resources(group, served.version(group, version)?),
        _ => return None,
    };
    let form = Negotiated::read(Some(accept), Content::BuiltIn);
    Some(form.map(|form| respond::answer(StatusCode::OK, form.encoding, document.to_string().into())))
}

/// Which version of the aggregated document a client asks for, if it does.
fn aggregated_version(accept: &str) -> Option<&'static str> {
    accept.split(',').find_map(|clause| {
        let parts: Vec<&str> = clause.split(';').map(str::trim).collect();
        let has = |part: &str| parts.contains(&part);
        if !has("as=APIGroupDiscoveryList") || !has("g=apidiscovery.k8s.io") || parts[0] != "application/json" {
            return None;
        }
        ["v2", "v2beta1"].into_iter().find(|v| has(&format!("v={v}")))
    })
}

/// A document with a tag, which is not sent again to a client that has it.
fn tagged(document: &Value, media: &str, known: &str) -> Response<Body> {
    let bytes = serde_json::to_vec(document).unwrap_or_default();
    let tag: String = digest(&SHA256, &bytes).as_ref().iter().map(|b| format!("{b:02X}")).collect();
    let tag = format!("\"{tag}\"");
    let mut response = Response::new(if tag == known { Body::Empty } else { Body::from(bytes) });
    if tag == known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in [(header::ETAG, tag.as_str()), (header::CONTENT_TYPE, media)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}

/// A document about the tokens of service accounts, which others may keep for an hour.
fn cached(media: &'static str, document: &Value) -> Response<Body> {
    let mut response = json_answer(document);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

fn json_answer(value: &Value) -> Response<Body> {
    respond::answer(StatusCode::OK, Encoding::Json, Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

fn version() -> Value {
    let full = api::schemas::KUBERNETES_VERSION;
    let mut numbers = full.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next(),
        "minor": numbers.next(),
        "gitVersion": format!("{full}+ferry{}", env!("CARGO_PKG_VERSION")),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("linux/{}", if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }),
    })
}

fn metrics(server: &Arc<Server>) -> Response<Body> {
    let served = server.catalogue.served();
    let counts = served.resources().filter(|r| !r.is_asked()).map(|r| {
        let name = if r.group.is_empty() { r.plural.to_string() } else { format!("{}.{}", r.plural, r.group) };
        (name, r.cache.snapshot().objects.len())
    });
    let mut text = server.metrics.text(counts);
    if let Some(audit) = &server.audit {
        audit.write_metrics(&mut text);
    }
    server.fairness.write_metrics(&mut text);
    let mut response = plain(StatusCode::OK, &text);
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// `/`: every path there is.
fn root_paths(served: &Served) -> Value {
    let mut paths =
        vec!["/.well-known/openid-configuration".to_owned(), "/api".into(), "/api/v1".into(), "/apis".into()];
    for group in served.groups.iter().filter(|g| !g.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{}", group.name, v.name)));
    }
    paths.extend(
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/openid/v1/jwks", "/readyz", "/version"]
            .map(String::from),
    );
    json!({"paths": paths})
}
