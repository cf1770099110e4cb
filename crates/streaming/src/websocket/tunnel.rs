//! A WebSocket as a plain connection: what is in its messages, one after the other, is what is read and written.

use tokio::io::{AsyncWriteExt, DuplexStream};

use super::{
    frame::{self, BINARY},
    messages::Incoming,
};
use crate::wire::{Io, READ_BYTES, Wire, fill};

/// The connection inside of a WebSocket. It ends when either of them does.
pub fn tunnel<T: Io>(io: T) -> DuplexStream {
    let (near, far) = tokio::io::duplex(2 * READ_BYTES);
    let (reader, writer) = tokio::io::split(io);
    let (wire, connection) = Wire::start(writer, frame::close());
    let (mut from_inside, mut to_inside) = tokio::io::split(far);
    let sender = wire.clone();
    tokio::spawn(async move {
        let mut buffer = bytes::BytesMut::new();
        while let Ok(true) = fill(&mut from_inside, &mut buffer).await {
            if sender.send(frame::encode(BINARY, &[&buffer.split()], None)).await.is_err() {
                break;
            }
        }
        drop(connection);
    });
    tokio::spawn(wire.clone().read(async move {
        let mut incoming = Incoming::new(reader, wire);
        while let Some((bytes, ..)) = incoming.piece().await? {
            to_inside.write_all(&bytes).await?;
        }
        to_inside.shutdown().await
    }));
    near
}
