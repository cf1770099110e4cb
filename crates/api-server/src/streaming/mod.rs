//! The ways into a running pod: log, exec, attach, portforward and proxy, and watches over WebSockets.
//!
//! The API server runs no pod. It finds the node that does, asks admission, connects to the node's agent and passes bytes
//! both ways. Where agent and client speak different protocols it translates, as Kubernetes v1.36 does: an agent that
//! declares `ExtendWebSocketsToKubelet` gets every connection as it is; another one gets SPDY for the newest WebSocket
//! protocols.

mod agents;
mod connection;
mod exec;
mod log;
mod messages;
mod options;
mod pods;
mod proxy;
mod tunnel;

use std::net::SocketAddr;

pub use agents::Agents;
use hyper::{Method, Request, Response};
pub(crate) use messages::{Framing, over_websocket};
use object_model::status::Status;
use options::{AttachOptions, ExecOptions, PortForwardOptions};
use serde_json::{Value, json};

use crate::{
    admission::{Attributes, Operation},
    body::{Body, RequestBody},
    handlers::Call,
    request_info::pairs,
};

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientAddress(pub SocketAddr);

const PROXIED: [Method; 7] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS];

/// Is this a way into a pod?
pub(crate) fn serves(call: &Call<'_>) -> bool {
    let name = call.info.subresource.as_str();
    call.info.group.is_empty()
        && matches!(name, "attach" | "exec" | "log" | "portforward" | "proxy")
        && call.resource.subresource(name).is_some()
}

pub(crate) async fn handle(call: &Call<'_>, request: Request<RequestBody>) -> Result<Response<Body>, Status> {
    let subresource = call.info.subresource.as_str();
    let allowed = match subresource {
        "proxy" => &PROXIED[..],
        "log" => &[Method::GET],
        _ => &[Method::GET, Method::POST],
    };
    if !allowed.contains(request.method()) {
        return Err(Status::method_not_allowed());
    }
    if subresource == "log" {
        return log::get(call, request).await;
    }
    if pairs(&call.query).any(|(key, _)| key == "dryRun") {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    match subresource {
        "exec" => {
            let options = ExecOptions::read(&call.query);
            connect(call, options.object("PodExecOptions")).await?;
            exec::exec(call, request, &options).await
        }
        "attach" => {
            let options = AttachOptions::read(&call.query);
            connect(call, options.object("PodAttachOptions")).await?;
            exec::attach(call, request, &options).await
        }
        "portforward" => {
            let options = PortForwardOptions::read(&call.query)?;
            connect(call, options.object()).await?;
            exec::port_forward(call, request, &options).await
        }
        _ => {
            let kind = format!("{}ProxyOptions", call.resource.kind);
            connect(call, json!({"kind": kind, "apiVersion": "v1", "path": call.info.rest})).await?;
            proxy::handle(call, request).await
        }
    }
}

/// Asks admission whether the connection may be made. `options` is what the request asks for, as an object.
async fn connect(call: &Call<'_>, mut options: Value) -> Result<(), Status> {
    // A WebSocket begins with a GET, and whoever may only look must not come in that way.
    if call.info.verb != "create" && call.info.subresource != "proxy" {
        call.permit("create").await?;
    }
    let target = call.target();
    let attributes =
        Attributes { operation: Operation::Connect, target: &target, old: None, context: call.context, dry_run: false };
    let admission = &call.server.registry.admission;
    admission.mutate(&attributes, &mut options).await?;
    admission.validate(&attributes, &options).await.map(drop)
}
