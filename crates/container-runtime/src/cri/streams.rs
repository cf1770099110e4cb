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
    port_forward,
    remote_command::{self, Outcome, Streams},
};
use tokio::net::TcpListener;

use crate::{
    Runtime,
    carrying::{self, Ending},
    runtime::locked,
    services::{self, AttachRequest, ExecRequest, RuntimeService},
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
                let streams = Streams { stdin, stdout, stderr, tty };
                command(&mut request, streams, Ending::OfCommand, async move { runtime.exec(asked).await })
            }
            Asked::Attach(asked, tty) => {
                let AttachRequest { stdin, stdout, stderr, .. } = asked;
                let streams = Streams { stdin, stdout, stderr, tty };
                command(&mut request, streams, Ending::OfStreams, async move { runtime.attach(asked).await })
            }
            Asked::PortForward(pod, ports) => forward(&mut request, runtime, pod, &ports),
        }
    }
}

fn command(
    request: &mut Request<Incoming>,
    streams: Streams,
    ending: Ending,
    start: impl Future<Output = services::Result<services::Streams>> + Send + 'static,
) -> Response<Full<Bytes>> {
    let (response, pending) = match remote_command::accept(request, streams) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.response(),
    };
    tokio::spawn(async move {
        match pending.ready().await {
            Ok(remote) => match start.await {
                Ok(streams) => carrying::command(streams, remote, ending).await,
                Err(error) => remote.finish(&Outcome::Failed(error.to_string())).await,
            },
            Err(error) => tracing::debug!(%error, "a client did not begin what it asked for"),
        }
    });
    response.map(|()| Full::default())
}

fn forward(request: &mut Request<Incoming>, runtime: Runtime, pod: String, ports: &[i32]) -> Response<Full<Bytes>> {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    let (response, pending) = match port_forward::accept(request, &ports) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.response(),
    };
    tokio::spawn(async move {
        let Ok(forwards) = pending.ready().await else { return };
        let dial = |port| {
            let (runtime, pod) = (runtime.clone(), pod.clone());
            async move { runtime.port_forward(&pod, port).await }
        };
        carrying::ports(forwards, dial).await;
    });
    response.map(|()| Full::default())
}
