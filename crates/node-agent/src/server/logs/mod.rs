//! A container's log: what was asked for of it, and what it has of that.
//!
//! `files` are the log's files as one, rotated ones included; `line` is one line of them; `changes` wakes whoever follows.

mod changes;
mod files;
mod line;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use container_runtime::services::{ContainerEventType, ContainerState};
use hyper::StatusCode;
use k8s_openapi::{
    api::core::v1::{ContainerStatus, Pod},
    jiff::{SignedDuration, Timestamp},
};
use tokio::sync::mpsc;

use super::{
    Server,
    answer::{Answer, Content, bad_request, not_found, text, with_type},
    query::Query,
};
use changes::Changes;
use files::{Files, Reading};
use line::{Printer, Stream};

/// How many pieces wait for a slow client.
const WAITING: usize = 4;

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<u64>,
    limit: Option<u64>,
    stream: Option<Stream>,
}

impl Options {
    fn read(query: &Query<'_>, now: Timestamp) -> Result<Self, String> {
        let seconds = query.number("sinceSeconds")?;
        let time =
            query.get("sinceTime").map(|time| time.parse::<Timestamp>().map_err(|error| format!("sinceTime: {error}")));
        let since = match (seconds, time.transpose()?) {
            (Some(_), Some(_)) => return Err("at most one of sinceTime or sinceSeconds may be specified".into()),
            (Some(seconds), None) => {
                let seconds = i64::try_from(seconds).map_err(|_| "sinceSeconds is too large")?;
                now.checked_sub(SignedDuration::from_secs(seconds)).ok()
            }
            (None, time) => time,
        };
        let tail = match query.get("tail").filter(|tail| *tail != "all") {
            Some(_) => query.number("tail")?,
            None => query.number("tailLines")?,
        };
        let stream = match query.get("stream") {
            None | Some("All") => None,
            Some("Stdout") => Some(Stream::Stdout),
            Some("Stderr") => Some(Stream::Stderr),
            Some(other) => return Err(format!("invalid stream type {other:?}")),
        };
        Ok(Self {
            follow: query.is_set("follow"),
            previous: query.is_set("previous"),
            timestamps: query.is_set("timestamps"),
            since,
            tail,
            limit: query.number("limitBytes")?,
            stream,
        })
    }
}

pub(super) async fn answer(
    server: &Arc<Server>,
    namespace: &str,
    pod: &str,
    container: &str,
    uri: &http::Uri,
) -> Answer {
    let options = match Options::read(&Query::of(uri), server.settings.clock.now()) {
        Ok(options) => options,
        Err(why) => return bad_request(why),
    };
    let Some(found) = server.host.pod(namespace, pod) else {
        return not_found(format!("pod {pod:?} does not exist"));
    };
    if !has_container(&found, container) {
        return not_found(format!("container {container:?} not found in pod {pod:?}"));
    }
    let uid = found.metadata.uid.as_deref().unwrap_or_default();
    let id = match options.previous {
        true => previous_of(&found, container),
        false => server.host.container(uid, container),
    };
    let Some(id) = id else {
        return bad_request(why_none(&found, container, options.previous));
    };
    // Before the status is looked at, so that an end in between is not missed.
    let ended = options.follow.then(|| server.settings.runtime.events());
    let status = match server.settings.runtime.container_status(&id).await {
        Ok(status) => status,
        Err(error) => {
            return bad_request(format!("failed to try resolving the log of container {container:?}: {error}"));
        }
    };
    let running = matches!(status.state, ContainerState::Running | ContainerState::Created);
    let path = PathBuf::from(status.log_path);
    let opened = {
        let (path, tail) = (path.clone(), options.tail);
        tokio::task::spawn_blocking(move || Files::open(&path, tail)).await
    };
    let files = match opened.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
        Ok(files) => files,
        Err(error) => {
            return text(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("failed to open the log of {container:?}: {error}"),
            );
        }
    };
    let (sender, pieces) = mpsc::channel(WAITING);
    let follow = ended.filter(|_| running);
    let stop = server.stop.clone();
    tokio::spawn(async move {
        let printer = Printer::new(options.timestamps, options.since, options.stream, options.limit);
        let lines = options.tail.filter(|_| !options.follow);
        let printing = async {
            match follow {
                None => drop(send(files, printer, lines, &sender).await),
                Some(events) => {
                    let ended = async move {
                        let mut events = events;
                        while let Some(event) = events.recv().await {
                            let ends = [ContainerEventType::Stopped, ContainerEventType::Deleted];
                            if event.container_id == id && ends.contains(&event.container_event_type) {
                                return;
                            }
                        }
                    };
                    follow_log(path, files, printer, ended, &sender).await;
                }
            }
        };
        tokio::select! {
            () = printing => {}
            // The client has gone.
            () = sender.closed() => {}
            () = stop.cancelled() => {}
        }
    });
    with_type(StatusCode::OK, "text/plain; charset=utf-8", Content::Pieces(pieces))
}

/// Sends everything up to the end there is now. `None` when no more is wanted.
async fn send(
    mut files: Files,
    mut printer: Printer,
    mut lines: Option<u64>,
    sender: &mpsc::Sender<Bytes>,
) -> Option<(Files, Printer)> {
    loop {
        let reading = tokio::task::spawn_blocking(move || {
            let read = files.print(&mut printer, &mut lines);
            (files, printer, lines, read)
        });
        let Ok((files_back, printer_back, lines_back, read)) = reading.await else { return None };
        (files, printer, lines) = (files_back, printer_back, lines_back);
        match read {
            Ok(Reading::Some(piece)) => sender.send(piece).await.ok()?,
            Ok(Reading::End(piece)) => {
                if !piece.is_empty() {
                    sender.send(piece).await.ok()?;
                }
                let more = !printer.is_done() && lines != Some(0);
                return more.then_some((files, printer));
            }
            Err(error) => {
                tracing::warn!(%error, "a container's log cannot be read to its end");
                return None;
            }
        }
    }
}

/// Sends what is there and what comes, until the container has ended.
async fn follow_log(
    path: PathBuf,
    files: Files,
    printer: Printer,
    ended: impl Future<Output = ()>,
    sender: &mpsc::Sender<Bytes>,
) {
    let mut changes = match path.parent().map(Changes::watch) {
        Some(Ok(changes)) => changes,
        _ => {
            tracing::warn!(path = %path.display(), "a container's log cannot be watched");
            return;
        }
    };
    let mut ended = std::pin::pin!(ended);
    let (mut state, mut is_last) = (Some((files, printer)), false);
    while let Some((files, printer)) = state.take() {
        state = send(files, printer, None, sender).await;
        if is_last {
            return;
        }
        tokio::select! {
            changed = changes.next() => if changed.is_err() { return },
            // The log is complete then.
            () = &mut ended => is_last = true,
        }
    }
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let own =
        spec.containers.iter().chain(spec.init_containers.iter().flatten()).any(|container| container.name == name);
    own || spec.ephemeral_containers.iter().flatten().any(|container| container.name == name)
}

fn status_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a ContainerStatus> {
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == name)
}

/// The run before the one that the status is about, which may be one that waits to begin.
fn previous_of(pod: &Pod, name: &str) -> Option<String> {
    let ended = status_of(pod, name)?.last_state.as_ref()?.terminated.as_ref()?;
    ended.container_id.as_deref()?.split_once("://").map(|(_, id)| id.to_owned())
}

/// Why a container has no log yet.
fn why_none(pod: &Pod, name: &str, previous: bool) -> String {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    if previous {
        return format!("previous terminated container {name:?} in pod {pod_name:?} not found");
    }
    let found = status_of(pod, name);
    let waiting = found.and_then(|status| status.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    match (found, waiting) {
        (None, _) => format!("container {name:?} in pod {pod_name:?} is not available"),
        (_, Some("ErrImagePull")) => {
            format!("container {name:?} in pod {pod_name:?} is waiting to start: image can't be pulled")
        }
        (_, Some("ImagePullBackOff")) => {
            format!("container {name:?} in pod {pod_name:?} is waiting to start: trying and failing to pull image")
        }
        (_, Some(reason)) => format!("container {name:?} in pod {pod_name:?} is waiting to start: {reason}"),
        (Some(status), None) if status.state.as_ref().is_some_and(|state| state.terminated.is_some()) => {
            format!("container {name:?} in pod {pod_name:?} is terminated")
        }
        _ => format!("container {name:?} in pod {pod_name:?} is waiting to start - no logs yet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let now = Timestamp::from_second(1000).expect("a time");
        let read = |query: &str| {
            let uri: http::Uri = format!("/x?{query}").parse().expect("a URI");
            Options::read(&Query::of(&uri), now)
        };
        let options = read("follow=true&timestamps=true&tailLines=5&limitBytes=7&sinceSeconds=10&previous=true")
            .expect("options");
        assert!(options.follow && options.timestamps && options.previous);
        assert_eq!((options.tail, options.limit), (Some(5), Some(7)));
        assert_eq!(options.since, Timestamp::from_second(990).ok());
        assert_eq!(read("tail=3").expect("options").tail, Some(3));
        assert_eq!(read("tail=all").expect("options").tail, None);
        assert_eq!(read("stream=Stderr").expect("options").stream, Some(Stream::Stderr));
        assert_eq!(read("sinceTime=1970-01-01T00:00:05Z").expect("options").since, Timestamp::from_second(5).ok());
        for query in [
            "tailLines=-1",
            "limitBytes=x",
            "stream=None",
            "sinceTime=now",
            "sinceTime=1970-01-01T00:00:05Z&sinceSeconds=1",
        ] {
            read(query).expect_err(query);
        }
    }

    #[test]
    fn a_container_without_a_log_says_why() {
        let pod = |state: serde_json::Value| -> Pod {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "p"}, "spec": {"containers": []},
                "status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": state}]}}))
            .expect("a pod")
        };
        let waiting = |reason: &str| serde_json::json!({"waiting": {"reason": reason}});
        for (state, why) in [
            (waiting("ErrImagePull"), "is waiting to start: image can't be pulled"),
            (waiting("ImagePullBackOff"), "is waiting to start: trying and failing to pull image"),
            (waiting("ContainerCreating"), "is waiting to start: ContainerCreating"),
            (serde_json::json!({}), "is waiting to start - no logs yet"),
        ] {
            assert_eq!(why_none(&pod(state), "c", false), format!("container \"c\" in pod \"p\" {why}"));
        }
        assert_eq!(why_none(&pod(waiting("x")), "d", false), "container \"d\" in pod \"p\" is not available");
        assert_eq!(
            why_none(&pod(waiting("x")), "c", true),
            "previous terminated container \"c\" in pod \"p\" not found"
        );
    }
}
