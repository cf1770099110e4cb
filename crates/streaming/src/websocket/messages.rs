//! Connections of which only one side has something to say: logs and watches.

use std::io;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadHalf};

use super::frame::{self, BINARY, Decoder, Event, From, PONG, TEXT};
use crate::wire::{Closed, Connection, Io, Wire, fill};

/// What comes in on a connection, with its pings answered.
pub(super) struct Incoming<R> {
    reader: R,
    decoder: Decoder,
    buffer: BytesMut,
    wire: Wire,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub fn new(reader: R, wire: Wire) -> Self {
        Self { reader, decoder: Decoder::new(From::Client), buffer: BytesMut::new(), wire }
    }

    /// The next piece of a message, with whether it is the first and the last of it; `None` when the client is done.
    pub async fn piece(&mut self) -> io::Result<Option<(Bytes, bool, bool)>> {
        loop {
            match self.decoder.next(&mut self.buffer).map_err(io::Error::other)? {
                Some(Event::Piece { bytes, first, last }) => return Ok(Some((bytes, first, last))),
                Some(Event::Ping(payload)) => {
                    let _ = self.wire.send(frame::encode(PONG, &[&payload], None)).await;
                }
                Some(Event::Pong) => {}
                Some(Event::Close) => return Ok(None),
                None if fill(&mut self.reader, &mut self.buffer).await? => {}
                None => return Ok(None),
            }
        }
    }
}

/// How bytes become a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    Text,
    Binary,
    Base64,
}

/// A connection on which this side sends messages and the other side listens.
pub struct Messages {
    wire: Wire,
    payload: Payload,
    connection: Connection,
}

impl Messages {
    pub fn start<T: Io>(io: T, payload: Payload) -> Self {
        let (reader, writer) = tokio::io::split(io);
        let (wire, connection) = Wire::start(writer, frame::close());
        tokio::spawn(wire.clone().read(ignore(reader, wire.clone())));
        Self { wire, payload, connection }
    }

    pub async fn send(&self, bytes: &[u8]) -> Result<(), Closed> {
        let message = match self.payload {
            Payload::Text => frame::encode(TEXT, &[bytes], None),
            Payload::Binary => frame::encode(BINARY, &[bytes], None),
            Payload::Base64 => frame::encode(TEXT, &[STANDARD.encode(bytes).as_bytes()], None),
        };
        self.wire.send(message).await
    }

    /// Waits until the client has gone.
    pub async fn gone(&self) {
        self.connection.gone().await;
    }
}

async fn ignore<T: Io>(reader: ReadHalf<T>, wire: Wire) -> io::Result<()> {
    let mut incoming = Incoming::new(reader, wire);
    while incoming.piece().await?.is_some() {}
    Ok(())
}
