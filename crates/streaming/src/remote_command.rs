//! A command in a container, at the other end of a connection: exec and attach.
//!
//! A server calls [`accept`] with the request, answers it with what it gets, and then has the streams of a
//! [`RemoteCommand`], whichever protocol the client chose. The API server is also a client ([`connect`]), to agents that
//! speak SPDY only.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::{Request, Response, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;
use serde_json::json;

use crate::{
    Connection, Io, Sink, Source, spdy,
    upgrade::{self, Refusal},
    websocket::{Channel, Channels},
};

/// The protocols that are spoken over SPDY, best first.
pub const SPDY_PROTOCOLS: [&str; 4] = ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io"];
/// The one in which a client can end its input.
pub const V5: &str = "v5.channel.k8s.io";
/// The protocols that are spoken over WebSockets.
const WEBSOCKET_PROTOCOLS: [&str; 6] =
    ["", "channel.k8s.io", "base64.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io", V5];
/// How long a client may take to open its streams.
const STREAMS_WITHIN: Duration = Duration::from_secs(30);
/// The longest description of a terminal's size.
const SIZE_BYTES: usize = 1024;

const STDIN: usize = 0;
const STDOUT: usize = 1;
const STDERR: usize = 2;
const ERROR: usize = 3;
const RESIZE: usize = 4;

/// Which streams a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    /// Not for a terminal, which has one output only.
    pub stderr: bool,
    pub tty: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the connection was not upgraded: {0}")]
    Upgrade(#[from] hyper::Error),
    #[error("timed out waiting for client to create streams")]
    Late,
    #[error("the client opened a stream that it did not ask for, or closed the connection")]
    Streams,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    /// It ran, and ended with another exit code than zero.
    Exit(i32),
    /// It could not be run.
    Failed(String),
}

/// A connection that becomes a remote command when its request is answered.
pub struct Pending {
    upgrade: OnUpgrade,
    streams: Streams,
    protocol: &'static str,
    websocket: bool,
}

/// The server's side of a remote command.
pub struct RemoteCommand {
    pub stdin: Option<Source>,
    pub stdout: Option<Sink>,
    pub stderr: Option<Sink>,
    /// Sizes of the client's terminal, if it has one.
    pub sizes: Option<Sizes>,
    pub connection: Connection,
    error: Sink,
    /// Outcomes are told as JSON; older protocols have only text, for failures.
    structured: bool,
    websocket: bool,
}

/// Chooses the protocol. The first part is the answer to the request.
pub fn accept<B>(request: &mut Request<B>, mut streams: Streams) -> Result<(Response<()>, Pending), Refusal> {
    streams.stderr &= !streams.tty;
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(Refusal::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    let websocket = upgrade::is_websocket(request.headers());
    let (response, protocol) = if websocket {
        upgrade::websocket(request.headers(), &WEBSOCKET_PROTOCOLS)?
    } else {
        upgrade::spdy(request.headers(), &SPDY_PROTOCOLS)?
    };
    Ok((response, Pending { upgrade: upgrade::take(request)?, streams, protocol, websocket }))
}

impl Pending {
    /// The streams, when the client has them.
    pub async fn ready(self) -> Result<RemoteCommand, Error> {
        let io = TokioIo::new(self.upgrade.await?);
        let structured = self.protocol.starts_with("v4.") || self.protocol == V5;
        if self.websocket {
            Ok(over_websocket(io, self.streams, self.protocol, structured).await)
        } else {
            let sizes = self.streams.tty && (structured || self.protocol.starts_with("v3."));
            let collecting = over_spdy(io, self.streams, sizes, structured);
            tokio::time::timeout(STREAMS_WITHIN, collecting).await.map_err(|_| Error::Late)?
        }
    }
}

async fn over_websocket(io: impl Io, streams: Streams, protocol: &str, structured: bool) -> RemoteCommand {
    let used = |wanted: bool, channel| if wanted { channel } else { Channel::Unused };
    let layout = [
        used(streams.stdin, Channel::In),
        used(streams.stdout, Channel::Out),
        used(streams.stderr, Channel::Out),
        Channel::Out,
        Channel::In,
    ];
    let mut channels = Channels::serve(io, &layout, protocol.contains("base64."), protocol == V5);
    let sink = |number, wanted: bool| channels.sink(number).filter(|_| wanted);
    let (stdout, stderr) = (sink(STDOUT, streams.stdout), sink(STDERR, streams.stderr));
    let Some(error) = sink(ERROR, true) else { unreachable!("the layout has an error channel") };
    // Some clients wait for a first message, which may be empty.
    let _ = stdout.as_ref().or(stderr.as_ref()).unwrap_or(&error).send(&[]).await;
    let mut source = |number: usize| channels.sources.get_mut(number).and_then(Option::take);
    let (stdin, sizes) = (source(STDIN), source(RESIZE).filter(|_| streams.tty).map(Sizes::new));
    RemoteCommand { stdin, stdout, stderr, sizes, connection: channels.connection, error, structured, websocket: true }
}

async fn over_spdy(io: impl Io, streams: Streams, sizes: bool, structured: bool) -> Result<RemoteCommand, Error> {
    let (mut opened, connection) = spdy::serve(io);
    let wanted = [streams.stdin, streams.stdout, streams.stderr, true, sizes];
    let mut found = [const { None }; 5];
    while wanted.iter().zip(&found).any(|(wanted, found)| *wanted && found.is_none()) {
        let stream = opened.recv().await.ok_or(Error::Streams)?;
        let slot =
            ["stdin", "stdout", "stderr", "error", "resize"].iter().position(|k| *k == stream.header("streamtype"));
        let slot = slot.and_then(|at| found.get_mut(at)).ok_or(Error::Streams)?;
        if slot.replace(stream).is_some() {
            return Err(Error::Streams);
        }
    }
    let [stdin, stdout, stderr, error, resize] = found;
    Ok(RemoteCommand {
        stdin: stdin.map(|s| s.source),
        stdout: stdout.map(|s| s.sink),
        stderr: stderr.map(|s| s.sink),
        sizes: resize.map(|s| Sizes::new(s.source)),
        connection,
        error: error.ok_or(Error::Streams)?.sink,
        structured,
        websocket: false,
    })
}

impl RemoteCommand {
    /// Tells the client what came of the command, and ends the connection when it has read everything.
    pub async fn finish(self, outcome: &Outcome) {
        let told = match (self.structured, outcome) {
            (true, outcome) => outcome.status().to_string().into(),
            (false, Outcome::Success) => Bytes::new(),
            (false, outcome) => outcome.message().into(),
        };
        self.finish_with(&told).await;
    }

    /// The same, in the words of another server.
    pub async fn finish_with(self, told: &[u8]) {
        if !told.is_empty() {
            let _ = self.error.send(told).await;
        }
        for sink in [self.stdout, self.stderr, Some(self.error)].into_iter().flatten() {
            sink.close().await;
        }
        // A SPDY client drops what it has not handled when the connection ends under it.
        if !self.websocket {
            self.connection.linger().await;
        }
    }
}

impl Outcome {
    fn message(&self) -> String {
        match self {
            Outcome::Success => String::new(),
            Outcome::Exit(code) => format!("command terminated with non-zero exit code: exit status {code}"),
            Outcome::Failed(why) => why.clone(),
        }
    }

    /// As a Kubernetes Status.
    fn status(&self) -> serde_json::Value {
        match self {
            Outcome::Success => json!({"metadata": {}, "status": "Success"}),
            Outcome::Exit(code) => json!({
                "metadata": {}, "status": "Failure", "message": self.message(), "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Outcome::Failed(why) => json!({
                "metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError", "details": {"causes": [{"message": why}]}, "code": 500,
            }),
        }
    }
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

/// The sizes that a terminal gets, one after the other.
pub struct Sizes {
    source: Source,
    read: BytesMut,
}

impl Sizes {
    fn new(source: Source) -> Self {
        Self { source, read: BytesMut::new() }
    }

    /// The next size; `None` when there will be no other.
    pub async fn next(&mut self) -> Option<Size> {
        loop {
            let mut values = serde_json::Deserializer::from_slice(&self.read).into_iter::<serde_json::Value>();
            match values.next() {
                Some(Ok(value)) => {
                    let used = values.byte_offset();
                    let _ = self.read.split_to(used);
                    let side = |name: &str| value[name].as_u64().and_then(|side| u16::try_from(side).ok());
                    return Some(Size { width: side("Width")?, height: side("Height")? });
                }
                Some(Err(error)) if !error.is_eof() || self.read.len() > SIZE_BYTES => return None,
                _ => self.read.extend_from_slice(&self.source.next().await?),
            }
        }
    }

    /// The bytes as they come, for another server to read.
    pub async fn raw(&mut self) -> Option<Bytes> {
        self.source.next().await
    }
}

/// The client's side of a remote command, over SPDY in version 4.
pub struct Remote {
    pub stdin: Option<Sink>,
    pub stdout: Option<Source>,
    pub stderr: Option<Source>,
    /// The outcome, as a Status in JSON.
    pub error: Source,
    pub resize: Option<Sink>,
    pub connection: Connection,
}

/// Opens the streams of a command on a connection that was upgraded for it.
pub async fn connect(io: impl Io, streams: Streams) -> Remote {
    let (mut client, connection) = spdy::connect(io);
    let error = client.open(&[("streamtype", "error")]).await;
    error.sink.close().await;
    let mut open = async |kind, wanted: bool| match wanted {
        true => Some(client.open(&[("streamtype", kind)]).await),
        false => None,
    };
    let stdin = open("stdin", streams.stdin).await;
    let stdout = open("stdout", streams.stdout).await;
    let stderr = open("stderr", streams.stderr && !streams.tty).await;
    let resize = open("resize", streams.tty).await;
    Remote {
        stdin: stdin.map(|s| s.sink),
        stdout: stdout.map(|s| s.source),
        stderr: stderr.map(|s| s.source),
        error: error.source,
        resize: resize.map(|s| s.sink),
        connection,
    }
}
