//! A client of a runtime's socket.

use std::path::Path;

use futures::Stream;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::{
    Request, Status, Streaming,
    client::Grpc,
    codegen::http::uri::PathAndQuery,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;

use super::grpc::LARGEST_MESSAGE;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot reach the runtime on {socket}: {error}")]
    Unreachable { socket: String, error: String },
    #[error("{}", .0.message())]
    Refused(#[from] Box<Status>),
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

#[derive(Clone)]
pub struct Client {
    grpc: Grpc<Channel>,
}

impl Client {
    pub async fn connect(socket: &Path) -> Result<Self, ClientError> {
        let unreachable = |error: &dyn std::error::Error| {
            let error = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            ClientError::Unreachable { socket: socket.display().to_string(), error }
        };
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        // A socket has no host; the protocol wants one.
        let endpoint = Endpoint::from_static("http://localhost");
        let channel = endpoint.connect_with_connector(connector).await.map_err(|error| unreachable(&error))?;
        let grpc = Grpc::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
        Ok(Self { grpc })
    }

    async fn ready(&self, service: &str, method: &str) -> Result<(Grpc<Channel>, PathAndQuery), ClientError> {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::try_from(format!("{service}{method}"));
        Ok((grpc, path.map_err(|error| Status::internal(error.to_string()))?))
    }

    /// Asks with one message, and gets one.
    pub async fn call<M, A>(&self, service: &str, method: &str, message: M) -> Result<A, ClientError>
    where
        M: Message + 'static,
        A: Message + Default + 'static,
    {
        let (mut grpc, path) = self.ready(service, method).await?;
        Ok(grpc.unary(Request::new(message), path, ProstCodec::<M, A>::default()).await?.into_inner())
    }

    /// Asks with one message, and gets many.
    pub async fn watch<M, A>(&self, service: &str, method: &str, message: M) -> Result<Streaming<A>, ClientError>
    where
        M: Message + 'static,
        A: Message + Default + 'static,
    {
        let (mut grpc, path) = self.ready(service, method).await?;
        Ok(grpc.server_streaming(Request::new(message), path, ProstCodec::<M, A>::default()).await?.into_inner())
    }

    /// Sends messages and gets messages, at once.
    pub async fn talk<M, A>(
        &self,
        service: &str,
        method: &str,
        messages: impl Stream<Item = M> + Send + 'static,
    ) -> Result<Streaming<A>, ClientError>
    where
        M: Message + 'static,
        A: Message + Default + 'static,
    {
        let (mut grpc, path) = self.ready(service, method).await?;
        Ok(grpc.streaming(Request::new(messages), path, ProstCodec::<M, A>::default()).await?.into_inner())
    }
}
