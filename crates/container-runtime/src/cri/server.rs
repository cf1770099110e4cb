//! The server of the socket: each method of CRI, and our own.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
    sync::Arc,
};

use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{io::AsyncWriteExt, net::UnixListener, sync::mpsc};
use tonic::{Status, Streaming};

use super::{
    convert,
    grpc::{Answer, both, produced, streaming, unary},
    streams::{Asked, Handover},
    wire,
};
use crate::{
    Runtime,
    registry::{Progress, Watcher},
    services::{self, ImageService, RuntimeService, ServiceError, TerminalSize},
};

/// Serves a runtime on a socket until the future is dropped. Only the owner of the process can connect.
pub async fn serve(runtime: Runtime, socket: &Path) -> io::Result<()> {
    match fs::symlink_metadata(socket) {
        // Of a server that has ended: the runtime's folder has one at a time.
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(socket)?,
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} is in the way", socket.display())));
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    let handover = Handover::start(runtime.clone()).await?;
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection on the runtime's socket");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let (runtime, handover) = (runtime.clone(), handover.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let (runtime, handover) = (runtime.clone(), handover.clone());
                async move { Ok::<_, std::convert::Infallible>(answer(runtime, handover, request).await) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A client may leave whenever it wants.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(runtime: Runtime, handover: Arc<Handover>, request: hyper::Request<Incoming>) -> Answer {
    let path = request.uri().path().to_owned();
    if let Some(method) = path.strip_prefix(wire::IMAGES) {
        images(runtime, method, request)
    } else if let Some(method) = path.strip_prefix(wire::FERRY) {
        additions(runtime, method, request)
    } else if let Some(method) = path.strip_prefix(wire::RUNTIME) {
        match method {
            "RunPodSandbox" | "StopPodSandbox" | "RemovePodSandbox" | "PodSandboxStatus" | "ListPodSandbox" => {
                sandboxes(runtime, method, request)
            }
            "Exec" | "Attach" | "PortForward" => hand_over(handover, method, request),
            _ => containers(runtime, method, request),
        }
    } else {
        unknown(&path)
    }
}

fn unknown(method: &str) -> Answer {
    let status = Status::unimplemented(format!("this runtime has no method {method}"));
    Box::pin(std::future::ready(status.into_http()))
}

const NOTHING: wire::Empty = wire::Empty {};

fn missing(what: &str) -> ServiceError {
    ServiceError::InvalidArgument(format!("{what} is missing"))
}

fn sandboxes(runtime: Runtime, method: &str, request: hyper::Request<Incoming>) -> Answer {
    match method {
        "RunPodSandbox" => unary(request, |asked: wire::RunPodSandboxRequest| async move {
            let config = asked.config.ok_or_else(|| missing("the configuration"))?;
            let pod_sandbox_id = runtime.run_pod_sandbox(config.into()).await?;
            Ok(wire::PodSandboxId { pod_sandbox_id })
        }),
        "StopPodSandbox" => unary(request, |asked: wire::PodSandboxId| async move {
            runtime.stop_pod_sandbox(&asked.pod_sandbox_id).await.map(|()| NOTHING)
        }),
        "RemovePodSandbox" => unary(request, |asked: wire::PodSandboxId| async move {
            runtime.remove_pod_sandbox(&asked.pod_sandbox_id).await.map(|()| NOTHING)
        }),
        "PodSandboxStatus" => unary(request, |asked: wire::PodSandboxStatusRequest| async move {
            let status = runtime.pod_sandbox_status(&asked.pod_sandbox_id).await?;
            let info = if asked.verbose { info(&[("netns", &status.netns)]) } else { HashMap::new() };
            let containers_statuses = statuses(&runtime, &asked.pod_sandbox_id).await?;
            let timestamp = crate::state::now();
            Ok(wire::PodSandboxStatusResponse { status: Some(status.into()), info, containers_statuses, timestamp })
        }),
        _ => unary(request, |asked: wire::ListPodSandboxRequest| async move {
            let found = runtime.list_pod_sandbox(&asked.filter.unwrap_or_default().into()).await?;
            Ok(wire::ListPodSandboxResponse { items: found.into_iter().map(Into::into).collect() })
        }),
    }
}

/// What tools show when they are asked for more: one text in JSON.
fn info(fields: &[(&str, &str)]) -> wire::Map {
    let fields: serde_json::Map<String, serde_json::Value> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())).collect();
    HashMap::from([("info".to_owned(), serde_json::Value::Object(fields).to_string())])
}

async fn statuses(runtime: &Runtime, pod: &str) -> services::Result<Vec<wire::ContainerStatus>> {
    let filter = services::ContainerFilter { pod_sandbox_id: Some(pod.to_owned()), ..Default::default() };
    let mut all = Vec::new();
    for container in runtime.list_containers(&filter).await? {
        // One may be removed meanwhile.
        all.extend(runtime.container_status(&container.id).await.ok().map(Into::into));
    }
    Ok(all)
}

fn containers(runtime: Runtime, method: &str, request: hyper::Request<Incoming>) -> Answer {
    match method {
        "CreateContainer" => unary(request, |asked: wire::CreateContainerRequest| async move {
            let config = asked.config.ok_or_else(|| missing("the configuration"))?;
            let container_id = runtime.create_container(&asked.pod_sandbox_id, config.into()).await?;
            Ok(wire::ContainerId { container_id })
        }),
        "StartContainer" => unary(request, |asked: wire::ContainerId| async move {
            runtime.start_container(&asked.container_id).await.map(|()| NOTHING)
        }),
        "StopContainer" => unary(request, |asked: wire::StopContainerRequest| async move {
            runtime.stop_container(&asked.container_id, asked.timeout).await.map(|()| NOTHING)
        }),
        "RemoveContainer" => unary(request, |asked: wire::ContainerId| async move {
            runtime.remove_container(&asked.container_id).await.map(|()| NOTHING)
        }),
        "ListContainers" => unary(request, |asked: wire::ListContainersRequest| async move {
            let found = runtime.list_containers(&asked.filter.unwrap_or_default().into()).await?;
            Ok(wire::ListContainersResponse { containers: found.into_iter().map(Into::into).collect() })
        }),
        "ContainerStatus" => unary(request, |asked: wire::ContainerStatusRequest| async move {
            let status = runtime.container_status(&asked.container_id).await?;
            let pid = status.pid.unwrap_or(0).to_string();
            let pod = status.pod_sandbox_id.clone();
            let info = if asked.verbose { info(&[("pid", &pid), ("sandboxID", &pod)]) } else { HashMap::new() };
            Ok(wire::ContainerStatusResponse { status: Some(status.into()), info })
        }),
        "UpdateContainerResources" => unary(request, |asked: wire::UpdateContainerResourcesRequest| async move {
            let linux = asked.linux.unwrap_or_default().into();
            runtime.update_container_resources(&asked.container_id, linux).await.map(|()| NOTHING)
        }),
        "ReopenContainerLog" => unary(request, |asked: wire::ContainerId| async move {
            runtime.reopen_container_log(&asked.container_id).await.map(|()| NOTHING)
        }),
        "ExecSync" => unary(request, |asked: wire::ExecSyncRequest| async move {
            let done = runtime.exec_sync(&asked.container_id, asked.cmd, asked.timeout).await?;
            Ok(wire::ExecSyncResponse { stdout: done.stdout, stderr: done.stderr, exit_code: done.exit_code })
        }),
        _ => figures(runtime, method, request),
    }
}

fn figures(runtime: Runtime, method: &str, request: hyper::Request<Incoming>) -> Answer {
    match method {
        "Version" => unary(request, |_: wire::Empty| async move {
            let services::VersionResponse { version, runtime_name, runtime_version, runtime_api_version } =
                runtime.version().await?;
            Ok(wire::VersionResponse { version, runtime_name, runtime_version, runtime_api_version })
        }),
        "Status" => unary(request, |_: wire::Empty| async move { status(&runtime).await }),
        "RuntimeConfig" => {
            unary(request, |_: wire::Empty| async move {
                // Groups are made as files, whatever else manages others.
                let linux = wire::LinuxRuntimeConfiguration { cgroup_driver: 1 };
                Ok(wire::RuntimeConfigResponse { linux: Some(linux) })
            })
        }
        "UpdateRuntimeConfig" => unary(request, |_: wire::Empty| async move { Ok(NOTHING) }),
        "ContainerStats" => unary(request, |asked: wire::ContainerId| async move {
            let stats = runtime.container_stats(&asked.container_id).await?;
            Ok(wire::ContainerStatsResponse { stats: Some(stats.into()) })
        }),
        "ListContainerStats" => unary(request, |asked: wire::ListContainerStatsRequest| async move {
            let stats = runtime.list_container_stats(&asked.filter.unwrap_or_default().into()).await?;
            Ok(wire::ListContainerStatsResponse { stats: stats.into_iter().map(Into::into).collect() })
        }),
        "GetContainerEvents" => {
            let mut events = runtime.events();
            streaming(request, move |_: wire::Empty| {
                produced(|sender| async move {
                    while let Some(event) = events.recv().await {
                        if sender.send(Ok(told(&runtime, event).await)).is_err() {
                            return;
                        }
                    }
                })
            })
        }
        other => unknown(other),
    }
}

async fn status(runtime: &Runtime) -> services::Result<wire::StatusResponse> {
    let conditions = runtime.status().await?.into_iter().map(|condition| wire::RuntimeCondition {
        r#type: condition.r#type,
        status: condition.status,
        reason: condition.reason,
        message: condition.message,
    });
    let features = wire::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: false };
    Ok(wire::StatusResponse {
        status: Some(wire::RuntimeStatus { conditions: conditions.collect() }),
        info: HashMap::new(),
        runtime_handlers: vec![wire::RuntimeHandler { name: String::new(), features: Some(features) }],
        features: Some(wire::RuntimeFeatures { supplemental_groups_policy: true }),
    })
}

/// An event with how its pod is now, as CRI wants it.
async fn told(runtime: &Runtime, event: services::ContainerEvent) -> wire::ContainerEventResponse {
    wire::ContainerEventResponse {
        pod_sandbox_status: runtime.pod_sandbox_status(&event.pod_sandbox_id).await.ok().map(Into::into),
        containers_statuses: statuses(runtime, &event.pod_sandbox_id).await.unwrap_or_default(),
        container_id: event.container_id,
        container_event_type: convert::event_type(event.container_event_type),
        created_at: event.created_at,
    }
}

fn hand_over(handover: Arc<Handover>, method: &str, request: hyper::Request<Incoming>) -> Answer {
    match method {
        "Exec" => unary(request, move |asked: wire::ExecRequest| async move {
            Ok(wire::Url { url: handover.offer("exec", Asked::Exec(exec_request(asked)))? })
        }),
        "Attach" => unary(request, move |asked: wire::AttachRequest| async move {
            let wire::AttachRequest { container_id, stdin, tty, stdout, stderr } = asked;
            let request = services::AttachRequest { container_id, stdin, stdout, stderr };
            Ok(wire::Url { url: handover.offer("attach", Asked::Attach(request, tty))? })
        }),
        _ => unary(request, move |asked: wire::PortForwardRequest| async move {
            let asked = Asked::PortForward(asked.pod_sandbox_id, asked.port);
            Ok(wire::Url { url: handover.offer("portforward", asked)? })
        }),
    }
}

fn exec_request(asked: wire::ExecRequest) -> services::ExecRequest {
    let wire::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr } = asked;
    services::ExecRequest { container_id, cmd, tty, stdin, stdout, stderr: stderr && !tty }
}

fn images(runtime: Runtime, method: &str, request: hyper::Request<Incoming>) -> Answer {
    let name = |spec: Option<wire::ImageSpec>| spec.unwrap_or_default().image;
    match method {
        "ListImages" => unary(request, move |asked: wire::ListImagesRequest| async move {
            let filter = asked.filter.map(|filter| name(filter.image)).filter(|name| !name.is_empty());
            let images = runtime.list_images(filter.as_deref()).await?;
            Ok(wire::ListImagesResponse { images: images.into_iter().map(Into::into).collect() })
        }),
        "ImageStatus" => unary(request, move |asked: wire::ImageRequest| async move {
            let image = runtime.image_status(&name(asked.image)).await?;
            Ok(wire::ImageStatusResponse { image: image.map(Into::into), info: HashMap::new() })
        }),
        "PullImage" => unary(request, move |asked: wire::PullImageRequest| async move {
            let auth = asked.auth.map(Into::into);
            let image_ref = runtime.pull_image(&name(asked.image), auth.as_ref()).await?;
            Ok(wire::PullImageResponse { image_ref })
        }),
        "RemoveImage" => unary(request, move |asked: wire::ImageRequest| async move {
            runtime.remove_image(&name(asked.image)).await.map(|()| NOTHING)
        }),
        "ImageFsInfo" => unary(request, |_: wire::Empty| async move {
            let all: Vec<wire::FilesystemUsage> = runtime.image_fs_info().await?.into_iter().map(Into::into).collect();
            Ok(wire::ImageFsInfoResponse { container_filesystems: all.clone(), image_filesystems: all })
        }),
        other => unknown(other),
    }
}

fn additions(runtime: Runtime, method: &str, request: hyper::Request<Incoming>) -> Answer {
    match method {
        "Pull" => streaming(request, move |asked| transfer(runtime, asked, false)),
        "Push" => streaming(request, move |asked| transfer(runtime, asked, true)),
        "Import" => unary(request, |asked: wire::ImportRequest| async move {
            Ok(wire::ImportResponse { ids: runtime.import(asked.path).await? })
        }),
        "Exec" => both(request, move |input| exec(runtime, input)),
        other => unknown(other),
    }
}

fn transfer(runtime: Runtime, asked: wire::TransferRequest, push: bool) -> super::grpc::Messages<wire::Transfer> {
    produced(move |sender| async move {
        let progress = sender.clone();
        let watcher: Watcher = Arc::new(move |Progress { digest, done, total }| {
            let _ = progress.send(Ok(wire::Transfer { digest, done, total, result: String::new() }));
        });
        let auth = asked.auth.map(Into::into);
        let result = if push {
            runtime.images().push(&asked.image, &asked.name, auth.as_ref(), Some(watcher)).await
        } else {
            runtime.pull(&asked.image, auth.as_ref(), Some(watcher)).await
        };
        let last = result.map(|result| wire::Transfer { result, ..Default::default() });
        let _ = sender.send(last.map_err(Into::into));
    })
}

/// An exec on one connection.
fn exec(runtime: Runtime, input: Streaming<wire::ExecInput>) -> super::grpc::Messages<wire::ExecOutput> {
    produced(move |sender| async move {
        if let Err(error) = carry(&runtime, input, &sender).await {
            let _ = sender.send(Err(error));
        }
    })
}

type Outputs = mpsc::UnboundedSender<Result<wire::ExecOutput, Status>>;

async fn carry(runtime: &Runtime, mut input: Streaming<wire::ExecInput>, sender: &Outputs) -> Result<(), Status> {
    let first = input.message().await?.and_then(|message| message.start);
    let start = first.ok_or_else(|| Status::invalid_argument("what to execute is missing"))?;
    let services::Streams { stdin, stdout, stderr, resize, exit } = runtime.exec(exec_request(start)).await?;
    let inward = async {
        let mut stdin = stdin;
        while let Ok(Some(message)) = input.message().await {
            if let Some(to) = &mut stdin
                && !message.stdin.is_empty()
                && to.write_all(&message.stdin).await.is_err()
            {
                stdin = None;
            }
            if message.end {
                stdin = None;
            }
            if let (Ok(width @ 1..), Ok(height @ 1..)) = (u16::try_from(message.width), u16::try_from(message.height)) {
                let _ = resize.send(TerminalSize { width, height });
            }
        }
        // The process goes on without input.
        drop(stdin);
        std::future::pending::<()>().await;
    };
    let outward = async {
        tokio::join!(
            copy(stdout, |stdout| sender.send(Ok(wire::ExecOutput { stdout, ..Default::default() })).is_ok()),
            copy(stderr, |stderr| sender.send(Ok(wire::ExecOutput { stderr, ..Default::default() })).is_ok()),
        );
        exit.await
    };
    let exit = tokio::select! {
        exit = outward => exit,
        () = inward => return Ok(()),
    };
    let code = exit.map_err(|_| Status::unavailable("the pod's shim is gone"))??;
    let exit = Some(wire::Int64Value { value: code.into() });
    let _ = sender.send(Ok(wire::ExecOutput { exit, ..Default::default() }));
    Ok(())
}

async fn copy(source: Option<Box<dyn tokio::io::AsyncRead + Send + Unpin>>, send: impl Fn(Vec<u8>) -> bool) {
    let Some(mut source) = source else { return };
    let mut buffer = vec![0; 32 << 10];
    loop {
        match tokio::io::AsyncReadExt::read(&mut source, &mut buffer).await {
            Ok(length @ 1..) if send(buffer.get(..length).unwrap_or_default().to_vec()) => {}
            _ => return,
        }
    }
}
