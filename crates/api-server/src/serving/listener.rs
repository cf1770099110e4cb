//! Connections: accepting them, speaking HTTP/1.1 or HTTP/2 on them in turn, and ending them in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::{Request, Response, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulShutdown},
};
use rustls::ServerConfig;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::turns::{InTurn, Streams, Turns};
use crate::{authentication::client_certificate::Presented, body::Body};

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
const HEADERS_WITHIN: Duration = Duration::from_secs(32);
const HEADER_BYTES: usize = 64 << 10;
const STREAMS: u32 = 1000;

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// The client's certificate. It holds the key of it; whether it is one to believe is for authentication to say.
    pub presented: Option<Arc<Presented>>,
}

/// Answers requests. The same handler serves every connection.
pub trait Handler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        peer: Peer,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static;
}

/// Serves until `stop`; then no new connection is taken, and open ones may finish what they are at within `grace`.
pub async fn serve<H: Handler>(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    handler: Arc<H>,
    stop: CancellationToken,
    grace: Duration,
) {
    let acceptor = TlsAcceptor::from(config);
    let graceful = GracefulShutdown::new();
    let turns = Turns::new(Handle::current().metrics().num_workers());
    loop {
        let (stream, address) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: let some connections end first.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let _ = stream.set_nodelay(true);
        let (acceptor, handler, watcher) = (acceptor.clone(), handler.clone(), graceful.watcher());
        let connection = turns.connection(address.ip());
        let streams = Streams(connection.clone());
        tokio::spawn(InTurn::new(connection, async move {
            let Some((tls, peer)) = handshake(acceptor, stream, address).await else { return };
            let service = service_fn(move |request| {
                let answer = handler.clone().handle(peer.clone(), request);
                async move { Ok::<_, std::convert::Infallible>(answer.await) }
            });
            let builder = builder(&tls, streams);
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, %address, "connection ended");
            }
        }));
    }
    drop(listener);
    let _ = tokio::time::timeout(grace, graceful.shutdown()).await;
}

/// How to serve a connection: as its TLS handshake settled. Waiting for its first bytes to tell would have no end.
fn builder(tls: &Tls, streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS_WITHIN).max_buf_size(HEADER_BYTES * 4);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADER_BYTES as u32)
        .initial_stream_window_size(256 << 10)
        .initial_connection_window_size(1 << 20)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    match tls.get_ref().1.alpn_protocol() {
        Some(b"h2") => builder.http2_only(),
        _ => builder.http1_only(),
    }
}

type Tls = tokio_rustls::server::TlsStream<TcpStream>;

async fn handshake(acceptor: TlsAcceptor, stream: TcpStream, address: SocketAddr) -> Option<(Tls, Peer)> {
    let tls = match tokio::time::timeout(HANDSHAKE_WITHIN, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => {
            tracing::debug!(%error, %address, "TLS handshake failed");
            return None;
        }
        Err(_) => return None,
    };
    let presented = tls.get_ref().1.peer_certificates().and_then(Presented::read).map(Arc::new);
    Some((tls, Peer { address, presented }))
}
