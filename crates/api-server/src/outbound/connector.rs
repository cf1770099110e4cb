//! Connections to a peer: TCP, then TLS where the URL says so.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    Uri,
    rt::{Read, ReadBufCursor, Write},
};
use hyper_util::{
    client::legacy::connect::{Connected, Connection, HttpConnector},
    rt::TokioIo,
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};
use tower_service::Service;

use super::{Error, Peer, tls};

#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    tls: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl Connector {
    pub fn new(peer: &Peer) -> Result<Self, Error> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let config = tls::client_config(&peer.trust, peer.credentials.certificate.as_ref())?;
        let named = |name: &String| {
            ServerName::try_from(name.clone())
                .map_err(|e| Error::Unusable { what: format!("the server name {name:?}"), reason: e.to_string() })
        };
        let server_name = peer.server_name.as_ref().map(named).transpose()?;
        Ok(Self { tcp, tls: TlsConnector::from(Arc::new(config)), server_name })
    }
}

type Made = Pin<Box<dyn Future<Output = Result<Stream, Box<dyn std::error::Error + Send + Sync>>> + Send>>;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Made;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Made {
        let encrypted = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let (connecting, tls, name) = (self.tcp.call(uri), self.tls.clone(), self.server_name.clone());
        Box::pin(async move {
            let tcp = connecting.await?;
            if !encrypted {
                return Ok(Stream::Plain(tcp));
            }
            let name = match name {
                Some(name) => name,
                None => ServerName::try_from(host)?,
            };
            Ok(Stream::Tls(Box::new(TokioIo::new(tls.connect(name, tcp.into_inner()).await?))))
        })
    }
}

/// A connection, encrypted or not.
pub enum Stream {
    Plain(TokioIo<TcpStream>),
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tls(tls) if tls.inner().get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
