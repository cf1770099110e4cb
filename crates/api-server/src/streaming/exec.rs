//! Exec, attach and port-forward: an upgraded connection to the agent of the pod's node.

use hyper::{Request, Response, header};
use hyper_util::rt::TokioIo;
use object_model::status::Status;
use streaming::{
    port_forward,
    remote_command::{self, Outcome, Remote, RemoteCommand, Streams},
    upgrade, websocket,
};
use tokio_util::sync::CancellationToken;

use super::{
    agents::Agents,
    connection::{self, Place},
    options::{AttachOptions, ExecOptions, PortForwardOptions},
    pods,
    tunnel::{self, Answer},
};
use crate::{
    body::{Body, RequestBody},
    handlers::Call,
};

/// The longest outcome that is passed on.
const OUTCOME_BYTES: usize = 64 << 10;

pub async fn exec(
    call: &Call<'_>,
    request: Request<RequestBody>,
    options: &ExecOptions,
) -> Result<Response<Body>, Status> {
    let mut query = options.attach.agent_query();
    query.extend(options.command.iter().map(|word| ("command", word.clone())));
    remote_command(call, request, "exec", &options.attach, &query).await
}

pub async fn attach(
    call: &Call<'_>,
    request: Request<RequestBody>,
    options: &AttachOptions,
) -> Result<Response<Body>, Status> {
    remote_command(call, request, "attach", options, &options.agent_query()).await
}

async fn remote_command(
    call: &Call<'_>,
    request: Request<RequestBody>,
    what: &str,
    options: &AttachOptions,
    query: &[(&str, String)],
) -> Result<Response<Body>, Status> {
    let pod = pods::pod(call).await?;
    let container = pods::container(&pod, &options.container)?;
    let agent = pods::agent(call, &pod).await?.ok_or_else(|| no_host(call))?;
    let place = agent.place(agents(call)?, false);
    let uri = connection::uri(&[what, &call.info.namespace, &call.info.name, &container], query)?;
    upgrade_required(&request)?;
    if agent.speaks_websocket || !asks_for(&request, |protocol| protocol == remote_command::V5) {
        return tunnel::pass(call, &place, request, uri, &place.authority()).await;
    }
    let asked = tunnel::spdy(&request, uri, &place.authority(), &remote_command::SPDY_PROTOCOLS[..1])?;
    translate(call, &place, request, asked, options.streams).await
}

/// A WebSocket for the client, SPDY for the agent, and the same streams on both.
async fn translate(
    call: &Call<'_>,
    place: &Place,
    mut request: Request<RequestBody>,
    asked: Request<RequestBody>,
    streams: Streams,
) -> Result<Response<Body>, Status> {
    let (response, pending) = remote_command::accept(&mut request, streams).map_err(tunnel::refused)?;
    let behind = match tunnel::ask(call, place, asked).await? {
        Answer::Refused(response) => return Ok(response),
        Answer::Upgraded { io, .. } => io,
    };
    let drain = call.server.drain.clone();
    tokio::spawn(async move {
        match pending.ready().await {
            Ok(command) => carry(command, remote_command::connect(behind, streams).await, drain).await,
            Err(error) => tracing::debug!(%error, "a connection was not upgraded"),
        }
    });
    Ok(response.map(|()| Body::Empty))
}

/// Carries a command's streams until it ends, the client goes or the server stops.
async fn carry(mut command: RemoteCommand, remote: Remote, drain: CancellationToken) {
    let Remote { stdin, stdout, stderr, mut error, resize, connection: _behind } = remote;
    let (input, sizes) = (command.stdin.take(), command.sizes.take());
    let inward = async move {
        let typed = async {
            if let (Some(mut from), Some(to)) = (input, stdin) {
                while let Some(bytes) = from.next().await {
                    if to.send(&bytes).await.is_err() {
                        return;
                    }
                }
                to.close().await;
            }
        };
        let resized = async {
            if let (Some(mut from), Some(to)) = (sizes, resize) {
                while let Some(bytes) = from.raw().await {
                    if to.send(&bytes).await.is_err() {
                        return;
                    }
                }
            }
        };
        tokio::join!(typed, resized);
        // The command goes on without input.
        std::future::pending::<()>().await;
    };
    let outward = async {
        let printed = async |from, to: &Option<streaming::Sink>| {
            if let (Some(from), Some(to)) = (from, to) {
                let _ = to.copy_from(from).await;
            }
        };
        let printed = futures::future::join(printed(stdout, &command.stdout), printed(stderr, &command.stderr));
        futures::future::join(printed, error.all(OUTCOME_BYTES)).await.1
    };
    tokio::select! {
        outcome = outward => match outcome.is_empty() {
            false => command.finish_with(&outcome).await,
            true => {
                let why = "the node's agent closed the connection before it told the outcome";
                command.finish(&Outcome::Failed(why.into())).await;
            }
        },
        () = inward => {}
        () = command.connection.gone() => {}
        () = drain.cancelled() => {}
    }
}

pub async fn port_forward(
    call: &Call<'_>,
    mut request: Request<RequestBody>,
    options: &PortForwardOptions,
) -> Result<Response<Body>, Status> {
    let pod = pods::pod(call).await?;
    let agent = pods::agent(call, &pod).await?.ok_or_else(|| no_host(call))?;
    let place = agent.place(agents(call)?, false);
    let ports: Vec<String> = options.ports.iter().map(i32::to_string).collect();
    let query = if ports.is_empty() { Vec::new() } else { vec![("port", ports.join(","))] };
    let uri = connection::uri(&["portForward", &call.info.namespace, &call.info.name], &query)?;
    upgrade_required(&request)?;
    let host = place.authority();
    if agent.speaks_websocket || !asks_for(&request, |protocol| protocol == port_forward::TUNNELLED) {
        return tunnel::pass(call, &place, request, uri, &host).await;
    }
    let asked = tunnel::spdy(&request, uri, &host, &[port_forward::PROTOCOL])?;
    let known = [port_forward::TUNNELLED];
    let (response, _) = upgrade::websocket(request.headers(), &known).map_err(tunnel::refused)?;
    let upgrading = upgrade::take(&mut request).map_err(tunnel::refused)?;
    let behind = match tunnel::ask(call, &place, asked).await? {
        Answer::Refused(response) => return Ok(response),
        Answer::Upgraded { io, .. } => io,
    };
    let drain = call.server.drain.clone();
    tokio::spawn(async move {
        let Ok(client) = upgrading.await else { return };
        tunnel::join(websocket::tunnel(TokioIo::new(client)), behind, drain).await;
    });
    Ok(response.map(|()| Body::Empty))
}

/// The means to reach agents, which a server without nodes may lack.
pub fn agents<'a>(call: &'a Call<'_>) -> Result<&'a Agents, Status> {
    let none = || Status::service_unavailable("this server was started without a way to reach the agents of nodes");
    call.server.agents.as_deref().ok_or_else(none)
}

fn no_host(call: &Call<'_>) -> Status {
    Status::bad_request(format!("pod {} does not have a host assigned", call.info.name))
}

fn upgrade_required(request: &Request<RequestBody>) -> Result<(), Status> {
    if upgrade::is_asked(request.headers()) { Ok(()) } else { Err(Status::bad_request("Upgrade request required")) }
}

/// Does the client want a WebSocket with such a protocol?
fn asks_for(request: &Request<RequestBody>, protocol: impl Fn(&str) -> bool) -> bool {
    let headers = request.headers();
    upgrade::is_websocket(headers) && upgrade::list(headers, &header::SEC_WEBSOCKET_PROTOCOL).any(protocol)
}
