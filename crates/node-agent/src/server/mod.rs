//! The agent's server: logs, exec, attach, port-forward, figures, over TLS, for whom the API server lets.
//!
//! | file | what |
//! |---|---|
//! | `routes` | every path there is, and who answers it |
//! | `identity` | who asks: a certificate of the cluster's authority, or a token that the API server knows |
//! | `permission` | whether they may, by the API server's word |
//! | `logs` | a container's log |
//! | `remote` | exec, attach, run, port-forward |
//! | `figures`, `metrics` | what the node and its pods use, as Kubernetes' summary and as Prometheus' text |
//!
//! Nothing is answered before the asker is known and allowed. The pods' own workers are never waited for.

mod answer;
mod figures;
mod identity;
mod logs;
mod metrics;
mod permission;
mod query;
mod remote;
mod routes;
#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    io,
    net::{Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use hyper::{Request, body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use k8s_openapi::api::core::v1::Pod;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::Settings;
use figures::Figures;
use identity::Identities;
use permission::Permissions;

/// How long a client may take to begin.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// When there are too many connections.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What the server asks of the agent.
pub trait Host: Send + Sync + 'static {
    /// The node's pods, with their status as the agent knows it.
    fn pods(&self) -> Vec<Arc<Pod>>;
    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>>;
    /// The runtime's id of a pod's sandbox.
    fn sandbox(&self, uid: &str) -> Option<String>;
    /// The runtime's id of a container of a pod: the one that runs or ran last.
    fn container(&self, uid: &str, name: &str) -> Option<String>;
}

/// What answers need.
struct Server {
    settings: Settings,
    host: Arc<dyn Host>,
    identities: Identities,
    permissions: Permissions,
    figures: Figures,
    /// Ends what is carried on when the agent stops.
    stop: CancellationToken,
}

/// Serves until it is told to stop.
pub async fn serve(settings: Settings, host: Arc<dyn Host>, stop: CancellationToken) -> io::Result<()> {
    let port = settings.port;
    let listener = match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => listener,
        // A node without IPv6.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?
        }
        Err(error) => return Err(io::Error::new(error.kind(), format!("cannot listen on port {port}: {error}"))),
    };
    serve_on(listener, settings, host, stop).await;
    Ok(())
}

async fn serve_on(listener: TcpListener, settings: Settings, host: Arc<dyn Host>, stop: CancellationToken) {
    let acceptor = TlsAcceptor::from(settings.tls.clone());
    let server = Arc::new(Server {
        identities: Identities::new(settings.client.clone()),
        permissions: Permissions::new(settings.client.clone(), settings.node_name.clone()),
        figures: Figures::default(),
        host,
        settings,
        stop: stop.clone(),
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((tcp, _)) => {
                let (acceptor, server, stop) = (acceptor.clone(), server.clone(), stop.clone());
                tokio::spawn(async move { stop.run_until_cancelled(connection(tcp, acceptor, server)).await });
            }
            Err(error) => {
                tracing::warn!(%error, "the agent's server cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn connection(tcp: TcpStream, acceptor: TlsAcceptor, server: Arc<Server>) {
    let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await else { return };
    let certificates = tls.get_ref().1.peer_certificates();
    let known =
        certificates.and_then(|chain| chain.first()).and_then(|leaf| identity::of_certificate(leaf)).map(Arc::new);
    let service = service_fn(move |request: Request<Incoming>| {
        let (server, known) = (server.clone(), known.clone());
        async move { Ok::<_, Infallible>(routes::answer(&server, known, request).await) }
    });
    // A client that breaks off has its reasons.
    let _ = Builder::new(TokioExecutor::new()).serve_connection_with_upgrades(TokioIo::new(tls), service).await;
}
