//! Handlers as tonic takes them, without code made by a protobuf compiler.

use std::{marker::PhantomData, pin::Pin};

use futures::{Stream, future::BoxFuture, stream::BoxStream};
use hyper::body::Incoming;
use prost::Message;
use tonic::{
    Request, Response, Status, Streaming,
    body::Body,
    server::{Grpc, ServerStreamingService, StreamingService, UnaryService},
};
use tonic_prost::ProstCodec;

use crate::services::ServiceError;

/// As large as others allow.
pub(super) const LARGEST_MESSAGE: usize = 16 << 20;

/// The answer to a request, in a box so that the compiler need not look into it everywhere.
pub(super) type Answer = BoxFuture<'static, hyper::Response<Body>>;

type Reply<A> = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let text = error.to_string();
        match error {
            ServiceError::NotFound(_) => Self::not_found(text),
            ServiceError::InvalidArgument(_) => Self::invalid_argument(text),
            ServiceError::AlreadyExists(_) => Self::already_exists(text),
            ServiceError::FailedPrecondition(_) => Self::failed_precondition(text),
            ServiceError::DeadlineExceeded(_) => Self::deadline_exceeded(text),
            ServiceError::Unimplemented(_) => Self::unimplemented(text),
            ServiceError::Internal(_) => Self::unknown(text),
        }
    }
}

/// Work that is done once.
struct Handler<W, F>(Option<W>, PhantomData<fn() -> F>);

fn twice() -> Status {
    Status::internal("a request was handled twice")
}

impl<M, A, W, F> UnaryService<M> for Handler<W, F>
where
    M: Send + 'static,
    A: Send + 'static,
    W: FnOnce(M) -> F + Send + 'static,
    F: Future<Output = Result<A, ServiceError>> + Send + 'static,
{
    type Response = A;
    type Future = Reply<A>;

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let work = self.0.take();
        Box::pin(async move { Ok(Response::new(work.ok_or_else(twice)?(request.into_inner()).await?)) })
    }
}

/// Answers one message with one.
pub(super) fn unary<M, A, W, F>(request: hyper::Request<Incoming>, work: W) -> Answer
where
    M: Message + Default + 'static,
    A: Message + 'static,
    W: FnOnce(M) -> F + Send + 'static,
    F: Future<Output = Result<A, ServiceError>> + Send + 'static,
{
    let grpc = Grpc::new(ProstCodec::<A, M>::default()).max_decoding_message_size(LARGEST_MESSAGE);
    let mut grpc = grpc.max_encoding_message_size(LARGEST_MESSAGE);
    Box::pin(async move { grpc.unary(Handler(Some(work), PhantomData), request).await })
}

/// The messages of a stream.
pub(super) type Messages<A> = BoxStream<'static, Result<A, Status>>;

struct Streamer<W>(Option<W>);

impl<M, A, W> ServerStreamingService<M> for Streamer<W>
where
    M: Send + 'static,
    A: Send + 'static,
    W: FnOnce(M) -> Messages<A> + Send + 'static,
{
    type Response = A;
    type ResponseStream = Messages<A>;
    type Future = Reply<Messages<A>>;

    fn call(&mut self, request: Request<M>) -> Self::Future {
        let work = self.0.take();
        Box::pin(async move { Ok(Response::new(work.ok_or_else(twice)?(request.into_inner()))) })
    }
}

/// Answers one message with many.
pub(super) fn streaming<M, A, W>(request: hyper::Request<Incoming>, work: W) -> Answer
where
    M: Message + Default + 'static,
    A: Message + 'static,
    W: FnOnce(M) -> Messages<A> + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, M>::default());
    Box::pin(async move { grpc.server_streaming(Streamer(Some(work)), request).await })
}

struct Talker<W>(Option<W>);

impl<M, A, W> StreamingService<M> for Talker<W>
where
    M: Send + 'static,
    A: Send + 'static,
    W: FnOnce(Streaming<M>) -> Messages<A> + Send + 'static,
{
    type Response = A;
    type ResponseStream = Messages<A>;
    type Future = Reply<Messages<A>>;

    fn call(&mut self, request: Request<Streaming<M>>) -> Self::Future {
        let work = self.0.take();
        Box::pin(async move { Ok(Response::new(work.ok_or_else(twice)?(request.into_inner()))) })
    }
}

/// Answers many messages with many, at once.
pub(super) fn both<M, A, W>(request: hyper::Request<Incoming>, work: W) -> Answer
where
    M: Message + Default + 'static,
    A: Message + 'static,
    W: FnOnce(Streaming<M>) -> Messages<A> + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<A, M>::default());
    Box::pin(async move { grpc.streaming(Talker(Some(work)), request).await })
}

/// The messages that some work sends while it is done. A client that goes away ends the work.
pub(super) fn produced<A, F>(
    work: impl FnOnce(tokio::sync::mpsc::UnboundedSender<Result<A, Status>>) -> F,
) -> Messages<A>
where
    A: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let working = work(sender);
    Box::pin(Produced { working: Some(Box::pin(working)), receiver })
}

struct Produced<A> {
    working: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    receiver: tokio::sync::mpsc::UnboundedReceiver<Result<A, Status>>,
}

impl<A> Stream for Produced<A> {
    type Item = Result<A, Status>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        if let Some(working) = &mut self.working
            && working.as_mut().poll(context).is_ready()
        {
            self.working = None;
        }
        self.receiver.poll_recv(context)
    }
}
