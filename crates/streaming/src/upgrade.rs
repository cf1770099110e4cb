//! From an HTTP request to an upgraded connection: which protocol is asked for, and what is answered.

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    header::{
        CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    upgrade::{OnUpgrade, Upgraded},
};
use hyper_util::rt::TokioIo;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

use crate::spdy;

/// In which the client of a SPDY connection names the protocols it speaks on it, and the server its choice.
pub const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// In which a server that speaks none of them names those it speaks.
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");

/// A connection that was upgraded.
pub type Io = TokioIo<Upgraded>;

/// A request that is not answered with an upgrade.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: StatusCode,
    pub message: String,
    /// What would have been accepted, if that was the trouble.
    pub accepted: Vec<&'static str>,
}

impl Refusal {
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST, message: message.into(), accepted: Vec::new() }
    }

    /// The answer to the request.
    pub fn response<B: From<String>>(&self) -> Response<B> {
        let mut response = Response::new(B::from(self.message.clone()));
        *response.status_mut() = self.code;
        for name in &self.accepted {
            response.headers_mut().append(ACCEPTED_PROTOCOLS, HeaderValue::from_static(name));
        }
        response
    }
}

/// Does the request ask for its connection to be upgraded, to whatever?
pub fn is_asked(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter().filter_map(|v| v.to_str().ok());
    values.any(|v| v.to_ascii_lowercase().contains("upgrade"))
}

/// Does the request ask for a WebSocket?
pub fn is_websocket(headers: &HeaderMap) -> bool {
    is_asked(headers) && headers.get(UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn is_spdy(headers: &HeaderMap) -> bool {
    let named = |v: &HeaderValue| v.to_str().is_ok_and(|v| v.to_ascii_lowercase().contains("spdy/3.1"));
    is_asked(headers) && headers.get(UPGRADE).is_some_and(named)
}

/// The items of a header that is a list, in order.
pub fn list<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|v| v.to_str().ok());
    values.flat_map(|v| v.split(',')).map(str::trim).filter(|v| !v.is_empty())
}

/// Takes the connection of a request, to be had when the request is answered with an upgrade.
pub fn take<B>(request: &mut Request<B>) -> Result<OnUpgrade, Refusal> {
    if request.extensions().get::<OnUpgrade>().is_none() {
        return Err(Refusal::bad_request("unable to upgrade: only HTTP/1.1 connections can be upgraded"));
    }
    Ok(hyper::upgrade::on(request))
}

/// The answer that makes a connection a WebSocket with the first protocol that both sides speak, and that protocol. A
/// client that names none gets `""`, if that is among the known.
pub fn websocket(headers: &HeaderMap, known: &[&'static str]) -> Result<(Response<()>, &'static str), Refusal> {
    let version = headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes);
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|key| STANDARD.decode(key).is_ok_and(|k| k.len() == 16));
    let (Some(b"13"), Some(key)) = (version, key) else {
        return Err(Refusal::bad_request("unable to upgrade: a WebSocket of version 13 with a key is required"));
    };
    let asked: Vec<&str> = list(headers, &SEC_WEBSOCKET_PROTOCOL).collect();
    let find = |name: &&str| known.iter().find(|k| *k == name).copied();
    let chosen = if asked.is_empty() { find(&"") } else { asked.iter().find_map(find) };
    let Some(chosen) = chosen else {
        let message =
            format!("unable to upgrade: requested protocol(s) are not supported: {asked:?}; supports {known:?}");
        return Err(Refusal { code: StatusCode::FORBIDDEN, message, accepted: Vec::new() });
    };
    let mut response = switching("websocket");
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept_key(key.as_bytes()));
    if !chosen.is_empty() {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen));
    }
    Ok((response, chosen))
}

/// The answer that makes a connection SPDY with the first protocol that both sides speak, and that protocol.
pub fn spdy(headers: &HeaderMap, known: &[&'static str]) -> Result<(Response<()>, &'static str), Refusal> {
    if !is_spdy(headers) {
        return Err(Refusal::bad_request("unable to upgrade: missing upgrade headers in request"));
    }
    let asked: Vec<&str> = list(headers, &STREAM_PROTOCOL).collect();
    if asked.is_empty() {
        return Err(Refusal::bad_request("unable to upgrade: no stream protocol is named in the request"));
    }
    let Some(chosen) = asked.iter().find_map(|name| known.iter().find(|k| *k == name)) else {
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports {asked:?}, server accepts {known:?}"
        );
        return Err(Refusal { code: StatusCode::FORBIDDEN, message, accepted: known.to_vec() });
    };
    let mut response = switching(spdy::NAME);
    response.headers_mut().insert(STREAM_PROTOCOL, HeaderValue::from_static(chosen));
    Ok((response, chosen))
}

fn switching(protocol: &'static str) -> Response<()> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
    response
}

/// What proves that the server has read the handshake.
fn accept_key(key: &[u8]) -> HeaderValue {
    const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, MAGIC].concat());
    // Base64 is always a valid header.
    HeaderValue::from_str(&STANDARD.encode(hash)).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        all.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_str(v).unwrap())).collect()
    }

    #[test]
    fn websocket_handshake() {
        let base = [("connection", "Upgrade"), ("upgrade", "WebSocket"), ("sec-websocket-version", "13")];
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let with = |more: &[(&'static str, &str)]| headers(&[&base[..], &[key], more].concat());
        // The example of RFC 6455.
        let (response, protocol) = websocket(&with(&[]), &["", "a"]).unwrap();
        assert_eq!(
            (response.headers()["sec-websocket-accept"].as_bytes(), protocol),
            (&b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="[..], "")
        );
        let (response, protocol) = websocket(&with(&[("sec-websocket-protocol", "x, a")]), &["", "a"]).unwrap();
        assert_eq!((response.headers()["sec-websocket-protocol"].as_bytes(), protocol), (&b"a"[..], "a"));
        assert_eq!(websocket(&with(&[]), &["a"]).unwrap_err().code, StatusCode::FORBIDDEN);
        assert_eq!(websocket(&headers(&base), &[""]).unwrap_err().code, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn spdy_handshake() {
        let asked = |protocol| {
            headers(&[("connection", "upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", protocol)])
        };
        assert_eq!(spdy(&asked("b,a"), &["a", "b"]).unwrap().1, "b");
        let refusal = spdy(&asked("c"), &["a", "b"]).unwrap_err();
        assert_eq!((refusal.code, refusal.accepted), (StatusCode::FORBIDDEN, vec!["a", "b"]));
        assert_eq!(spdy(&headers(&[]), &["a"]).unwrap_err().code, StatusCode::BAD_REQUEST);
    }
}
