//! A small HTTPS client of the API server that hides nothing: any method, path, header and body.
//!
//! It speaks HTTP/2 on one connection that all its requests share, or HTTP/1.1 on a connection per request.

use std::{net::SocketAddr, sync::Arc};

use api_server::serving::authority::{Authority, Leaf};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    client::conn::{http1, http2},
    header,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, ConfigBuilder, RootCertStore, client::WantsClientCert, crypto::ring, pki_types::ServerName,
};
use serde_json::Value;
use tokio::{net::TcpStream, sync::Mutex};
use tokio_rustls::{TlsConnector, client::TlsStream};

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub const APPLY: &str = "application/apply-patch+yaml";

/// Whom a client trusts, and as whom it comes.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl Trust {
    /// The administrator of the cluster that the authority is of.
    pub fn admin(authority: &Authority) -> Self {
        Self::user(authority, "test-admin", "system:masters")
    }

    /// A user of this cluster, in one group.
    pub fn user(authority: &Authority, user: &str, group: &str) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().expect("a certificate")).expect("a usable certificate");
        let leaf = authority.client(user, group).expect("a client certificate");
        let (certificate, key) = leaf.der().expect("a usable client certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .expect("a usable client certificate");
        Self(Arc::new(config))
    }
}

impl Trust {
    /// Somebody without a certificate.
    pub fn nobody(authority: &Authority) -> Self {
        Self(Arc::new(trusting(authority).with_no_client_auth()))
    }

    /// Somebody with a certificate that another authority made.
    pub fn stranger(authority: &Authority, leaf: &Leaf) -> Self {
        let (certificate, key) = leaf.der().expect("a usable client certificate");
        let config = trusting(authority).with_client_auth_cert(vec![certificate], key);
        Self(Arc::new(config.expect("a usable client certificate")))
    }
}

fn trusting(authority: &Authority) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate().expect("a certificate")).expect("a usable certificate");
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS versions")
        .with_root_certificates(roots)
}

/// Cheap to clone; clones share the connection.
#[derive(Clone)]
pub struct Client {
    /// What every request says besides its own headers.
    headers: Vec<(String, String)>,
    address: SocketAddr,
    trust: Trust,
    http1: bool,
    connection: Arc<Mutex<Option<http2::SendRequest<Full<Bytes>>>>>,
}

/// What the server said.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; null if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default()
    }

    /// The object, if the answer has this code.
    #[track_caller]
    pub fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", self.text());
        self.json()
    }

    /// The message of the refusal, if the answer has this code.
    #[track_caller]
    pub fn refused(self, code: u16) -> String {
        let status = self.expect(code);
        assert_eq!((status["kind"].as_str(), status["code"].as_u64()), (Some("Status"), Some(code.into())), "{status}");
        status["message"].as_str().unwrap_or_default().to_owned()
    }
}

impl Client {
    pub fn new(address: SocketAddr, trust: Trust) -> Self {
        Self { headers: Vec::new(), address, trust, http1: false, connection: Arc::default() }
    }

    /// The same client, which says this with every request.
    pub fn saying(&self, name: &str, value: &str) -> Self {
        let mut headers = self.headers.clone();
        headers.push((name.to_owned(), value.to_owned()));
        Self { headers, ..self.clone() }
    }

    /// The same client with a bearer token.
    pub fn bearing(&self, token: &str) -> Self {
        self.saying("authorization", &format!("Bearer {token}"))
    }

    /// The same client over HTTP/1.1.
    pub fn http1(&self) -> Self {
        Self { http1: true, connection: Arc::default(), ..self.clone() }
    }

    /// A connection to the server on which nothing was said yet.
    pub async fn connect(&self, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let mut config = ClientConfig::clone(&self.trust.0);
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::IpAddress(self.address.ip().into());
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }

    /// Sends a request; the answer's body is not read yet. `None` if the connection broke.
    pub async fn begin(&self, request: Request<Full<Bytes>>) -> Option<Response<Incoming>> {
        if self.http1 {
            let tls = self.connect(b"http/1.1").await.ok()?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.ok()?;
            tokio::spawn(connection);
            return sender.send_request(request).await.ok();
        }
        let mut sender = {
            let mut shared = self.connection.lock().await;
            match shared.as_ref().filter(|sender| !sender.is_closed()) {
                Some(sender) => sender.clone(),
                None => {
                    let tls = self.connect(b"h2").await.ok()?;
                    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(tls)).await.ok()?;
                    tokio::spawn(connection);
                    shared.insert(sender).clone()
                }
            }
        };
        sender.send_request(request).await.ok()
    }

    /// `None` if the server could not be reached or broke off before the end of its answer.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        let response = self.begin(self.request(method, path, headers, body.into())).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some(Answer { code: head.status.as_u16(), headers: head.headers, body })
    }

    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let what = format!("{method} {path}");
        self.try_send(method, path, headers, body).await.unwrap_or_else(|| panic!("no answer to {what}"))
    }

    fn request(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Request<Full<Bytes>> {
        let uri = if self.http1 { path.to_owned() } else { format!("https://{}{path}", self.address) };
        let mut request = Request::builder().method(method).uri(uri).header(header::USER_AGENT, "test/1.0");
        if self.http1 {
            request = request.header(header::HOST, self.address.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(body)).expect("a request")
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send(Method::GET, path, &[("accept", accept)], Bytes::new()).await
    }

    pub async fn post(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::POST, path, &[("content-type", JSON)], object.to_string()).await
    }

    pub async fn put(&self, path: &str, object: &Value) -> Answer {
        self.send(Method::PUT, path, &[("content-type", JSON)], object.to_string()).await
    }

    pub async fn patch(&self, path: &str, kind: &str, patch: &Value) -> Answer {
        self.send(Method::PATCH, path, &[("content-type", kind)], patch.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &[], Bytes::new()).await
    }

    pub async fn delete_with(&self, path: &str, options: &Value) -> Answer {
        self.send(Method::DELETE, path, &[("content-type", JSON)], options.to_string()).await
    }

    /// Watches, or the refusal. `path` says all, such as `/api/v1/pods?watch=1&resourceVersion=7`.
    pub async fn watch(&self, path: &str) -> Result<Watch, Answer> {
        self.watch_as(path, JSON).await
    }

    pub async fn watch_as(&self, path: &str, accept: &str) -> Result<Watch, Answer> {
        let request = self.request(Method::GET, path, &[("accept", accept)], Bytes::new());
        let unreachable = || Answer { code: 0, headers: HeaderMap::new(), body: Bytes::new() };
        let response = self.begin(request).await.ok_or_else(unreachable)?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
            return Err(Answer { code: head.status.as_u16(), headers: head.headers, body });
        }
        Ok(Watch { body, read: BytesMut::new() })
    }
}

/// The events of a watch, line by line.
pub struct Watch {
    body: Incoming,
    read: BytesMut,
}

impl Watch {
    /// The next event; `None` when the watch ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let line = self.read.split_to(end + 1);
                return Some(serde_json::from_slice(&line).expect("an event is JSON"));
            }
            let frame = self.body.frame().await?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.read.extend_from_slice(&data);
            }
        }
    }

    /// The next event as its kind, the object's name and its revision.
    pub async fn told(&mut self) -> (String, String, u64) {
        let within = std::time::Duration::from_secs(10);
        let event = tokio::time::timeout(within, self.next()).await.expect("an event in time").expect("an event");
        let meta = &event["object"]["metadata"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&event["type"]), text(&meta["name"]), text(&meta["resourceVersion"]).parse().unwrap_or_default())
    }
}
