//! Upgraded connections: to a server behind this one, and from there on bytes both ways.

use std::time::Duration;

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    header::{self, HeaderValue},
    upgrade::Upgraded,
};
use hyper_util::rt::TokioIo;
use object_model::status::{Reason, Status};
use streaming::{Io, spdy, upgrade};
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use super::connection::{Place, passed_on, unreachable};
use crate::{
    body::{Body, Passed, RequestBody},
    handlers::Call,
};

/// How long the other direction of a connection may go on when one has ended.
const OTHER_WAY_WITHIN: Duration = Duration::from_secs(600);

/// What the server behind this one says to an upgrade.
pub enum Answer {
    Upgraded {
        headers: HeaderMap,
        io: TokioIo<Upgraded>,
    },
    /// It has reasons not to, which the client gets to read.
    Refused(Response<Body>),
}

/// Asks for an upgrade.
pub async fn ask(call: &Call<'_>, place: &Place, request: Request<RequestBody>) -> Result<Answer, Status> {
    let response = place.send(request).await.map_err(|e| unreachable(&e))?;
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS => {
            let headers = response.headers().clone();
            let upgraded = hyper::upgrade::on(response).await;
            let io = upgraded.map_err(|e| Status::failure(500, Reason::UNKNOWN, e.to_string(), None))?;
            Ok(Answer::Upgraded { headers, io: TokioIo::new(io) })
        }
        code if code.as_u16() >= 400 => Ok(Answer::Refused(passed(call, response))),
        code => {
            let message = format!("invalid upgrade response: status code {}", code.as_u16());
            Err(Status::failure(500, Reason::UNKNOWN, message, None))
        }
    }
}

/// A whole answer, passed on as it is.
pub fn passed(call: &Call<'_>, response: Response<Incoming>) -> Response<Body> {
    let mut response = response.map(|body| Body::Passed(Box::new(Passed::new(body, call.server.drain.clone()))));
    // How this connection goes on is between this server and its client.
    for name in [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
        response.headers_mut().remove(name);
    }
    response
}

/// The request for the same upgrade as the client wants. The server behind sees the client's headers.
pub fn same(request: &Request<RequestBody>, uri: Uri, host: &str) -> Result<Request<RequestBody>, Status> {
    let mut headers = passed_on(request);
    set_host(&mut headers, host)?;
    let mut next = Request::new(RequestBody::Whole(Bytes::new()));
    *next.method_mut() = request.method().clone();
    *next.uri_mut() = uri;
    *next.headers_mut() = headers;
    next.headers_mut().remove(header::CONTENT_LENGTH);
    next.headers_mut().remove(header::TRANSFER_ENCODING);
    Ok(next)
}

/// The request for an upgrade to SPDY with one of these protocols.
pub fn spdy(
    request: &Request<RequestBody>,
    uri: Uri,
    host: &str,
    protocols: &[&str],
) -> Result<Request<RequestBody>, Status> {
    let mut next = same(request, uri, host)?;
    *next.method_mut() = Method::POST;
    let headers = next.headers_mut();
    for name in [header::SEC_WEBSOCKET_KEY, header::SEC_WEBSOCKET_PROTOCOL, header::SEC_WEBSOCKET_VERSION] {
        headers.remove(name);
    }
    headers.remove(header::SEC_WEBSOCKET_EXTENSIONS);
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(spdy::NAME));
    headers.remove(upgrade::STREAM_PROTOCOL);
    for protocol in protocols {
        let value = HeaderValue::from_str(protocol).map_err(|e| Status::bad_request(e.to_string()))?;
        headers.append(upgrade::STREAM_PROTOCOL, value);
    }
    Ok(next)
}

pub fn set_host(headers: &mut HeaderMap, host: &str) -> Result<(), Status> {
    let value = HeaderValue::from_str(host).map_err(|e| Status::bad_request(e.to_string()))?;
    headers.insert(header::HOST, value);
    Ok(())
}

/// Passes an upgrade on as it is, whatever its protocol.
pub async fn pass(
    call: &Call<'_>,
    place: &Place,
    mut request: Request<RequestBody>,
    uri: Uri,
    host: &str,
) -> Result<Response<Body>, Status> {
    let upgrading = upgrade::take(&mut request).map_err(refused)?;
    match ask(call, place, same(&request, uri, host)?).await? {
        Answer::Refused(response) => Ok(response),
        Answer::Upgraded { headers, io: behind } => {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *response.headers_mut() = headers;
            let drain = call.server.drain.clone();
            tokio::spawn(async move {
                match upgrading.await {
                    Ok(client) => join(TokioIo::new(client), behind, drain).await,
                    Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
                }
            });
            Ok(response)
        }
    }
}

/// What a client is told whose request cannot become an upgrade.
pub fn refused(refusal: upgrade::Refusal) -> Status {
    let reason = if refusal.code == StatusCode::FORBIDDEN { Reason::FORBIDDEN } else { Reason::BAD_REQUEST };
    Status::failure(refusal.code.as_u16().into(), reason, refusal.message, None)
}

/// Carries bytes both ways. When one side ends, the other may finish what it is saying.
pub async fn join(client: impl Io, behind: impl Io, drain: CancellationToken) {
    let (mut client_reader, mut client_writer) = tokio::io::split(client);
    let (mut behind_reader, mut behind_writer) = tokio::io::split(behind);
    let mut inward = std::pin::pin!(async move {
        let _ = tokio::io::copy(&mut client_reader, &mut behind_writer).await;
        let _ = behind_writer.shutdown().await;
    });
    let mut outward = std::pin::pin!(async move {
        let _ = tokio::io::copy(&mut behind_reader, &mut client_writer).await;
        let _ = client_writer.shutdown().await;
    });
    let both = async {
        tokio::select! {
            () = &mut inward => { let _ = tokio::time::timeout(OTHER_WAY_WITHIN, outward).await; }
            () = &mut outward => { let _ = tokio::time::timeout(OTHER_WAY_WITHIN, inward).await; }
        }
    };
    tokio::select! {
        () = both => {}
        () = drain.cancelled() => {}
    }
}
