//! What all protocols share: one connection, many streams of bytes.
//!
//! A task writes what the sinks send, one frame after the other; another reads and hands out what comes in. Both end when
//! the connection is closed, by either side. Queues are short, so that a slow reader slows its sender down.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, WriteHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use crate::{spdy, websocket};

/// Anything that carries bytes both ways.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

/// How much is read from a connection at a time, and the largest piece that a stream hands out.
pub(crate) const READ_BYTES: usize = 32 << 10;
/// How many pieces wait for the reader of a stream.
const WAITING_PIECES: usize = 8;
/// How many frames wait to be written.
const WAITING_FRAMES: usize = 16;
/// How long the last frames of a closed connection may take.
const FAREWELL_WITHIN: Duration = Duration::from_secs(5);
/// How long the other side may take to read the last of a connection and close it.
const LINGER: Duration = Duration::from_secs(600);

/// The connection is closed, so nothing can be sent any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed")]
pub struct Closed;

/// The frames that are to be written to a connection.
#[derive(Clone)]
pub(crate) struct Wire {
    frames: mpsc::Sender<Bytes>,
    closed: CancellationToken,
}

/// A connection, which is closed when this is dropped.
pub struct Connection {
    closed: CancellationToken,
}

impl Wire {
    /// Begins to write to a connection. `farewell` is the last that is written.
    pub fn start<T: Io>(writer: WriteHalf<T>, farewell: Bytes) -> (Self, Connection) {
        let (frames, queue) = mpsc::channel(WAITING_FRAMES);
        let closed = CancellationToken::new();
        tokio::spawn(write(writer, queue, farewell, closed.clone()));
        (Self { frames, closed: closed.clone() }, Connection { closed })
    }

    pub async fn send(&self, frame: Bytes) -> Result<(), Closed> {
        if self.closed.is_cancelled() {
            return Err(Closed);
        }
        tokio::select! {
            sent = self.frames.send(frame) => sent.map_err(|_| Closed),
            () = self.closed.cancelled() => Err(Closed),
        }
    }

    /// Runs the reader of the connection until it ends, and closes the connection. When it is closed from this side, the
    /// reader still gets to see the other side close it: what was sent last could be lost otherwise.
    pub async fn read(self, reading: impl Future<Output = io::Result<()>>) {
        let mut reading = std::pin::pin!(reading);
        let result = tokio::select! {
            result = &mut reading => result,
            () = self.closed.cancelled() => tokio::time::timeout(FAREWELL_WITHIN, reading).await.unwrap_or(Ok(())),
        };
        if let Err(error) = result {
            tracing::debug!(%error, "a streaming connection broke");
        }
        self.closed.cancel();
    }
}

impl Connection {
    /// Waits until the connection is closed, by either side.
    pub async fn gone(&self) {
        self.closed.cancelled().await;
    }

    /// Leaves it to the other side to close the connection when it has read everything, within reason.
    pub async fn linger(self) {
        let _ = tokio::time::timeout(LINGER, self.closed.cancelled()).await;
    }

    /// What ends when the connection does.
    pub fn token(&self) -> CancellationToken {
        self.closed.clone()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

async fn write<T: Io>(
    mut writer: WriteHalf<T>,
    mut queue: mpsc::Receiver<Bytes>,
    farewell: Bytes,
    closed: CancellationToken,
) {
    let writing = async {
        loop {
            // What was sent before the end is written before the end.
            let frame = tokio::select! {
                biased;
                frame = queue.recv() => frame,
                () = closed.cancelled() => None,
            };
            let Some(frame) = frame else { break };
            writer.write_all(&frame).await?;
            if queue.is_empty() {
                writer.flush().await?;
            }
        }
        writer.write_all(&farewell).await?;
        writer.shutdown().await
    };
    let hurry = async {
        closed.cancelled().await;
        tokio::time::sleep(FAREWELL_WITHIN).await;
    };
    tokio::select! {
        result = writing => if let Err(error) = result {
            tracing::debug!(%error, "a streaming connection cannot be written to");
        },
        () = hurry => {}
    }
    closed.cancel();
}

/// Reads more into a buffer; false at the end.
pub(crate) async fn fill(reader: &mut (impl AsyncRead + Unpin), buffer: &mut BytesMut) -> io::Result<bool> {
    buffer.reserve(READ_BYTES);
    let mut limited = reader.take(READ_BYTES as u64);
    Ok(limited.read_buf(buffer).await? > 0)
}

/// What comes in on a stream. It ends when the other side ends the stream or the connection.
#[derive(Debug)]
pub struct Source {
    pieces: mpsc::Receiver<Bytes>,
    rest: Bytes,
}

impl Source {
    pub(crate) fn new() -> (mpsc::Sender<Bytes>, Self) {
        let (sender, pieces) = mpsc::channel(WAITING_PIECES);
        (sender, Self { pieces, rest: Bytes::new() })
    }

    /// The next bytes, `None` at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        if !self.rest.is_empty() {
            return Some(std::mem::take(&mut self.rest));
        }
        self.pieces.recv().await
    }

    /// Everything up to the end, but not more than `limit` bytes.
    pub async fn all(&mut self, limit: usize) -> Bytes {
        let mut all = BytesMut::new();
        while let (true, Some(piece)) = (all.len() < limit, self.next().await) {
            all.extend_from_slice(&piece);
        }
        all.truncate(limit);
        all.freeze()
    }
}

impl AsyncRead for Source {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match ready!(self.pieces.poll_recv(cx)) {
                Some(piece) => self.rest = piece,
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.rest.len().min(into.remaining());
        into.put_slice(&self.rest[..count]);
        self.rest.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// Where a stream's bytes go.
#[derive(Clone)]
pub struct Sink {
    wire: Wire,
    form: Form,
    /// The other side wants no more of this stream. Who cancels it can tell by its count whether a sink is left.
    refused: Arc<CancellationToken>,
}

/// How a stream's bytes are framed.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Spdy { stream: u32 },
    Channel { number: u8, base64: bool },
}

impl Sink {
    pub(crate) fn new(wire: Wire, form: Form, refused: Arc<CancellationToken>) -> Self {
        Self { wire, form, refused }
    }

    /// Sends bytes; waits while the connection has enough to do.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), Closed> {
        if self.refused.is_cancelled() {
            return Err(Closed);
        }
        match self.form {
            Form::Spdy { stream } => {
                for piece in bytes.chunks(READ_BYTES) {
                    self.wire.send(spdy::frame::data(stream, piece, false)).await?;
                }
                Ok(())
            }
            Form::Channel { number, base64 } => self.wire.send(websocket::channel_frame(number, base64, bytes)).await,
        }
    }

    /// Ends the stream in this direction, where the protocol can say so.
    pub async fn close(&self) {
        if let Form::Spdy { stream } = self.form {
            let _ = self.wire.send(spdy::frame::data(stream, &[], true)).await;
        }
    }

    /// Ends the stream in both directions, because something went wrong.
    pub async fn reset(&self) {
        if let Form::Spdy { stream } = self.form {
            let _ = self.wire.send(spdy::frame::reset(stream, spdy::frame::CANCEL)).await;
        }
    }

    /// Sends all that a reader has. Ends when the reader does or nobody listens any more.
    pub async fn copy_from(&self, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut buffer = BytesMut::with_capacity(READ_BYTES);
        loop {
            buffer.clear();
            let more = tokio::select! {
                more = fill(&mut reader, &mut buffer) => more?,
                () = self.refused.cancelled() => false,
                () = self.wire.closed.cancelled() => false,
            };
            if !more || self.send(&buffer).await.is_err() {
                return Ok(());
            }
        }
    }
}
