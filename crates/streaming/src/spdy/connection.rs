//! A connection with its streams, from either side.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, ReadHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    Error, Headers,
    compression::Deflater,
    frame::{self, Decoder, Frame},
};
use crate::wire::{Connection, Form, Io, Sink, Source, Wire, fill};

/// How many streams a connection may have open.
const MAX_STREAMS: usize = 256;
/// How many new streams wait to be taken.
const WAITING_STREAMS: usize = 8;

/// One stream.
pub struct Stream {
    pub id: u32,
    pub headers: Headers,
    pub source: Source,
    pub sink: Sink,
}

impl Stream {
    /// The value of a header, or `""`.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}

/// Where the data of open streams goes.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<HashMap<u32, Open>>>);

struct Open {
    data: mpsc::Sender<Bytes>,
    refused: CancellationToken,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: u32, headers: Headers, wire: &Wire) -> Stream {
        let (data, source) = Source::new();
        let refused = CancellationToken::new();
        let sink = Sink::new(wire.clone(), Form::Spdy { stream: id }, refused.clone());
        self.lock().insert(id, Open { data, refused });
        Stream { id, headers, source, sink }
    }

    fn full(&self) -> bool {
        let mut streams = self.lock();
        if streams.len() >= MAX_STREAMS {
            streams.retain(|_, open| !open.data.is_closed());
        }
        streams.len() >= MAX_STREAMS
    }
}

/// Serves a connection: hands out the streams that the client opens.
pub fn serve<T: Io>(io: T) -> (mpsc::Receiver<Stream>, Connection) {
    let (reader, writer) = tokio::io::split(io);
    let (wire, connection) = Wire::start(writer, frame::go_away());
    let (opened, streams) = mpsc::channel(WAITING_STREAMS);
    let accepting = Accepting { opened, last: 0, deflater: Deflater::default() };
    read(reader, wire, Streams::default(), Some(accepting));
    (streams, connection)
}

/// The client's side of a connection.
pub struct Client {
    wire: Wire,
    streams: Streams,
    deflater: Deflater,
    next: u32,
}

pub fn connect<T: Io>(io: T) -> (Client, Connection) {
    let (reader, writer) = tokio::io::split(io);
    let (wire, connection) = Wire::start(writer, frame::go_away());
    let streams = Streams::default();
    read(reader, wire.clone(), streams.clone(), None);
    (Client { wire, streams, deflater: Deflater::default(), next: 1 }, connection)
}

impl Client {
    /// Opens a stream. That the server accepts it is not waited for: if it does not, the stream ends.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> Stream {
        let stream = self.streams.add(self.next, Headers::new(), &self.wire);
        let _ = self.wire.send(frame::open(self.next, headers, &mut self.deflater)).await;
        self.next += 2;
        stream
    }
}

/// What only a server does: take new streams.
struct Accepting {
    opened: mpsc::Sender<Stream>,
    last: u32,
    deflater: Deflater,
}

fn read<T: Io>(reader: ReadHalf<T>, wire: Wire, streams: Streams, accepting: Option<Accepting>) {
    let reading = Reading { wire: wire.clone(), streams: streams.clone(), accepting };
    tokio::spawn(async move {
        wire.read(reading.run(reader)).await;
        // Nothing more comes: whoever reads a stream gets to know.
        streams.lock().clear();
    });
}

struct Reading {
    wire: Wire,
    streams: Streams,
    accepting: Option<Accepting>,
}

impl Reading {
    async fn run(mut self, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
        let (mut decoder, mut buffer) = (Decoder::default(), BytesMut::new());
        while fill(&mut reader, &mut buffer).await? {
            while let Some(frame) = decoder.next(&mut buffer).map_err(io::Error::other)? {
                self.take(frame).await.map_err(io::Error::other)?;
            }
        }
        Ok(())
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Error> {
        match frame {
            Frame::Open { stream, headers, last } => self.accept(stream, headers, last).await?,
            Frame::About { stream, last } => self.data(stream, Bytes::new(), last).await,
            Frame::Data { stream, bytes, last } => self.data(stream, bytes, last).await,
            Frame::Reset { stream } => {
                if let Some(open) = self.streams.lock().remove(&stream) {
                    open.refused.cancel();
                }
            }
            // Clients count their pings in odd numbers, servers in even ones; an answer is not answered.
            Frame::Ping(id) if (id % 2 == 1) == self.accepting.is_some() => {
                let _ = self.wire.send(frame::ping(id)).await;
            }
            Frame::Ping(_) | Frame::GoAway | Frame::Other => {}
        }
        Ok(())
    }

    async fn accept(&mut self, id: u32, headers: Headers, last: bool) -> Result<(), Error> {
        let Some(accepting) = &mut self.accepting else { return Err(Error::Stream(id)) };
        if id.is_multiple_of(2) || id <= accepting.last {
            return Err(Error::Stream(id));
        }
        accepting.last = id;
        if self.streams.full() {
            let _ = self.wire.send(frame::reset(id, frame::REFUSED)).await;
            return Ok(());
        }
        let stream = self.streams.add(id, headers, &self.wire);
        let _ = self.wire.send(frame::reply(id, &mut accepting.deflater)).await;
        if accepting.opened.send(stream).await.is_err() {
            self.streams.lock().remove(&id);
            let _ = self.wire.send(frame::reset(id, frame::REFUSED)).await;
        }
        if last {
            self.streams.lock().remove(&id);
        }
        Ok(())
    }

    /// Hands data to a stream, and waits until it has room. Data of streams that are gone is late, not wrong.
    async fn data(&self, stream: u32, bytes: Bytes, last: bool) {
        let sender = self.streams.lock().get(&stream).map(|open| open.data.clone());
        let Some(sender) = sender else { return };
        let unwanted = !bytes.is_empty() && sender.send(bytes).await.is_err();
        if last || unwanted {
            self.streams.lock().remove(&stream);
        }
    }
}
