//! Exec, attach, run and port-forward: the runtime's streams, carried over whichever protocol the client speaks.

use std::{future::Future, sync::Arc};

use container_runtime::{
    carrying::{self, Ending},
    services::{AttachRequest, ExecRequest, ServiceError},
};
use hyper::{Request, StatusCode, body::Incoming};
use k8s_openapi::api::core::v1::{Container, Pod};
use streaming::{
    port_forward,
    remote_command::{self, Outcome, RemoteCommand, Streams},
};

use super::{
    Server,
    answer::{Answer, Content, bad_request, not_found, text},
    query::Query,
};

/// How long a command of `run` may take, in seconds.
const RUN_WITHIN: i64 = 120;

/// Namespace, pod, uid if there is one, container.
pub(super) type Target<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

fn pod_of(server: &Server, namespace: &str, pod: &str, uid: Option<&str>) -> Result<Arc<Pod>, Answer> {
    let found = server.host.pod(namespace, pod);
    let found = found.filter(|found| uid.is_none_or(|uid| found.metadata.uid.as_deref() == Some(uid)));
    found.ok_or_else(|| not_found("pod does not exist"))
}

/// The pod and the runtime's id of its container.
fn container_of(server: &Server, (namespace, pod, uid, container): Target<'_>) -> Result<(Arc<Pod>, String), Answer> {
    let found = pod_of(server, namespace, pod, uid)?;
    let id = server.host.container(found.metadata.uid.as_deref().unwrap_or_default(), container);
    let id = id.ok_or_else(|| not_found(format!("container not found ({container:?})")))?;
    Ok((found, id))
}

fn streams(query: &Query<'_>) -> Streams {
    let asked = |name, old| query.is_set(name) || query.is_set(old);
    Streams {
        stdin: asked("input", "stdin"),
        stdout: asked("output", "stdout"),
        stderr: asked("error", "stderr"),
        tty: query.is_set("tty"),
    }
}

pub(super) async fn exec(server: &Arc<Server>, target: Target<'_>, request: &mut Request<Incoming>) -> Answer {
    let (_, id) = match container_of(server, target) {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let query = Query::of(request.uri());
    let cmd: Vec<String> = query.all("command").map(str::to_owned).collect();
    if cmd.is_empty() {
        return bad_request("a command is required");
    }
    let asked = streams(&query);
    drop(query);
    let runtime = server.settings.runtime.clone();
    upgraded(server, request, asked, move |remote| async move {
        let Streams { stdin, stdout, stderr, tty } = asked;
        let request = ExecRequest { container_id: id, cmd, tty, stdin, stdout, stderr: stderr && !tty };
        match runtime.exec(request).await {
            Ok(streams) => carrying::command(streams, remote, Ending::OfCommand).await,
            Err(error) => remote.finish(&Outcome::Failed(error.to_string())).await,
        }
    })
}

pub(super) async fn attach(server: &Arc<Server>, target: Target<'_>, request: &mut Request<Incoming>) -> Answer {
    let (pod, id) = match container_of(server, target) {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    // Whether it has a terminal was decided when it started.
    let asked = Streams { tty: has_terminal(&pod, target.3), ..streams(&Query::of(request.uri())) };
    let runtime = server.settings.runtime.clone();
    upgraded(server, request, asked, move |remote| async move {
        let Streams { stdin, stdout, stderr, tty } = asked;
        let request = AttachRequest { container_id: id, stdin, stdout, stderr: stderr && !tty };
        match runtime.attach(request).await {
            Ok(streams) => carrying::command(streams, remote, Ending::OfStreams).await,
            Err(error) => remote.finish(&Outcome::Failed(error.to_string())).await,
        }
    })
}

fn has_terminal(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let mut own = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let own = own.find(|container: &&Container| container.name == name).map(|container| container.tty);
    let ephemeral = || spec.ephemeral_containers.iter().flatten().find(|c| c.name == name).map(|c| c.tty);
    own.or_else(ephemeral).flatten().unwrap_or(false)
}

/// Answers with the upgrade, and carries on when it is done.
fn upgraded<F>(
    server: &Arc<Server>,
    request: &mut Request<Incoming>,
    asked: Streams,
    then: impl FnOnce(RemoteCommand) -> F + Send + 'static,
) -> Answer
where
    F: Future<Output = ()> + Send,
{
    let (response, pending) = match remote_command::accept(request, asked) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.response(),
    };
    let stop = server.stop.clone();
    tokio::spawn(async move {
        let carried = async {
            match pending.ready().await {
                Ok(remote) => then(remote).await,
                Err(error) => tracing::debug!(%error, "a client did not begin what it asked for"),
            }
        };
        stop.run_until_cancelled(carried).await;
    });
    response.map(|()| Content::Whole(None))
}

pub(super) async fn run(server: &Arc<Server>, target: Target<'_>, uri: &http::Uri) -> Answer {
    let (_, id) = match container_of(server, target) {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let query = Query::of(uri);
    let cmd: Vec<String> = query.get("cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
    match server.settings.runtime.exec_sync(&id, cmd, RUN_WITHIN).await {
        Ok(output) if output.exit_code == 0 => {
            let whole = [output.stdout, output.stderr].concat();
            text(StatusCode::OK, String::from_utf8_lossy(&whole))
        }
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let why = format!("command exited with {}: {}", output.exit_code, String::from_utf8_lossy(&said));
            text(StatusCode::INTERNAL_SERVER_ERROR, why)
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

pub(super) fn port_forward(
    server: &Arc<Server>,
    namespace: &str,
    pod: &str,
    uid: Option<&str>,
    request: &mut Request<Incoming>,
) -> Answer {
    let found = match pod_of(server, namespace, pod, uid) {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let Some(sandbox) = server.host.sandbox(found.metadata.uid.as_deref().unwrap_or_default()) else {
        return not_found(format!("not able to port-forward to the pod {pod:?}: it does not run"));
    };
    let ports: Vec<String> = Query::of(request.uri()).all("port").map(str::to_owned).collect();
    let (response, pending) = match port_forward::accept(request, &ports) {
        Ok(accepted) => accepted,
        Err(refusal) => return refusal.response(),
    };
    let (runtime, stop) = (server.settings.runtime.clone(), server.stop.clone());
    tokio::spawn(async move {
        let dial = |port| {
            let (runtime, sandbox) = (runtime.clone(), sandbox.clone());
            async move { runtime.port_forward(&sandbox, port).await.map_err(|error| unreachable(port, &sandbox, &error)) }
        };
        let carried = async {
            let Ok(forwards) = pending.ready().await else { return };
            carrying::ports(forwards, dial).await;
        };
        stop.run_until_cancelled(carried).await;
    });
    response.map(|()| Content::Whole(None))
}

fn unreachable(port: u16, sandbox: &str, error: &ServiceError) -> ServiceError {
    ServiceError::Internal(format!("error forwarding port {port} to pod {sandbox}, uid : {error}"))
}
