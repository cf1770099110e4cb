//! Requests to agents, pods and whatever else is behind this server: a connection for each.

use std::{io, sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Request, Response, Uri,
    body::Incoming,
    client::conn::http1,
    header::{self, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use object_model::status::{Reason, Status};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::ClientAddress;
use crate::body::RequestBody;

/// How long it may take to connect.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Headers that say who a client is. They are for this server alone.
const PRIVATE: [HeaderName; 4] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-remote-user"),
    HeaderName::from_static("x-remote-group"),
    HeaderName::from_static("x-remote-uid"),
];
const PRIVATE_PREFIXES: [&str; 2] = ["impersonate-", "x-remote-extra-"];

/// Where a request goes.
#[derive(Clone)]
pub struct Place {
    pub host: String,
    pub port: u16,
    /// Without it the connection is not encrypted.
    pub tls: Option<Arc<ClientConfig>>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("dial tcp {place}: {reason}")]
    Connect { place: String, reason: String },
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

impl Place {
    /// Host and port, as in a URL.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Sends a request; its URI must have a path only. The connection is its own, and can be upgraded.
    pub async fn send(&self, request: Request<RequestBody>) -> Result<Response<Incoming>, Error> {
        let failed = |reason: String| Error::Connect { place: self.authority(), reason };
        match tokio::time::timeout(CONNECT_WITHIN, self.connect()).await {
            Ok(Ok(Stream::Plain(tcp))) => exchange(tcp, request).await,
            Ok(Ok(Stream::Tls(tls))) => exchange(tls, request).await,
            Ok(Err(error)) => Err(failed(reason(&error))),
            Err(_) => Err(failed("i/o timeout".to_owned())),
        }
    }

    async fn connect(&self) -> io::Result<Stream> {
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await?;
        tcp.set_nodelay(true)?;
        let Some(config) = &self.tls else { return Ok(Stream::Plain(tcp)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let tls = TlsConnector::from(config.clone()).connect(name, tcp).await?;
        Ok(Stream::Tls(Box::new(tls)))
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

async fn exchange(io: impl streaming::Io, request: Request<RequestBody>) -> Result<Response<Incoming>, Error> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(io)).await?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender.send_request(request).await?)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        _ => error.to_string(),
    }
}

/// What a client is told when its request could not be passed on.
pub fn unreachable(error: &Error) -> Status {
    Status::failure(500, Reason::UNKNOWN, format!("error dialing backend: {error}"), None)
}

/// The headers of a request as another server may see them.
pub fn passed_on(request: &Request<RequestBody>) -> HeaderMap {
    let mut headers = request.headers().clone();
    for name in PRIVATE {
        headers.remove(name);
    }
    let private = |name: &&HeaderName| PRIVATE_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
    for name in request.headers().keys().filter(private) {
        headers.remove(name);
    }
    if let Some(ClientAddress(address)) = request.extensions().get() {
        let mut path: Vec<&str> = headers.get_all(&FORWARDED_FOR).iter().filter_map(|v| v.to_str().ok()).collect();
        let address = address.ip().to_string();
        path.push(&address);
        if let Ok(value) = HeaderValue::from_str(&path.join(", ")) {
            headers.insert(FORWARDED_FOR, value);
        }
    }
    headers
}

/// A path with a query, both escaped as needed.
pub fn uri(segments: &[&str], query: &[(&str, String)]) -> Result<Uri, Status> {
    let mut text = String::new();
    for segment in segments {
        text.push('/');
        escape(segment, &mut text);
    }
    for (i, (name, value)) in query.iter().enumerate() {
        text.push(if i == 0 { '?' } else { '&' });
        text.push_str(name);
        text.push('=');
        escape(value, &mut text);
    }
    text.parse().map_err(|e: hyper::http::uri::InvalidUri| Status::bad_request(e.to_string()))
}

fn escape(text: &str, out: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn who_the_client_is_stays_here() {
        let request = Request::builder()
            .header("authorization", "Bearer secret")
            .header("impersonate-user", "root")
            .header("x-remote-user", "root")
            .header("x-forwarded-for", "10.0.0.1")
            .header("accept", "text/plain")
            .extension(ClientAddress("192.0.2.1:5".parse().unwrap()))
            .body(RequestBody::Whole(Bytes::new()))
            .unwrap();
        let headers = passed_on(&request);
        let names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!((names.len(), headers["x-forwarded-for"].as_bytes()), (2, &b"10.0.0.1, 192.0.2.1"[..]), "{names:?}");
    }

    #[test]
    fn uris_are_escaped() {
        let uri = uri(&["exec", "ns", "a b"], &[("command", "echo 'ü'&".to_owned()), ("tty", "1".to_owned())]).unwrap();
        assert_eq!(uri.to_string(), "/exec/ns/a%20b?command=echo%20%27%C3%BC%27%26&tty=1");
    }
}
