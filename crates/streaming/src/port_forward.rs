//! Connections to a pod's ports, many at a time, over one connection.
//!
//! Over SPDY (plain, or inside of a WebSocket) the client opens a pair of streams for each connection: one for data, one
//! for errors. Over a WebSocket with channels the ports are named in the request, and each has a pair of channels.

use std::time::{Duration, Instant};

use hyper::{Request, Response, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
};

use crate::{
    Connection, Io, Sink, Source,
    spdy::{self, Stream},
    upgrade::{self, Refusal},
    websocket::{self, Channel, Channels},
};

/// The protocol over SPDY.
pub const PROTOCOL: &str = "portforward.k8s.io";
/// The same inside of a WebSocket.
pub const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";
const WEBSOCKET_PROTOCOLS: [&str; 4] = ["", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", TUNNELLED];
/// How many connections may wait for their second stream, and how long.
const WAITING_PAIRS: usize = 64;
const PAIRED_WITHIN: Duration = Duration::from_secs(30);
/// How many ports a request may name: channels are numbered in a byte.
const MAX_PORTS: usize = 64;

/// A connection that becomes a port forward when its request is answered.
pub struct Pending {
    upgrade: OnUpgrade,
    protocol: Option<&'static str>,
    ports: Vec<u16>,
}

/// The server's side of a port forward.
pub struct PortForward {
    forwards: mpsc::Receiver<Forward>,
    pub connection: Connection,
}

/// One connection to a port.
pub struct Forward {
    pub port: u16,
    source: Source,
    data: Sink,
    error: Sink,
}

/// Chooses the protocol. The first part is the answer to the request. `ports` are those that the request's query names,
/// which matter for WebSockets with channels only.
pub fn accept<B>(request: &mut Request<B>, ports: &[String]) -> Result<(Response<()>, Pending), Refusal> {
    let (response, protocol) = if upgrade::is_websocket(request.headers()) {
        let (response, protocol) = upgrade::websocket(request.headers(), &WEBSOCKET_PROTOCOLS)?;
        (response, Some(protocol))
    } else {
        (upgrade::spdy(request.headers(), &[PROTOCOL])?.0, None)
    };
    let channels = protocol.is_some_and(|protocol| protocol != TUNNELLED);
    let ports = if channels { parse_ports(ports)? } else { Vec::new() };
    Ok((response, Pending { upgrade: upgrade::take(request)?, protocol, ports }))
}

fn parse_ports(texts: &[String]) -> Result<Vec<u16>, Refusal> {
    let mut ports = Vec::new();
    for text in texts.iter().flat_map(|t| t.split(',')) {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        ports.push(port.ok_or_else(|| Refusal::bad_request(format!("unable to parse {text:?} as a port")))?);
    }
    match ports.len() {
        0 => Err(Refusal::bad_request("query parameter \"port\" is required")),
        1..=MAX_PORTS => Ok(ports),
        _ => Err(Refusal::bad_request(format!("at most {MAX_PORTS} ports can be forwarded at once"))),
    }
}

impl Pending {
    pub async fn ready(self) -> Result<PortForward, hyper::Error> {
        let io = TokioIo::new(self.upgrade.await?);
        Ok(match self.protocol {
            None => over_spdy(io),
            Some(TUNNELLED) => over_spdy(websocket::tunnel(io)),
            Some(protocol) => over_channels(io, &self.ports, protocol.contains("base64.")).await,
        })
    }
}

impl PortForward {
    /// The next connection that the client makes; `None` when there will be no other.
    pub async fn next(&mut self) -> Option<Forward> {
        self.forwards.recv().await
    }
}

impl Forward {
    /// Carries bytes both ways until both are done, or one is broken.
    pub async fn carry(mut self, target: impl AsyncRead + AsyncWrite) {
        let (reader, mut writer) = tokio::io::split(target);
        let inward = async {
            tokio::io::copy(&mut self.source, &mut writer).await?;
            writer.shutdown().await
        };
        let outward = async {
            self.data.copy_from(reader).await?;
            self.data.close().await;
            Ok(())
        };
        match tokio::try_join!(inward, outward) {
            Ok(_) => self.error.close().await,
            Err(error) => self.fail(&error.to_string()).await,
        }
    }

    /// Tells the client that the port cannot be reached, or not any more.
    pub async fn fail(self, why: &str) {
        let _ = self.error.send(why.as_bytes()).await;
        self.error.close().await;
        self.data.reset().await;
    }
}

async fn over_channels(io: impl Io, ports: &[u16], base64: bool) -> PortForward {
    let layout: Vec<Channel> = ports.iter().flat_map(|_| [Channel::Both, Channel::Out]).collect();
    let mut channels = Channels::serve(io, &layout, base64, false);
    let (sender, forwards) = mpsc::channel(ports.len().max(1));
    for (i, port) in ports.iter().enumerate() {
        let source = channels.sources.get_mut(2 * i).and_then(Option::take);
        let (Some(source), Some(data), Some(error)) = (source, channels.sink(2 * i), channels.sink(2 * i + 1)) else {
            continue;
        };
        // Both channels begin with the port that they are for.
        let _ = data.send(&port.to_le_bytes()).await;
        let _ = error.send(&port.to_le_bytes()).await;
        let _ = sender.try_send(Forward { port: *port, source, data, error });
    }
    PortForward { forwards, connection: channels.connection }
}

fn over_spdy(io: impl Io) -> PortForward {
    let (streams, connection) = spdy::serve(io);
    let (sender, forwards) = mpsc::channel(1);
    tokio::spawn(pair(streams, sender));
    PortForward { forwards, connection }
}

/// Finds the two streams of each connection.
async fn pair(mut streams: mpsc::Receiver<Stream>, forwards: mpsc::Sender<Forward>) {
    let mut waiting: Vec<(String, Instant, Stream)> = Vec::new();
    while let Some(stream) = streams.recv().await {
        let is_data = stream.header("streamtype") == "data";
        let port = stream.header("port").parse::<u16>().ok().filter(|port| *port > 0);
        let known = is_data || stream.header("streamtype") == "error";
        let (true, Some(port)) = (known, port) else {
            stream.sink.reset().await;
            continue;
        };
        let request = request_of(&stream, is_data);
        let other = waiting
            .iter()
            .position(|(id, _, other)| *id == request && (other.header("streamtype") == "data") != is_data);
        let Some(other) = other else {
            let late = waiting.first().is_some_and(|(_, since, _)| since.elapsed() > PAIRED_WITHIN);
            if late || waiting.len() >= WAITING_PAIRS {
                waiting.remove(0).2.sink.reset().await;
            }
            waiting.push((request, Instant::now(), stream));
            continue;
        };
        let other = waiting.remove(other).2;
        let (data, error) = if is_data { (stream, other) } else { (other, stream) };
        let forward = Forward { port, source: data.source, data: data.sink, error: error.sink };
        if forwards.send(forward).await.is_err() {
            return;
        }
    }
}

/// What the two streams of a connection have in common. Old clients do not say: they open the error stream first, and the
/// data stream right after it.
fn request_of(stream: &Stream, is_data: bool) -> String {
    match stream.header("requestid") {
        "" if is_data => format!("stream {}", stream.id.saturating_sub(2)),
        "" => format!("stream {}", stream.id),
        id => format!("request {id}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_download_that_is_broken_off_leaves_the_pod() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut forwards = over_spdy(ours);
        let (mut client, _connection) = spdy::connect(theirs);
        let headers = |kind| [("streamtype", kind), ("port", "80"), ("requestid", "1")];
        let _error = client.open(&headers("error")).await;
        let data = client.open(&headers("data")).await;
        let forward = forwards.next().await.expect("a connection");
        let (target, mut pod) = tokio::io::duplex(1 << 10);
        tokio::spawn(forward.carry(target));
        // The pod has been asked and has more to say, but its client is gone.
        data.sink.send(b"GET").await.expect("it is open");
        data.sink.close().await;
        let mut asked = String::new();
        pod.read_to_string(&mut asked).await.expect("the question");
        assert_eq!(asked, "GET");
        data.sink.reset().await;
        drop(data);
        let sending = async { while pod.write_all(&[0; 100]).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(60), sending).await.expect("the connection is closed");
    }
}
