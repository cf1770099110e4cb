//! How a component reaches the API: over HTTPS, or in the same process. Either way it is a `kube::Client`.

use std::path::Path;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::USER_AGENT};
use kube::{
    Client, Config,
    client::Body,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, service_fn};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error("this does not run in a pod of a cluster: {0}")]
    InCluster(#[from] InClusterError),
    #[error("cannot make a client: {0}")]
    Client(#[from] kube::Error),
    #[error("{0:?} cannot be the name of a program")]
    Program(String),
}

/// As the current context of a kubeconfig says. `program` is how the component goes by in `managedFields`.
pub async fn from_kubeconfig(file: &Path, program: &str) -> Result<Client, Error> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    over_https(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?, program)
}

/// As the service account of the pod this runs in.
pub fn in_cluster(program: &str) -> Result<Client, Error> {
    over_https(Config::incluster()?, program)
}

fn over_https(mut config: Config, program: &str) -> Result<Client, Error> {
    config.headers.push((USER_AGENT, header(program)?));
    // Who writes decides itself whether to try again; a write must not be sent twice behind its back.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// In the same process: `answer` takes a request through the server under an identity of its choice, which travels beside
/// the request and never in a header.
pub fn in_process<F, A, B>(answer: F, program: &str) -> Result<Client, Error>
where
    F: Fn(Request<Bytes>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response<B>> + Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let agent = header(program)?;
    let service = service_fn(move |request: Request<Body>| {
        let (answer, agent) = (answer.clone(), agent.clone());
        async move {
            let (mut head, body) = request.into_parts();
            head.headers.insert(USER_AGENT, agent);
            let body = body.collect_bytes().await?;
            Ok::<_, BoxError>(answer(Request::from_parts(head, body)).await)
        }
    });
    Ok(Client::new(service, "default"))
}

fn header(program: &str) -> Result<HeaderValue, Error> {
    HeaderValue::from_str(program).map_err(|_| Error::Program(program.to_owned()))
}
