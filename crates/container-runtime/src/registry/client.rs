//! Requests to one endpoint of a registry: who we are, redirects, and trying again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::{Body, Incoming},
    header::{self, HeaderMap, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    RegistryError, auth,
    auth::Challenge,
    hosts::{HostConfig, Hosts},
    tls,
};
use crate::services::AuthConfig;

pub(super) type AnyBody = UnsyncBoxBody<Bytes, std::io::Error>;

/// How long a connection may take to come about, and a server to answer.
const CONNECT_WITHIN: Duration = Duration::from_secs(15);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// How often something is tried that may work later, and the pause before the second time; it doubles.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const MOST_REDIRECTS: usize = 5;
/// No document about an image is larger than this.
pub(super) const LARGEST_DOCUMENT: usize = 4 << 20;

pub(super) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, AnyBody>,
    /// `https://host[/path]`
    pub(super) endpoint: String,
    credentials: Option<AuthConfig>,
    /// The header that the registry has accepted.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A request that can be sent more than once.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// A path below the endpoint, or a whole URL.
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Arc<dyn Fn() -> AnyBody + Send + Sync>>,
    /// Of what to ask for a token, where the registry does not say.
    pub(super) scope: String,
    /// What is in its body is for nobody else: redirects are not followed.
    is_secret: bool,
}

impl Ask {
    pub(super) fn new(method: Method, target: impl Into<String>, scope: &str) -> Self {
        let (target, scope) = (target.into(), scope.into());
        Self { method, target, headers: HeaderMap::new(), body: None, scope, is_secret: false }
    }

    pub(super) fn with(mut self, name: header::HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
        self
    }
}

pub(super) fn empty() -> AnyBody {
    Full::default().map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn full(bytes: impl Into<Bytes>) -> AnyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

impl Client {
    /// `given` are credentials for the registry itself, not for its mirrors.
    pub(super) fn new(endpoint: &str, hosts: &Hosts, given: Option<&AuthConfig>) -> Result<Self, RegistryError> {
        let host = host_of(endpoint).unwrap_or_default();
        let config: HostConfig = hosts.config(&host);
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_WITHIN));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(&config.tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = legacy::Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        let credentials = given.cloned().or_else(|| config.auth());
        let authorization = Mutex::new(None);
        Ok(Self { http, endpoint: endpoint.to_owned(), credentials, authorization })
    }

    /// The answer to a request, when it is one: with a status that is no success where that may be what it is.
    pub(super) async fn send(&self, ask: &Ask) -> Result<Response<Incoming>, RegistryError> {
        let mut pause = PAUSE;
        for tried in 1.. {
            let result = self.authorized(ask).await;
            let wait = match &result {
                Ok(answer) if is_passing(answer.status()) => retry_after(answer).unwrap_or(pause),
                Err(RegistryError::Unreachable { .. }) => pause,
                _ => return result,
            };
            if tried >= TRIES {
                return result;
            }
            tokio::time::sleep(wait.min(LONGEST_PAUSE)).await;
            pause *= 2;
        }
        Err(RegistryError::Unreachable { url: self.endpoint.clone(), error: "it was not tried".into() })
    }

    /// Sends with what the registry knows us by, and where it asks who we are, says it.
    async fn authorized(&self, ask: &Ask) -> Result<Response<Incoming>, RegistryError> {
        let known = self.authorization.lock().await.clone();
        let (answer, from) = self.redirected(ask, known.as_ref(), &self.endpoint).await?;
        // Only the registry itself may ask: others could name a place of theirs that takes passwords.
        if answer.status() != StatusCode::UNAUTHORIZED || origin(&from) != origin(&self.endpoint) {
            return Ok(answer);
        }
        let challenges = answer.headers().get_all(header::WWW_AUTHENTICATE).iter();
        let Some(challenge) = challenges.filter_map(|value| Challenge::parse(value.to_str().ok()?)).next() else {
            return Ok(answer);
        };
        let Some(header) = self.answer_to(&challenge, &ask.scope).await? else { return Ok(answer) };
        if known.as_ref() == Some(&header) {
            return Ok(answer);
        }
        let (again, _) = self.redirected(ask, Some(&header), &self.endpoint).await?;
        if again.status() != StatusCode::UNAUTHORIZED {
            *self.authorization.lock().await = Some(header);
        }
        Ok(again)
    }

    /// Follows redirects, and tells where the answer comes from; nobody but `home` is told who we are.
    async fn redirected(
        &self,
        ask: &Ask,
        who: Option<&HeaderValue>,
        home: &str,
    ) -> Result<(Response<Incoming>, String), RegistryError> {
        let mut url =
            if ask.target.contains("://") { ask.target.clone() } else { format!("{}{}", self.endpoint, ask.target) };
        for _ in 0..=MOST_REDIRECTS {
            let is_home = origin(&url) == origin(home);
            let mut request = Request::builder().method(ask.method.clone()).uri(&url);
            if let Some(headers) = request.headers_mut() {
                headers.extend(ask.headers.clone());
                let agent = concat!("ferry/", env!("CARGO_PKG_VERSION"));
                headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
                if let (true, Some(who)) = (is_home, who) {
                    headers.insert(header::AUTHORIZATION, who.clone());
                }
            }
            let body = ask.body.as_ref().map_or_else(empty, |make| make());
            let answer = self.once(&url, request, body).await?;
            let place = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            match place {
                Some(place) if answer.status().is_redirection() && !ask.is_secret => url = absolute(&url, place),
                _ => return Ok((answer, url)),
            }
        }
        Err(RegistryError::Unreachable { url, error: "redirected too often".into() })
    }

    async fn once(
        &self,
        url: &str,
        request: hyper::http::request::Builder,
        body: AnyBody,
    ) -> Result<Response<Incoming>, RegistryError> {
        let unreachable = |error: String| RegistryError::Unreachable { url: url.to_owned(), error };
        // An upload answers when all of it has been taken, which takes as long as it takes.
        let is_long = body.size_hint().exact() != Some(0);
        let request = request.body(body).map_err(|error| unreachable(error.to_string()))?;
        let answer = self.http.request(request);
        let answer = if is_long {
            answer.await
        } else {
            match tokio::time::timeout(ANSWER_WITHIN, answer).await {
                Ok(answer) => answer,
                Err(_) => return Err(unreachable(format!("no answer within {} s", ANSWER_WITHIN.as_secs()))),
            }
        };
        answer.map_err(|error| unreachable(causes(&error)))
    }

    async fn answer_to(&self, challenge: &Challenge, scope: &str) -> Result<Option<HeaderValue>, RegistryError> {
        let header = match (challenge, &self.credentials) {
            (_, Some(auth)) if !auth.registry_token.is_empty() => format!("Bearer {}", auth.registry_token),
            (Challenge::Basic, Some(auth)) => match auth::basic(auth) {
                Some(pair) => auth::basic_header(&pair),
                None => return Ok(None),
            },
            (Challenge::Basic, None) => return Ok(None),
            (Challenge::Bearer { realm, service, scope: asked }, _) => {
                let scope = if asked.is_empty() { scope } else { asked };
                format!("Bearer {}", self.token(realm, service, scope).await?)
            }
        };
        Ok(HeaderValue::from_str(&header).ok())
    }

    /// A token from the place that the registry names (distribution specification, token authentication).
    async fn token(&self, realm: &str, service: &str, scope: &str) -> Result<String, RegistryError> {
        let is_encrypted = |url: &str| origin(url).is_some_and(|(scheme, _)| scheme == "https");
        if self.credentials.is_some() && is_encrypted(&self.endpoint) && !is_encrypted(realm) {
            let error = "credentials would go there without encryption".into();
            return Err(RegistryError::Malformed { what: format!("the place for tokens, {realm},"), error });
        }
        let identity = self.credentials.as_ref().map(|auth| auth.identity_token.as_str()).unwrap_or_default();
        let pair = self.credentials.as_ref().and_then(auth::basic);
        let who = pair.and_then(|pair| HeaderValue::from_str(&auth::basic_header(&pair)).ok());
        let service = encoded(service);
        let scopes: Vec<String> = scope.split(' ').filter(|one| !one.is_empty()).map(encoded).collect();
        let (ask, who) = if identity.is_empty() {
            let mark = if realm.contains('?') { '&' } else { '?' };
            let scopes: String = scopes.iter().map(|scope| format!("&scope={scope}")).collect();
            (Ask::new(Method::GET, format!("{realm}{mark}service={service}{scopes}"), ""), who)
        } else {
            let form = format!(
                "grant_type=refresh_token&client_id=ferry&service={service}&scope={}&refresh_token={}",
                scopes.join("+"),
                encoded(identity)
            );
            let mut ask =
                Ask::new(Method::POST, realm, "").with(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            ask.body = Some(Arc::new(move || full(form.clone())));
            ask.is_secret = true;
            (ask, None)
        };
        let (answer, _) = self.redirected(&ask, who.as_ref(), realm).await?;
        let status = answer.status();
        let body = document(answer, realm).await?;
        if !status.is_success() {
            return Err(RegistryError::refused(status, &body));
        }
        let parsed: Value = serde_json::from_slice(&body).unwrap_or_default();
        let token = ["token", "access_token"].iter().find_map(|name| parsed.get(*name)?.as_str());
        token.map(String::from).ok_or_else(|| RegistryError::Malformed {
            what: format!("the answer of {realm}"),
            error: "it has no token".into(),
        })
    }
}

/// What will pass: the registry, or something before it, is busy or being restarted.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED || status == StatusCode::TOO_MANY_REQUESTS
}

fn retry_after(answer: &Response<Incoming>) -> Option<Duration> {
    answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// All of a body that is not large.
pub(super) async fn document(answer: Response<Incoming>, url: &str) -> Result<Bytes, RegistryError> {
    let limited = http_body_util::Limited::new(answer.into_body(), LARGEST_DOCUMENT);
    match tokio::time::timeout(ANSWER_WITHIN, limited.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => {
            Err(RegistryError::Malformed { what: format!("the answer of {url}"), error: error.to_string() })
        }
        Err(_) => Err(RegistryError::Unreachable { url: url.into(), error: "it does not finish its answer".into() }),
    }
}

fn host_of(url: &str) -> Option<String> {
    Some(url.parse::<Uri>().ok()?.authority()?.to_string())
}

/// Who answers at a URL: another scheme is somebody else, since without encryption it may be anybody.
fn origin(url: &str) -> Option<(String, String)> {
    let url = url.parse::<Uri>().ok()?;
    Some((url.scheme_str()?.to_ascii_lowercase(), url.authority()?.as_str().to_ascii_lowercase()))
}

/// What a `Location` means, which may leave out what stays the same.
pub(super) fn absolute(url: &str, place: &str) -> String {
    match (place.starts_with('/'), url.parse::<Uri>()) {
        (true, Ok(uri)) => {
            let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
            format!("{}://{authority}{place}", uri.scheme_str().unwrap_or("https"))
        }
        _ => place.to_owned(),
    }
}

/// Everything but letters and digits as `%XX`.
pub(super) fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// An error with what it comes from.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text
}
