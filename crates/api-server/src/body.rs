//! Bodies: of answers, bytes at hand or a stream of them; of requests, from a connection or from this process.

use std::{
    any::Any,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::serving::turns;

/// A lazily made sequence of chunks. It is asked for the next one only when the connection can take it.
pub trait Chunks: Send {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// Whether the chunks come from another body. Then that one's count as pieces of a turn, and these do not: a turn in which
    /// this took the last piece before the other is asked would never get anywhere.
    fn is_derived(&self) -> bool {
        false
    }
}

pub enum Body {
    Empty,
    Full(Bytes),
    /// A long answer that ends by itself.
    List(Box<dyn Chunks>),
    /// A stream that goes on until somebody ends it.
    Chunks(Box<dyn Chunks>),
    /// What another server answers, until it ends or this server stops.
    Passed(Box<Passed>),
}

impl Body {
    /// The next bytes, `None` at the end. Only what is passed on can fail, which is an end too.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Body::Empty => Poll::Ready(None),
            Body::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Body::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(bytes))
            }
            Body::List(chunks) | Body::Chunks(chunks) => {
                if !chunks.is_derived() {
                    ready!(turns::poll_piece(cx));
                }
                chunks.poll_chunk(cx)
            }
            Body::Passed(passed) => passed.poll_bytes(cx).map(|chunk| chunk.and_then(Result::ok)),
        }
    }

    /// All of it, for a body that ends by itself.
    pub async fn collect(mut self) -> Bytes {
        let mut all = BytesMut::new();
        while let Some(bytes) = poll_fn(|cx| self.poll_bytes(cx)).await {
            all.extend_from_slice(&bytes);
        }
        all.freeze()
    }

    /// Keeps `guard` until the body has ended or is given up. One that is at hand has ended.
    pub fn guarded(self, guard: impl Send + 'static) -> Self {
        match self {
            Body::List(chunks) => Body::List(Box::new(Guarded { chunks, guard: Some(guard) })),
            Body::Chunks(chunks) => Body::Chunks(Box::new(Guarded { chunks, guard: Some(guard) })),
            Body::Passed(mut passed) => {
                passed.guards.push(Box::new(guard));
                Body::Passed(passed)
            }
            at_hand => at_hand,
        }
    }
}

/// What another server answers. It goes on until that ends it or this server stops.
pub struct Passed {
    body: Incoming,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Kept until the end.
    guards: Vec<Box<dyn Any + Send>>,
}

impl Passed {
    pub fn new(body: Incoming, stop: CancellationToken) -> Self {
        Self { body, stopped: Box::pin(stop.cancelled_owned()), guards: Vec::new() }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, hyper::Error>>> {
        let next = loop {
            if self.stopped.as_mut().poll(cx).is_ready() {
                break None;
            }
            // What is not data is a trailer, and nobody asked for those.
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Some(Err(error)) => break Some(Err(error)),
                None => break None,
            }
        };
        self.guards.clear();
        Poll::Ready(next)
    }
}

struct Guarded<T> {
    chunks: Box<dyn Chunks>,
    guard: Option<T>,
}

impl<T: Send> Chunks for Guarded<T> {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let chunk = self.chunks.poll_chunk(cx);
        if let Poll::Ready(None) = chunk {
            self.guard = None;
        }
        chunk
    }

    fn is_derived(&self) -> bool {
        self.chunks.is_derived()
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Body::Full(bytes.into())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let chunk = match &mut *self {
            Body::Passed(passed) => passed.poll_bytes(cx),
            body => body.poll_bytes(cx).map(|chunk| chunk.map(Ok)),
        };
        chunk.map(|chunk| chunk.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Empty)
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Empty => SizeHint::with_exact(0),
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::List(_) | Body::Chunks(_) => SizeHint::default(),
            Body::Passed(passed) => passed.body.size_hint(),
        }
    }
}

/// The body of a request.
pub enum RequestBody {
    /// As it comes in over a connection.
    Wire(Incoming),
    /// Handed over whole, by a component in this process.
    Whole(Bytes),
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            RequestBody::Wire(body) => Pin::new(body).poll_frame(cx),
            RequestBody::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Wire(body) => body.is_end_stream(),
            RequestBody::Whole(bytes) => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Wire(body) => body.size_hint(),
            RequestBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
