//! A connection with its streams, from either side.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
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

/// The streams that are open in either direction. One that the other side has ended may still be reset by it, and must
/// hear of it as long as something is sent.
#[derive(Clone, Default)]
struct Streams(Arc<Mutex<HashMap<u32, Open>>>);

struct Open {
    /// Where its data goes; none when the other side has ended it or nobody reads it.
    data: Option<mpsc::Sender<Bytes>>,
    /// Held by its sinks.
    refused: Weak<CancellationToken>,
}

impl Open {
    fn is_used(&self) -> bool {
        self.refused.strong_count() > 0 || self.data.as_ref().is_some_and(|data| !data.is_closed())
    }
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, id: u32, headers: Headers, wire: &Wire) -> Stream {
        let (data, source) = Source::new();
        let refused = Arc::new(CancellationToken::new());
        self.lock().insert(id, Open { data: Some(data), refused: Arc::downgrade(&refused) });
        let sink = Sink::new(wire.clone(), Form::Spdy { stream: id }, refused);
        Stream { id, headers, source, sink }
    }

    /// Nothing more comes from the other side.
    fn end_inward(&self, id: u32) {
        let mut streams = self.lock();
        if let Some(open) = streams.get_mut(&id) {
            open.data = None;
            if !open.is_used() {
                streams.remove(&id);
            }
        }
    }

    fn reset(&self, id: u32) {
        let open = self.lock().remove(&id);
        if let Some(refused) = open.and_then(|open| open.refused.upgrade()) {
            refused.cancel();
        }
    }

    fn full(&self) -> bool {
        let mut streams = self.lock();
        if streams.len() >= MAX_STREAMS {
            streams.retain(|_, open| open.is_used());
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
            Frame::Reset { stream } => self.streams.reset(stream),
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
            self.streams.end_inward(id);
        }
        Ok(())
    }

    /// Hands data to a stream, and waits until it has room. Data of streams that are gone is late, not wrong.
    async fn data(&self, stream: u32, bytes: Bytes, last: bool) {
        let sender = self.streams.lock().get(&stream).and_then(|open| open.data.clone());
        let Some(sender) = sender else { return };
        let unwanted = !bytes.is_empty() && sender.send(bytes).await.is_err();
        if last || unwanted {
            self.streams.end_inward(stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn streams_that_their_client_has_ended_can_be_reset_and_count() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (mut opened, _ours) = serve(ours);
        let (mut client, _theirs) = connect(theirs);
        let (mut asked, mut served) = (Vec::new(), Vec::new());
        for _ in 0..MAX_STREAMS {
            let stream = client.open(&[]).await;
            stream.sink.close().await;
            let mut taken = opened.recv().await.expect("a stream");
            assert_eq!(taken.source.next().await, None);
            asked.push(stream);
            served.push(taken);
        }
        // All of them are still sent to, so there is no room for another.
        let mut refused = client.open(&[]).await;
        assert_eq!(refused.source.next().await, None);
        assert_eq!(refused.sink.send(b"x").await, Err(crate::wire::Closed));

        // What sends to one without an end hears that nobody listens.
        let (endless, _writer) = tokio::io::duplex(16);
        asked[0].sink.reset().await;
        let copied = tokio::time::timeout(Duration::from_secs(60), served[0].sink.copy_from(endless)).await;
        copied.expect("it ends").expect("and is not broken");
        client.open(&[]).await;
        assert!(opened.recv().await.is_some());

        served.clear();
        client.open(&[]).await;
        assert!(opened.recv().await.is_some());
    }
}
