//! Answers load balancers that ask whether this node has endpoints of a Service of its own.

use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use controller_runtime::Key;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::sync::{CancellationToken, DropGuard};

const PATIENCE: Duration = Duration::from_secs(10);
const AFTER_FAILURE: Duration = Duration::from_millis(100);
const LONGEST_REQUEST: usize = 8 << 10;

/// The servers of this node, one per Service that wants one. They end when it is dropped.
#[derive(Default)]
pub(super) struct Health {
    servers: HashMap<Key, Server>,
}

struct Server {
    port: u16,
    endpoints: Arc<AtomicUsize>,
    _running: DropGuard,
}

impl Health {
    /// `wanted` is the port, and how many endpoints this node has.
    pub fn note(&mut self, service: &Key, wanted: Option<(u16, usize)>) {
        let Some((port, count)) = wanted else {
            self.servers.remove(service);
            return;
        };
        match self.servers.get(service) {
            Some(server) if server.port == port => server.endpoints.store(count, Ordering::Relaxed),
            _ => {
                let (endpoints, stop) = (Arc::new(AtomicUsize::new(count)), CancellationToken::new());
                tokio::spawn(stop.clone().run_until_cancelled_owned(serve(service.clone(), port, endpoints.clone())));
                self.servers.insert(service.clone(), Server { port, endpoints, _running: stop.drop_guard() });
            }
        }
    }
}

async fn serve(service: Key, port: u16, endpoints: Arc<AtomicUsize>) {
    let listener = loop {
        match TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await {
            Ok(listener) => break listener,
            Err(error) => tracing::warn!(%service, port, %error, "cannot answer load balancers; trying again"),
        }
        sleep(PATIENCE).await;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, perhaps: some are given back soon.
            sleep(AFTER_FAILURE).await;
            continue;
        };
        let answer = answer(&service, endpoints.load(Ordering::Relaxed));
        tokio::spawn(timeout(PATIENCE, talk(stream, answer)));
    }
}

/// Reads the request's head, whatever it asks for.
async fn talk(mut stream: TcpStream, answer: String) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < LONGEST_REQUEST {
        if stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

fn answer(service: &Key, endpoints: usize) -> String {
    let status = if endpoints > 0 { "200 OK" } else { "503 Service Unavailable" };
    let body = json!({
        "service": {"namespace": service.namespace, "name": service.name},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": true,
    });
    let body = body.to_string();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {endpoints}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
