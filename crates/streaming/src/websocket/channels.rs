//! Streams on a WebSocket: the first byte of each message is the number of its channel.
//!
//! In base64 the number is a digit and the rest of the message is encoded. In version 5 of remote commands, the number 255
//! followed by a channel's number ends that channel.

use std::{io, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use tokio::{io::AsyncRead, sync::mpsc};

use super::{
    frame::{self, BINARY, TEXT},
    messages::Incoming,
};
use crate::wire::{Connection, Form, Io, Sink, Source, Wire};

/// Ends a channel.
const END: u8 = 255;

/// Which way a channel is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Unused,
    In,
    Out,
    Both,
}

/// The channels of a connection, by number. Those that are not read have no source.
pub struct Channels {
    pub sources: Vec<Option<Source>>,
    sinks: Vec<Sink>,
    pub connection: Connection,
}

impl Channels {
    pub fn serve<T: Io>(io: T, channels: &[Channel], base64: bool, can_end: bool) -> Self {
        let (reader, writer) = tokio::io::split(io);
        let (wire, connection) = Wire::start(writer, frame::close());
        let (mut sources, mut sinks, mut senders) = (Vec::new(), Vec::new(), Vec::new());
        for (number, channel) in channels.iter().enumerate() {
            let (sender, source) = Source::new();
            let read = matches!(channel, Channel::In | Channel::Both);
            senders.push(read.then_some(sender));
            sources.push(read.then_some(source));
            let form = Form::Channel { number: number as u8, base64 };
            sinks.push(Sink::new(wire.clone(), form, Arc::default()));
        }
        let reading = Reading { senders, base64, can_end, to: None, rest: BytesMut::new() };
        tokio::spawn(wire.clone().read(reading.run(Incoming::new(reader, wire))));
        Self { sources, sinks, connection }
    }

    /// Where a channel's bytes go.
    pub fn sink(&self, number: usize) -> Option<Sink> {
        self.sinks.get(number).cloned()
    }
}

/// A message on a channel.
pub(crate) fn channel_frame(number: u8, base64: bool, bytes: &[u8]) -> Bytes {
    if base64 {
        frame::encode(TEXT, &[&[b'0'.wrapping_add(number)], STANDARD.encode(bytes).as_bytes()], None)
    } else {
        frame::encode(BINARY, &[&[number], bytes], None)
    }
}

struct Reading {
    senders: Vec<Option<mpsc::Sender<Bytes>>>,
    base64: bool,
    can_end: bool,
    /// The channel of the message that is coming in.
    to: Option<u8>,
    /// The end of a piece that cannot be decoded before the next one comes.
    rest: BytesMut,
}

impl Reading {
    async fn run(mut self, mut incoming: Incoming<impl AsyncRead + Unpin>) -> io::Result<()> {
        while let Some((mut bytes, first, last)) = incoming.piece().await? {
            if first {
                self.to = None;
                self.rest.clear();
            }
            if self.to.is_none() && !bytes.is_empty() {
                let number = bytes.split_to(1)[0];
                self.to = Some(if self.base64 { number.wrapping_sub(b'0') } else { number });
            }
            match self.to {
                Some(END) if self.can_end => self.end(&bytes, last)?,
                Some(number) => self.data(number, bytes).await?,
                None => {}
            }
        }
        Ok(())
    }

    /// Which channel ends is in the one byte after the signal.
    fn end(&mut self, bytes: &[u8], last: bool) -> io::Result<()> {
        self.rest.extend_from_slice(bytes);
        match (&*self.rest, last) {
            ([number], true) if usize::from(*number) < self.senders.len() => {
                self.senders[usize::from(*number)] = None;
                Ok(())
            }
            ([] | [_], false) => Ok(()),
            _ => Err(io::Error::other("a signal to end a channel that does not exist")),
        }
    }

    /// Hands on what is for a channel that is read, and drops the rest.
    async fn data(&mut self, number: u8, bytes: Bytes) -> io::Result<()> {
        let Some(Some(sender)) = self.senders.get(usize::from(number)) else { return Ok(()) };
        let bytes = if self.base64 {
            self.rest.extend_from_slice(&bytes);
            let whole = self.rest.len() / 4 * 4;
            STANDARD.decode(self.rest.split_to(whole)).map_err(io::Error::other)?.into()
        } else {
            bytes
        };
        if !bytes.is_empty() {
            // Nobody may be listening any more, which is not the client's fault.
            let _ = sender.send(bytes).await;
        }
        Ok(())
    }
}
