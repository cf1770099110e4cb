//! Requests that this server makes to others: authorization and admission webhooks, audit collectors, token issuers.
//!
//! A [`Client`] belongs to one peer. It keeps connections open and speaks HTTP/2 or HTTP/1.1, as the peer prefers. Every
//! request has an end: a timeout, and a limit on how much of an answer is read.

mod connector;
mod kubeconfig;
mod tls;

pub(crate) use tls::client_config;

use std::{path::PathBuf, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use connector::Connector;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, StatusCode, Uri,
    header::{self, HeaderValue},
};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};

const IDLE: Duration = Duration::from_secs(90);
const MAX_ANSWER_BYTES: usize = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{what} cannot be used: {reason}")]
    Unusable { what: String, reason: String },
    #[error("cannot reach {url}: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{url} did not answer within {limit:?}")]
    TooSlow { url: String, limit: Duration },
    #[error("the answer of {url} is larger than {limit} bytes")]
    TooLarge { url: String, limit: usize },
}

/// Another server, and how to talk to it.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Where requests go; paths of requests are appended to its path.
    pub url: String,
    pub trust: Trust,
    /// The name its certificate must have, if not the one in the URL.
    pub server_name: Option<String>,
    pub credentials: Credentials,
}

/// Whose certificates are believed.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// The authorities that the operating system knows.
    #[default]
    System,
    /// These authorities only, in PEM.
    Authorities(Vec<u8>),
    /// Anybody's. Only where somebody has asked for it by name.
    Anybody,
}

/// As whom requests come.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// Certificates and key in PEM.
    pub certificate: Option<(Vec<u8>, Vec<u8>)>,
    pub authorization: Option<Authorization>,
}

#[derive(Clone, Debug)]
pub enum Authorization {
    Bearer(String),
    /// Read anew for each request, since tokens are replaced in place.
    BearerFile(PathBuf),
    Basic {
        user: String,
        password: String,
    },
}

impl Peer {
    /// Reached without credentials, by a certificate of these authorities (PEM) or, without them, of any known one.
    pub fn new(url: impl Into<String>, authorities: Option<Vec<u8>>) -> Self {
        let trust = authorities.map_or(Trust::System, Trust::Authorities);
        Self { url: url.into(), trust, ..Self::default() }
    }

    /// The cluster and user of a kubeconfig's current context. Relative paths in it are relative to the file.
    pub fn from_kubeconfig(path: &std::path::Path) -> Result<Self, Error> {
        kubeconfig::read(path)
    }
}

/// What a peer said.
#[derive(Clone, Debug)]
pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Client {
    base: String,
    authorization: Option<Authorization>,
    timeout: Duration,
    inner: legacy::Client<Connector, Full<Bytes>>,
}

impl Client {
    /// Fails if the peer's URL, certificates or key cannot be used. Nothing is sent yet.
    pub fn new(peer: &Peer, timeout: Duration) -> Result<Self, Error> {
        let uri: Uri = peer.url.parse().map_err(|e: hyper::http::uri::InvalidUri| Error::Unusable {
            what: peer.url.clone(),
            reason: e.to_string(),
        })?;
        if uri.host().is_none() || !matches!(uri.scheme_str(), Some("https" | "http")) {
            let reason = "a URL must begin with https:// and name a host".to_owned();
            return Err(Error::Unusable { what: format!("{:?}", peer.url), reason });
        }
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(Connector::new(peer)?);
        let base = peer.url.trim_end_matches('/').to_owned();
        Ok(Self { base, authorization: peer.credentials.authorization.clone(), timeout, inner })
    }

    /// Sends a request and reads the whole answer, whatever its code. `path` begins with a slash, or is empty for the
    /// peer's URL itself.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, Error> {
        let url = format!("{}{path}", self.base);
        let asked = self.ask(method, &url, headers, body.into());
        let late = |_| Error::TooSlow { url: url.clone(), limit: self.timeout };
        tokio::time::timeout(self.timeout, asked).await.map_err(late)?
    }

    pub async fn get(&self, path: &str) -> Result<Answer, Error> {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub async fn post_json(&self, path: &str, body: impl Into<Bytes>) -> Result<Answer, Error> {
        let headers = [(header::CONTENT_TYPE, "application/json"), (header::ACCEPT, "application/json")];
        self.send(Method::POST, path, &headers, body).await
    }

    async fn ask(
        &self,
        method: Method,
        url: &str,
        headers: &[(header::HeaderName, &str)],
        body: Bytes,
    ) -> Result<Answer, Error> {
        let unusable = |reason: String| Error::Unusable { what: url.to_owned(), reason };
        let unreachable = |reason: String| Error::Unreachable { url: url.to_owned(), reason };
        let mut request = Request::builder().method(method).uri(url).header(header::USER_AGENT, "ferry");
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.header().await?);
        }
        let request = request.body(Full::new(body)).map_err(|e| unusable(e.to_string()))?;
        let response = self.inner.request(request).await.map_err(|e| unreachable(with_causes(&e)))?;
        let (head, mut incoming) = response.into_parts();
        let mut body = BytesMut::new();
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(|e| unreachable(with_causes(&e)))?.into_data() else { continue };
            if body.len() + data.len() > MAX_ANSWER_BYTES {
                return Err(Error::TooLarge { url: url.to_owned(), limit: MAX_ANSWER_BYTES });
            }
            body.extend_from_slice(&data);
        }
        Ok(Answer { code: head.status, headers: head.headers, body: body.freeze() })
    }
}

impl Authorization {
    async fn header(&self) -> Result<HeaderValue, Error> {
        let text = match self {
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::BearerFile(path) => {
                let failed = |source| Error::File { path: path.clone(), source };
                format!("Bearer {}", tokio::fs::read_to_string(path).await.map_err(failed)?.trim())
            }
            Self::Basic { user, password } => format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))),
        };
        let unusable =
            |_| Error::Unusable { what: "the token".into(), reason: "it has characters no header has".into() };
        let mut value = HeaderValue::from_str(&text).map_err(unusable)?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// An error with what led to it: the HTTP library's own words alone say little.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
