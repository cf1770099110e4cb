//! The server on loopback from which CRI's clients fetch the streams of exec, attach and port-forward. A URL is good once, for a
//! minute, and cannot be guessed.

use std::{
    collections::BTreeMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode, body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use streaming::{
    Sink, port_forward,
    remote_command::{self, Outcome, RemoteCommand, Streams},
};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use crate::{
    Runtime,
    runtime::locked,
    services::{self, AttachRequest, ExecRequest, RuntimeService, TerminalSize},
    state::new_id,
};

/// How long a URL is good, and how many there may be.
const GOOD_FOR: Duration = Duration::from_secs(60);
const MOST_OFFERS: usize = 1000;

pub(super) enum Asked {
    Exec(ExecRequest),
    /// With whether the client wants a terminal.
    Attach(AttachRequest, bool),
    PortForward(String, Vec<i32>),
}

pub(super) struct Handover {
    runtime: Runtime,
    address: SocketAddr,
    offers: Mutex<BTreeMap<String, (Instant, Asked)>>,
    /// Ends the server with the last one who could offer something.
    _serving: tokio::sync::watch::Sender<()>,
}

impl Handover {
    pub(super) async fn start(runtime: Runtime) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (serving, mut ended) = tokio::sync::watch::channel(());
        let handover = Arc::new(Self { runtime, address, offers: Mutex::default(), _serving: serving });
        let weak = Arc::downgrade(&handover);
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    _ = ended.changed() => return,
                };
                let (Ok((stream, _)), Some(handover)) = (accepted, weak.upgrade()) else {
                    // Out of descriptors, perhaps: some are given back soon.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let handover = handover.clone();
                        async move { Ok::<_, std::convert::Infallible>(handover.answer(request)) }
                    });
                    let connection =
                        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                    let _ = connection.with_upgrades().await;
                });
            }
        });
        Ok(handover)
    }

    /// A URL for what was asked.
    pub(super) fn offer(&self, kind: &str, asked: Asked) -> io::Result<String> {
        let token = new_id()?;
        let mut offers = locked(&self.offers);
        offers.retain(|_, (until, _)| *until > Instant::now());
        if offers.len() >= MOST_OFFERS {
            return Err(io::Error::other("too many streams were asked for and not fetched"));
        }
        offers.insert(token.clone(), (Instant::now() + GOOD_FOR, asked));
        Ok(format!("http://{}/{kind}/{token}", self.address))
    }

    fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let token = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let taken = locked(&self.offers).remove(&token).filter(|(until, _)| *until > Instant::now());
        let Some((_, asked)) = taken else {
            let mut answer = Response::new(Full::from("there is no such stream\n"));
            *answer.status_mut() = StatusCode::NOT_FOUND;
            return answer;
        };
        let runtime = self.runtime.clone();
        match asked {
            Asked::Exec(asked) => {
                let ExecRequest { stdin, stdout, stderr, tty, .. } = asked;
                command(&mut request, Streams { stdin, stdout, stderr, tty }, async move { runtime.exec(asked).await })
            }
            Asked::Attach(asked, tty) => {
                let AttachRequest { stdin, stdout, stderr, .. } = asked;
                command(
                    &mut request,
                    Streams { stdin, stdout, stderr, tty },
                    async move { runtime.attach(asked).await },
                )
            }
            Asked::PortForward(pod, ports) => forward(&mut request, runtime, pod, &ports),
        }
    }
}

fn command(
    request: &mut Request<Incoming>,
    streams: Streams,
    start: impl Future<Output = services::Result<services::Streams>> + Send + 'static,
) -> Response<Full<Bytes>> {
    let (response, pending) = match remote_command::accept(request, streams) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.response(),
    };
    tokio::spawn(async move {
        match pending.ready().await {
            Ok(remote) => match start.await {
                Ok(streams) => carry(streams, remote).await,
                Err(error) => remote.finish(&Outcome::Failed(error.to_string())).await,
            },
            Err(error) => tracing::debug!(%error, "a client did not begin what it asked for"),
        }
    });
    response.map(|()| Full::default())
}

/// Carries bytes until the process has ended or the client is gone; then dropping the streams ends an exec's process.
async fn carry(streams: services::Streams, mut remote: RemoteCommand) {
    let services::Streams { stdin, stdout, stderr, resize, exit } = streams;
    let (source, sizes) = (remote.stdin.take(), remote.sizes.take());
    let inward = async {
        let typed = async {
            if let (Some(mut from), Some(mut to)) = (source, stdin) {
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            }
        };
        let resized = async {
            let Some(mut sizes) = sizes else { return };
            while let Some(size) = sizes.next().await {
                let _ = resize.send(TerminalSize { width: size.width, height: size.height });
            }
        };
        tokio::join!(typed, resized);
        // The process goes on without input.
        std::future::pending::<()>().await;
    };
    let printed = async |from: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>, to: &Option<Sink>| {
        if let (Some(from), Some(to)) = (from, to) {
            let _ = to.copy_from(from).await;
        }
    };
    let ended = async {
        tokio::join!(printed(stdout, &remote.stdout), printed(stderr, &remote.stderr));
        match exit.await {
            Ok(Ok(0)) => Outcome::Success,
            Ok(Ok(code)) => Outcome::Exit(code),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Err(_) => Outcome::Failed("the pod's shim is gone".into()),
        }
    };
    let outcome = tokio::select! {
        outcome = ended => outcome,
        () = inward => return,
        () = remote.connection.gone() => return,
    };
    remote.finish(&outcome).await;
}

fn forward(request: &mut Request<Incoming>, runtime: Runtime, pod: String, ports: &[i32]) -> Response<Full<Bytes>> {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let (response, pending) = match port_forward::accept(request, &ports) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.response(),
    };
    tokio::spawn(async move {
        let Ok(mut forwards) = pending.ready().await else { return };
        while let Some(forward) = forwards.next().await {
            let (runtime, pod) = (runtime.clone(), pod.clone());
            tokio::spawn(async move {
                match runtime.port_forward(&pod, forward.port).await {
                    Ok(stream) => forward.carry(stream).await,
                    Err(error) => forward.fail(&error.to_string()).await,
                }
            });
        }
    });
    response.map(|()| Full::default())
}
