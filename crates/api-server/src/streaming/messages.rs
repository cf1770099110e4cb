//! Answers over a WebSocket: what would be the body of an answer, as messages.

use std::future::poll_fn;

use bytes::{Buf, BytesMut};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use object_model::status::Status;
use streaming::{
    upgrade,
    websocket::{Messages, Payload},
};

use super::tunnel;
use crate::body::{Body, RequestBody};

/// What becomes a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Each chunk as it comes, after an empty message that says that there is a connection.
    Chunks,
    /// Each line, without its end.
    Lines,
    /// Each piece with its length in four bytes before it, without these.
    Frames,
}

/// Answers with a WebSocket that tells the body.
pub(crate) fn over_websocket(
    mut request: Request<RequestBody>,
    body: Body,
    framing: Framing,
    over: impl Future<Output = ()> + Send + 'static,
) -> Result<Response<Body>, Status> {
    let known = ["", "binary.k8s.io", "base64.binary.k8s.io"];
    let (response, protocol) = upgrade::websocket(request.headers(), &known).map_err(tunnel::refused)?;
    let payload = match (protocol, framing) {
        ("base64.binary.k8s.io", _) => Payload::Base64,
        ("", Framing::Lines) => Payload::Text,
        _ => Payload::Binary,
    };
    let upgrading = upgrade::take(&mut request).map_err(tunnel::refused)?;
    tokio::spawn(async move {
        let Ok(client) = upgrading.await else { return };
        let messages = Messages::start(TokioIo::new(client), payload);
        tokio::select! {
            () = tell(body, &messages, framing) => {}
            () = messages.gone() => {}
            () = over => {}
        }
    });
    Ok(response.map(|()| Body::Empty))
}

async fn tell(mut body: Body, messages: &Messages, framing: Framing) {
    if framing == Framing::Chunks && messages.send(&[]).await.is_err() {
        return;
    }
    let mut read = BytesMut::new();
    while let Some(bytes) = poll_fn(|cx| body.poll_bytes(cx)).await {
        read.extend_from_slice(&bytes);
        while let Some(message) = framing.message(&mut read) {
            if messages.send(&message).await.is_err() {
                return;
            }
        }
    }
}

impl Framing {
    /// The next message in what was read, if it is there.
    fn message(self, read: &mut BytesMut) -> Option<BytesMut> {
        match self {
            Framing::Chunks => (!read.is_empty()).then(|| read.split()),
            Framing::Lines => {
                let end = read.iter().position(|b| *b == b'\n')?;
                let mut line = read.split_to(end + 1);
                line.truncate(end);
                Some(line)
            }
            Framing::Frames => {
                let length = u32::from_be_bytes(*read.first_chunk::<4>()?) as usize;
                if read.len() < 4 + length {
                    return None;
                }
                read.advance(4);
                Some(read.split_to(length))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_a_message() {
        let all = |framing: Framing, text: &[u8]| {
            let mut read = BytesMut::from(text);
            let messages: Vec<BytesMut> = std::iter::from_fn(|| framing.message(&mut read)).collect();
            (messages, read)
        };
        assert_eq!(all(Framing::Chunks, b"a\nb"), (vec!["a\nb".into()], BytesMut::new()));
        assert_eq!(all(Framing::Lines, b"a\n\nb"), (vec!["a".into(), "".into()], "b".into()));
        assert_eq!(all(Framing::Frames, b"\0\0\0\x01a\0\0\0\x02b"), (vec!["a".into()], "\0\0\0\x02b".into()));
    }
}
