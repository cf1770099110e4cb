//! Requests to a container over HTTP or HTTPS, of probes and of lifecycle hooks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    api::core::v1::{Container, HTTPGetAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// The most that is read of an answer.
const LONGEST_BODY: usize = 10 * 1024;
const MOST_REDIRECTS: usize = 10;

pub struct Answer {
    pub status: u16,
    pub body: String,
    /// It was sent on to another host, where it did not go.
    pub sent_away: bool,
}

/// The number of a port that may be named in the container.
pub fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_deref() == Some(name));
            match named {
                Some(port) => port.container_port,
                None => name.parse().map_err(|_| format!("couldn't find port: {name:?}"))?,
            }
        }
    };
    let invalid = || format!("invalid port number: {number}");
    u16::try_from(number)
        .map_err(|_| invalid())
        .and_then(|number| if number == 0 { Err(invalid()) } else { Ok(number) })
}

/// Asks the container. `client` is how it is told who asks.
pub async fn get(
    action: &HTTPGetAction,
    container: &Container,
    address: &str,
    client: &str,
    patience: Duration,
) -> Result<Answer, String> {
    let scheme = action.scheme.as_deref().unwrap_or("HTTP").to_ascii_lowercase();
    let host = action.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(address);
    let port = port(&action.port, container)?;
    let path = action.path.as_deref().unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let mut url = format!("{scheme}://{}:{port}{path}", bracketed(host));
    let deadline = async {
        let mut sent_on = 0;
        loop {
            let answer = ask(&url, action, client).await.map_err(|why| format!("Get {url:?}: {why}"))?;
            let Some(next) = answer.location else {
                return Ok(Answer { status: answer.status, body: answer.body, sent_away: false });
            };
            if sent_on >= MOST_REDIRECTS {
                return Err(format!("Get {url:?}: stopped after {MOST_REDIRECTS} redirects"));
            }
            let next = resolved(&url, &next);
            if host_of(&next) != host_of(&url) {
                return Ok(Answer { status: answer.status, body: answer.body, sent_away: true });
            }
            sent_on += 1;
            url = next;
        }
    };
    timeout(patience, deadline).await.unwrap_or_else(|_| {
        let url = format!("{scheme}://{}:{port}{path}", bracketed(host));
        Err(format!("Get {url:?}: context deadline exceeded (Client.Timeout exceeded while awaiting headers)"))
    })
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

fn host_of(url: &str) -> Option<String> {
    url.parse::<Uri>().ok()?.host().map(str::to_owned)
}

fn resolved(from: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let origin = from.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
    if location.starts_with('/') { format!("{origin}{location}") } else { format!("{origin}/{location}") }
}

struct Raw {
    status: u16,
    body: String,
    location: Option<String>,
}

async fn ask(url: &str, action: &HTTPGetAction, client: &str) -> Result<Raw, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
    let request = request(&uri, &authority, action, client)?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| dial_error(&authority, &error))?;
    if secure {
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(trusting_all()));
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        exchange(stream, request).await
    } else {
        exchange(stream, request).await
    }
}

pub fn dial_error(authority: &str, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => format!("dial tcp {authority}: connect: connection refused"),
        std::io::ErrorKind::HostUnreachable => format!("dial tcp {authority}: connect: no route to host"),
        _ => format!("dial tcp {authority}: {error}"),
    }
}

fn request(uri: &Uri, authority: &str, action: &HTTPGetAction, client: &str) -> Result<Request<Empty<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::get(path).body(Empty::new()).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    headers.insert(header::HOST, value(authority)?);
    headers.insert(header::USER_AGENT, value(client)?);
    headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
    let mut given = Vec::new();
    for wanted in action.http_headers.iter().flatten() {
        let name = HeaderName::try_from(&wanted.name).map_err(|error| error.to_string())?;
        let is_first = !given.contains(&name);
        if is_first && wanted.value.is_empty() && (name == header::USER_AGENT || name == header::ACCEPT) {
            headers.remove(&name);
        } else if is_first {
            headers.insert(name.clone(), value(&wanted.value)?);
        } else {
            headers.append(name.clone(), value(&wanted.value)?);
        }
        given.push(name);
    }
    Ok(request)
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Raw, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    let result = match answer {
        Err(error) => Err(error.to_string()),
        Ok(answer) => {
            let location = answer.headers().get(header::LOCATION).and_then(|at| at.to_str().ok()).map(str::to_owned);
            let status = answer.status();
            // A longer answer is as good as its beginning.
            let body = match Limited::new(answer.into_body(), LONGEST_BODY).collect().await {
                Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
                Err(_) => String::new(),
            };
            Ok(Raw { status: status.as_u16(), body, location: location.filter(|_| status.is_redirection()) })
        }
    };
    connection.abort();
    result
}

/// Probes do not look at who answers.
fn trusting_all() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(TrustAll(provider.clone()));
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    // The provider has the protocol versions it was built with.
    let builder = versions.unwrap_or_else(|_| ClientConfig::builder());
    builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
}

#[derive(Debug)]
struct TrustAll(Arc<CryptoProvider>);

impl ServerCertVerifier for TrustAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::json;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Asks a server that answers every request with these lines.
    async fn asked(lines: &'static str) -> Result<Answer, String> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(format!("HTTP/1.1 {lines}\r\nContent-Length: 2\r\n\r\nhi").as_bytes()).await;
            }
        });
        let action = serde_json::from_value(json!({"port": port, "path": "/healthz"})).expect("an action");
        let container = Container::default();
        let answer = get(&action, &container, "127.0.0.1", "test", Duration::from_secs(30)).await;
        server.abort();
        answer
    }

    #[tokio::test]
    async fn answers_are_read_and_redirects_followed_on_the_same_host_only() {
        let answer = asked("418 I'm a teapot").await.expect("an answer");
        assert_eq!((answer.status, answer.body.as_str(), answer.sent_away), (418, "hi", false));
        assert!(asked("302 Found\r\nLocation: http://192.0.2.1/").await.expect("an answer").sent_away);
        let error = asked("302 Found\r\nLocation: /healthz").await.err().expect("it never ends");
        assert!(error.ends_with("stopped after 10 redirects"), "{error}");
    }
}
