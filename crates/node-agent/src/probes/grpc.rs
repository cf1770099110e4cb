//! gRPC's health protocol, `grpc.health.v1.Health/Check`: two messages of one field each, so they are written by hand.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, time::timeout};

use super::{check::Finding, http::dial_error};

/// The status of gRPC for a method that is not there.
const UNIMPLEMENTED: u32 = 12;
/// The health that is good; the others by their number.
const SERVING: u64 = 1;
const HEALTH: &[&str] = &["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];

pub async fn check(host: &str, port: u16, service: &str, patience: Duration) -> Finding {
    let authority = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    match timeout(patience, ask(host, port, &authority, service)).await {
        Ok(Ok(SERVING)) => Finding::Success,
        Ok(Ok(health)) => {
            let health = usize::try_from(health).ok().and_then(|health| HEALTH.get(health)).unwrap_or(&"UNKNOWN");
            Finding::Failure(format!("service unhealthy (responded with {health:?})"))
        }
        Ok(Err(why)) => Finding::Failure(why),
        Err(_) => Finding::Failure(format!(
            "timeout: failed to connect service {authority:?} within {}s: context deadline exceeded",
            patience.as_secs()
        )),
    }
}

async fn ask(host: &str, port: u16, authority: &str, service: &str) -> Result<u64, String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: failed to connect service {authority:?}: {error}");
    let stream = TcpStream::connect((host, port)).await.map_err(|error| failed(&dial_error(authority, &error)))?;
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.36")
        .body(Full::new(question(service)))
        .map_err(|error| failed(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| failed(&error))?;
        let trailers = body.trailers().cloned().unwrap_or_default();
        status(&head.headers).or_else(|| status(&trailers)).map_or(Ok(()), |(code, message)| match code {
            0 => Ok(()),
            UNIMPLEMENTED => Err(format!(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {message}"
            )),
            code => Err(format!("error: health rpc probe failed: rpc error: code = {code} desc = {message}")),
        })?;
        health(&body.to_bytes()).ok_or_else(|| "error: health rpc probe failed: the answer cannot be read".to_owned())
    };
    let answer = answer.await;
    connection.abort();
    answer
}

fn status(headers: &HeaderMap) -> Option<(u32, String)> {
    let code = headers.get("grpc-status")?.to_str().ok()?.parse().ok()?;
    let message = headers.get("grpc-message").and_then(|message| message.to_str().ok()).unwrap_or_default();
    Some((code, message.to_owned()))
}

/// HealthCheckRequest {string service = 1}, with gRPC's prefix: not compressed, so long.
fn question(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        message.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            message.put_u8((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.put_u8(length as u8);
        message.put_slice(service.as_bytes());
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(&message);
    framed.freeze()
}

/// HealthCheckResponse {ServingStatus status = 1}; absent is 0.
fn health(framed: &[u8]) -> Option<u64> {
    match framed.get(5..)? {
        [] => Some(0),
        [0x08, value, ..] => Some(u64::from(*value)),
        _ => None,
    }
}
