//! HTTP to pods, services and nodes, through this server.
//!
//! A request goes on with its method, path, query, headers and body; the answer comes back with links that would lead past
//! the proxy turned into links through it. Upgrades pass as they are.

mod html;
mod links;
mod location;

use std::io::Read;

use bytes::{Bytes, BytesMut};
use flate2::read::{DeflateDecoder, GzDecoder};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{self, HeaderName, HeaderValue},
};
use links::Links;
use object_model::status::Status;
use streaming::upgrade;

use super::{
    connection::{Place, passed_on},
    tunnel,
};
use crate::{
    body::{Body, Chunks, RequestBody},
    handlers::Call,
};

/// Pages up to this size have their links changed; larger ones are passed on as they are.
const PAGE_BYTES: usize = 8 << 20;

const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
/// Headers that are about one connection only.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
/// What a server says about itself to browsers is not what this server says.
const CORS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

pub async fn handle(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let place = location::find(call).await?;
    let path = location::path(&call.info.path, &call.info.rest);
    let host = host_of(&request).unwrap_or_else(|| place.authority());
    if upgrade::is_asked(request.headers()) {
        let uri = with_query(if path.is_empty() { "/" } else { &path }, &call.query)?;
        return tunnel::pass(call, &place, request, uri, &host).await;
    }
    if path.is_empty() && matches!(*request.method(), Method::GET | Method::HEAD) {
        return to_root(call);
    }
    let uri = with_query(if path.is_empty() { "/" } else { &path }, &call.query)?;
    let links = Links {
        place: place.authority(),
        host: host.clone(),
        prefix: call.info.path.strip_suffix(path.as_str()).unwrap_or(&call.info.path).to_owned(),
    };
    let head = request.method() == Method::HEAD;
    let response = place
        .send(next(request, uri, &host, &call.info.path)?)
        .await
        .map_err(|error| Status::service_unavailable(format!("error trying to reach service: {error}")))?;
    answer(call, response, &links, head).await
}

/// A page and what it refers to must be in the same folder for relative links to work.
fn to_root(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let query = if call.query.is_empty() { String::new() } else { format!("?{}", call.query) };
    let location = HeaderValue::from_str(&format!("{}/{query}", call.info.path));
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(header::LOCATION, location.map_err(|e| Status::bad_request(e.to_string()))?);
    Ok(response)
}

/// The host that the client named, wherever its version of HTTP has it.
fn host_of(request: &Request<RequestBody>) -> Option<String> {
    let named = request.headers().get(header::HOST).and_then(|v| v.to_str().ok());
    named.or(request.uri().authority().map(|a| a.as_str())).map(str::to_owned)
}

fn with_query(path: &str, query: &str) -> Result<Uri, Status> {
    let text = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    text.parse().map_err(|e: hyper::http::uri::InvalidUri| Status::bad_request(e.to_string()))
}

fn next(request: Request<RequestBody>, uri: Uri, host: &str, asked: &str) -> Result<Request<RequestBody>, Status> {
    let mut headers = passed_on(&request);
    one_hop(&mut headers);
    tunnel::set_host(&mut headers, host)?;
    if let Ok(value) = HeaderValue::from_str(asked) {
        headers.insert(FORWARDED_URI, value);
    }
    let (head, body) = request.into_parts();
    let mut next = Request::new(body);
    *next.method_mut() = head.method;
    *next.uri_mut() = uri;
    *next.headers_mut() = headers;
    Ok(next)
}

/// Removes what is about one connection only, and what `Connection` says is.
fn one_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = upgrade::list(headers, &header::CONNECTION).filter_map(|n| n.parse().ok()).collect();
    for name in HOP_BY_HOP.into_iter().chain(named) {
        headers.remove(name);
    }
}

async fn answer(
    call: &Call<'_>,
    response: Response<Incoming>,
    links: &Links,
    head: bool,
) -> Result<Response<Body>, Status> {
    let mut response = response;
    one_hop(response.headers_mut());
    for name in CORS {
        response.headers_mut().remove(name);
    }
    let text = |headers: &HeaderMap, name| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    if let Some(location) = text(response.headers(), header::LOCATION).filter(|l| !l.is_empty()) {
        let changed = HeaderValue::from_str(&links.changed(&location)).map_err(Status::internal)?;
        response.headers_mut().insert(header::LOCATION, changed);
        return Ok(tunnel::passed(call, response));
    }
    let kind = text(response.headers(), header::CONTENT_TYPE).unwrap_or_default();
    let encoding = text(response.headers(), header::CONTENT_ENCODING).unwrap_or_default();
    let readable = matches!(encoding.as_str(), "" | "gzip" | "deflate");
    if head || !readable || kind.split(';').next().unwrap_or_default().trim() != "text/html" {
        return Ok(tunnel::passed(call, response));
    }
    page(call, response, links, &encoding).await
}

/// A page, with its links changed unless it is too large.
async fn page(
    call: &Call<'_>,
    response: Response<Incoming>,
    links: &Links,
    encoding: &str,
) -> Result<Response<Body>, Status> {
    let (mut head, mut body) = response.into_parts();
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Status::service_unavailable(format!("error trying to reach service: {e}")))?;
        if let Ok(data) = frame.into_data() {
            read.extend_from_slice(&data);
        }
        if read.len() > PAGE_BYTES {
            let rest = tunnel::passed(call, Response::new(body)).into_body();
            return Ok(Response::from_parts(head, Body::Chunks(Box::new(Then { first: Some(read.freeze()), rest }))));
        }
    }
    let read = read.freeze();
    let Some(plain) = unpacked(&read, encoding) else { return Ok(Response::from_parts(head, Body::from(read))) };
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.remove(header::CONTENT_ENCODING);
    Ok(Response::from_parts(head, Body::from(html::rewrite(&plain, |link| links.changed(link)))))
}

/// The page without its compression; `None` if that is broken or it is too large.
fn unpacked(packed: &Bytes, encoding: &str) -> Option<Bytes> {
    let mut plain = Vec::new();
    let limit = PAGE_BYTES as u64 + 1;
    match encoding {
        "gzip" => GzDecoder::new(&**packed).take(limit).read_to_end(&mut plain).ok()?,
        "deflate" => DeflateDecoder::new(&**packed).take(limit).read_to_end(&mut plain).ok()?,
        _ => return Some(packed.clone()),
    };
    (plain.len() <= PAGE_BYTES).then(|| plain.into())
}

/// What was read of a body, and then the rest of it.
struct Then {
    first: Option<Bytes>,
    rest: Body,
}

impl Chunks for Then {
    fn poll_chunk(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Bytes>> {
        match self.first.take() {
            Some(first) => std::task::Poll::Ready(Some(first)),
            None => self.rest.poll_bytes(cx),
        }
    }

    fn is_derived(&self) -> bool {
        true
    }
}

/// An address that may be proxied to: not this machine's own, nor its neighbours'.
fn is_allowed(address: std::net::IpAddr) -> bool {
    let local = match address.to_canonical() {
        std::net::IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let address = address.to_canonical();
    !(local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// A place that is not an agent.
fn outside(call: &Call<'_>, scheme: &str, host: &str, port: u16) -> Result<Place, Status> {
    let tls = match scheme {
        "https" => Some(super::exec::agents(call)?.proxied()),
        _ => None,
    };
    Ok(Place { host: host.to_owned(), port, tls })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for allowed in ["10.0.0.1", "8.8.8.8", "fd00::1"] {
            assert!(is_allowed(allowed.parse().unwrap()), "{allowed}");
        }
        for refused in ["127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "::ffff:127.0.0.1"] {
            assert!(!is_allowed(refused.parse().unwrap()), "{refused}");
        }
    }

    #[test]
    fn headers_of_one_connection_stay_there() {
        let all = [("connection", "close, x-mine"), ("x-mine", "1"), ("te", "trailers"), ("accept", "*/*")];
        let mut headers: HeaderMap =
            all.into_iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect();
        one_hop(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
