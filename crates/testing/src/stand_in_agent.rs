//! A node's agent that is none: it speaks the protocols of one, and runs commands as processes of the test's machine.
//!
//! Logs are made up, ports are those of loopback, and everything else is answered with what was asked.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use api_server::{
    body::{Body, Chunks},
    serving::authority::Names,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{Request, Response, body::Incoming, header, service::service_fn};
use hyper_util::rt::TokioIo;
use rustls::{RootCertStore, ServerConfig, crypto::ring, server::WebPkiClientVerifier};
use serde_json::{Value, json};
use streaming::{
    port_forward::{self, PortForward},
    remote_command::{self, Outcome, RemoteCommand, Streams},
    upgrade::Refusal,
};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc,
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::TestServer;

/// How many lines a made-up log has.
const LOG_LINES: usize = 10;

pub struct StandInAgent {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    /// Methods and URIs of requests.
    seen: Mutex<Vec<String>>,
    /// One for each log that somebody follows.
    followers: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
}

impl StandInAgent {
    /// Starts an agent and registers it as a node. Does it speak every protocol itself?
    pub async fn start(server: &TestServer, node: &str, address: IpAddr, speaks_websocket: bool) -> Self {
        let tls = server.agent_tls(address);
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::<Shared>::default();
        let task = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), shared.clone()));
        let agent = Self { address, shared, task };
        agent.register(server, node, speaks_websocket).await;
        agent
    }

    async fn register(&self, server: &TestServer, node: &str, speaks_websocket: bool) {
        let client = server.client();
        let features = if speaks_websocket { vec!["ExtendWebSocketsToKubelet"] } else { Vec::new() };
        let object = json!({"metadata": {"name": node}});
        let mut made = client.post("/api/v1/nodes", &object).await.expect(201);
        made["status"] = json!({
            "addresses": [{"type": "InternalIP", "address": self.address.ip().to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.address.port()}},
            "declaredFeatures": features,
        });
        client.put(&format!("/api/v1/nodes/{node}/status"), &made).await.expect(200);
    }

    /// What was asked so far, such as `GET /containerLogs/ns/pod/container?follow=true`.
    pub fn seen(&self) -> Vec<String> {
        lock(&self.shared.seen).clone()
    }

    /// Adds a line to every log that is followed. How many there are.
    pub fn tell_followers(&self, line: &str) -> usize {
        let mut followers = lock(&self.shared.followers);
        followers.retain(|follower| follower.send(Bytes::from(format!("{line}\n"))).is_ok());
        followers.len()
    }

    /// Waits until so many logs are followed.
    pub async fn followed_by(&self, count: usize) {
        let check = async {
            while {
                let mut followers = lock(&self.shared.followers);
                followers.retain(|follower| !follower.is_closed());
                followers.len() != count
            } {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), check).await.expect("the number of followers is reached");
    }
}

impl Drop for StandInAgent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestServer {
    /// What an agent at this address shows of itself. Clients may show a certificate of the cluster's authority.
    pub fn agent_tls(&self, address: IpAddr) -> ServerConfig {
        let authority = self.authority();
        let names = Names { dns: Vec::new(), addresses: vec![address] };
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate().expect("a certificate")).expect("a usable certificate");
        let provider = Arc::new(ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let clients = clients.allow_unauthenticated().build().expect("a verifier");
        let (certificate, key) = authority.server(&names).and_then(|leaf| leaf.der()).expect("a certificate");
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("TLS versions")
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)
            .expect("a usable certificate");
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let Ok((tcp, _)) = listener.accept().await else { return };
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| {
                let shared = shared.clone();
                async move { Ok::<_, Infallible>(answer(request, &shared).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(tls), service)
                .with_upgrades()
                .await;
        });
    }
}

async fn answer(mut request: Request<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    lock(&shared.seen).push(format!("{} {}", request.method(), request.uri()));
    let query = query(&request);
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["containerLogs", _, _, container] => log(container, &query, shared),
        ["exec", ..] => {
            let command: Vec<String> = values(&query, "command");
            remote_command(&mut request, streams(&query), |remote| run(remote, command))
        }
        ["attach", ..] => remote_command(&mut request, streams(&query), echo),
        ["portForward", ..] => match port_forward::accept(&mut request, &values(&query, "port")) {
            Err(refusal) => refusal.response(),
            Ok((response, pending)) => {
                tokio::spawn(async move {
                    if let Ok(forward) = pending.ready().await {
                        forward_ports(forward).await;
                    }
                });
                response.map(|()| Body::Empty)
            }
        },
        _ => asked(request).await,
    }
}

/// Says what was asked.
async fn asked(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    let headers: Value =
        head.headers.iter().map(|(k, v)| (k.to_string(), json!(String::from_utf8_lossy(v.as_bytes())))).collect();
    let said = json!({
        "method": head.method.as_str(), "uri": head.uri.to_string(), "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    let mut response = Response::new(Body::from(said.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn query(request: &Request<Incoming>) -> Vec<(String, String)> {
    let text = request.uri().query().unwrap_or_default();
    text.split('&').filter_map(|pair| pair.split_once('=')).map(|(k, v)| (decoded(k), decoded(v))).collect()
}

/// Percent decoding of what the server has encoded.
fn decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut out = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at(2);
        out.push(u8::from_str_radix(digits, 16).expect("an escape"));
        out.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(out).expect("text")
}

fn values(query: &[(String, String)], name: &str) -> Vec<String> {
    query.iter().filter(|(k, _)| k == name).map(|(_, v)| v.clone()).collect()
}

fn streams(query: &[(String, String)]) -> Streams {
    let asked = |name: &str| query.iter().any(|(k, v)| k == name && v == "1");
    Streams { stdin: asked("input"), stdout: asked("output"), stderr: asked("error"), tty: asked("tty") }
}

fn log(container: &str, query: &[(String, String)], shared: &Arc<Shared>) -> Response<Body> {
    let value = |name: &str| values(query, name).pop();
    if container == "silent" {
        let refusal = Refusal::bad_request("container \"silent\" is waiting to start");
        return refusal.response();
    }
    let kind = if value("previous").is_some() { "previous" } else { "current" };
    let tail = value("tailLines").and_then(|t| t.parse().ok()).unwrap_or(LOG_LINES);
    let first = LOG_LINES.saturating_sub(tail) + 1;
    let mut text: String = (first..=LOG_LINES).map(|i| format!("{kind} {container} {i}\n")).collect();
    if let Some(limit) = value("limitBytes").and_then(|l| l.parse().ok()) {
        text.truncate(limit);
    }
    if value("follow").is_none() {
        return Response::new(Body::from(text));
    }
    let (sender, lines) = mpsc::unbounded_channel();
    let _ = sender.send(text.into());
    lock(&shared.followers).push(sender);
    Response::new(Body::Chunks(Box::new(Followed(lines))))
}

struct Followed(mpsc::UnboundedReceiver<Bytes>);

impl Chunks for Followed {
    fn poll_chunk(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Option<Bytes>> {
        self.0.poll_recv(cx)
    }
}

fn remote_command<F>(
    request: &mut Request<Incoming>,
    streams: Streams,
    run: impl FnOnce(RemoteCommand) -> F + Send + 'static,
) -> Response<Body>
where
    F: Future<Output = ()> + Send,
{
    match remote_command::accept(request, streams) {
        Err(refusal) => refusal.response(),
        Ok((response, pending)) => {
            tokio::spawn(async move {
                if let Ok(remote) = pending.ready().await {
                    run(remote).await;
                }
            });
            response.map(|()| Body::Empty)
        }
    }
}

/// Runs a command of this machine. `sizes` is one that tells the sizes of its terminal.
async fn run(mut remote: RemoteCommand, words: Vec<String>) {
    let Some((program, arguments)) = words.split_first() else {
        return remote.finish(&Outcome::Failed("no command".into())).await;
    };
    if program == "sizes" {
        return tell_sizes(remote, arguments).await;
    }
    let spawned = Command::new(program)
        .args(arguments)
        .stdin(if remote.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return remote.finish(&Outcome::Failed(format!("cannot run {program}: {error}"))).await,
    };
    if let (Some(mut source), Some(mut stdin)) = (remote.stdin.take(), child.stdin.take()) {
        tokio::spawn(async move {
            while let Some(bytes) = source.next().await {
                if stdin.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let output = async {
        let out = async {
            if let (Some(from), Some(to)) = (stdout, &remote.stdout) {
                let _ = to.copy_from(from).await;
            }
        };
        let err = async {
            if let (Some(from), Some(to)) = (stderr, &remote.stderr) {
                let _ = to.copy_from(from).await;
            }
        };
        tokio::join!(out, err);
        child.wait().await
    };
    let status = tokio::select! {
        status = output => status,
        () = remote.connection.gone() => return,
    };
    let outcome = match status.map(|status| status.code()) {
        Ok(Some(0)) => Outcome::Success,
        Ok(code) => Outcome::Exit(code.unwrap_or(137)),
        Err(error) => Outcome::Failed(error.to_string()),
    };
    remote.finish(&outcome).await;
}

/// Tells as many sizes as its argument says.
async fn tell_sizes(mut remote: RemoteCommand, arguments: &[String]) {
    let count = arguments.first().and_then(|count| count.parse().ok()).unwrap_or(1);
    let Some(mut sizes) = remote.sizes.take() else {
        return remote.finish(&Outcome::Exit(1)).await;
    };
    for _ in 0..count {
        let (Some(size), Some(stdout)) = (sizes.next().await, &remote.stdout) else { break };
        let _ = stdout.send(format!("{}x{}\r\n", size.width, size.height).as_bytes()).await;
    }
    remote.finish(&Outcome::Success).await;
}

/// Says back what it is told.
async fn echo(mut remote: RemoteCommand) {
    let Some(stdout) = &remote.stdout else { return };
    let _ = stdout.send(b"attached\n").await;
    if let Some(mut stdin) = remote.stdin.take() {
        while let Some(bytes) = stdin.next().await {
            let _ = stdout.send(&[b"you said: ", &bytes[..]].concat()).await;
        }
    }
    remote.finish(&Outcome::Success).await;
}

async fn forward_ports(mut forwards: PortForward) {
    while let Some(forward) = forwards.next().await {
        tokio::spawn(async move {
            match TcpStream::connect(("127.0.0.1", forward.port)).await {
                Ok(target) => forward.carry(target).await,
                Err(error) => {
                    let why = format!("error forwarding port {}: {error}", forward.port);
                    forward.fail(&why).await;
                }
            }
        });
    }
    forwards.connection.gone().await;
}
