//! `ferry ctr`: the containers of a node as its runtime sees them, whatever the API says.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use container_runtime::cri::wire::{self, FERRY, RUNTIME};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::{signal::unix::SignalKind, sync::mpsc};

use super::{
    runtime::{self, Client, age, human, short, table},
    up::{default_data_dir, hint_of_no_cluster},
};

/// How often a log that is followed is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Args)]
pub struct Ctr {
    /// The data folder of the cluster, or of one of its nodes
    #[arg(long, value_name = "FOLDER", global = true, default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the pods
    Pods,
    /// List the containers that run
    Ps {
        /// Also those that do not
        #[arg(short, long)]
        all: bool,
    },
    /// Show all that is known of a container or a pod
    Inspect { id: String },
    /// Print a container's log
    Logs {
        id: String,
        /// Go on as it grows
        #[arg(short, long)]
        follow: bool,
        /// Only the last lines
        #[arg(long, value_name = "LINES")]
        tail: Option<usize>,
    },
    /// Run a command in a container
    Exec {
        /// Pass on what is typed
        #[arg(short, long)]
        interactive: bool,
        /// Give it a terminal
        #[arg(short, long)]
        tty: bool,
        id: String,
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Show what containers use
    Stats,
    /// Remove containers or pods, running or not; the node's agent may start them again
    Rm {
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

impl Ctr {
    pub fn run(self) -> anyhow::Result<()> {
        let code = runtime::block_on(async {
            let client = runtime::connect(&self.data_dir).await?.with_context(|| {
                format!("no node runs in {}\n{}", self.data_dir.display(), hint_of_no_cluster(&self.data_dir))
            })?;
            perform(&client, self.verb).await
        })?;
        #[expect(clippy::disallowed_methods, reason = "the exit code of the command that was executed is ours")]
        if code != 0 {
            std::process::exit(code);
        }
        Ok(())
    }
}

async fn perform(client: &Client, verb: Verb) -> anyhow::Result<i32> {
    match verb {
        Verb::Pods => list_pods(client).await?,
        Verb::Ps { all } => list_containers(client, all).await?,
        Verb::Inspect { id } => inspect(client, &id).await?,
        Verb::Logs { id, follow, tail } => {
            let id = container_id(client, &id).await?;
            let path = status(client, &id).await?.log_path;
            anyhow::ensure!(!path.is_empty(), "container {} has no log", short(&id));
            logs(client, &id, Path::new(&path), follow, tail).await?;
        }
        Verb::Exec { interactive, tty, id, command } => {
            let container_id = container_id(client, &id).await?;
            let request =
                wire::ExecRequest { container_id, cmd: command, tty, stdin: interactive, stdout: true, stderr: !tty };
            return exec(client, request).await;
        }
        Verb::Stats => stats(client).await?,
        Verb::Rm { ids } => {
            for id in ids {
                remove(client, &id).await?;
            }
        }
    }
    Ok(0)
}

async fn containers(client: &Client) -> anyhow::Result<Vec<wire::Container>> {
    let all: wire::ListContainersResponse =
        client.call(RUNTIME, "ListContainers", wire::ListContainersRequest::default()).await?;
    Ok(all.containers)
}

async fn pods(client: &Client) -> anyhow::Result<Vec<wire::PodSandbox>> {
    let all: wire::ListPodSandboxResponse =
        client.call(RUNTIME, "ListPodSandbox", wire::ListPodSandboxRequest::default()).await?;
    Ok(all.items)
}

/// The one that a beginning of an id, or a name, means, if there is one.
fn chosen<'a>(given: &str, all: impl Iterator<Item = (&'a str, &'a str)>) -> anyhow::Result<Option<&'a str>> {
    anyhow::ensure!(!given.is_empty(), "an empty id means nothing in particular");
    let fitting: Vec<&str> =
        all.filter(|(id, name)| id.starts_with(given) || *name == given).map(|(id, _)| id).collect();
    match fitting.as_slice() {
        [id] => Ok(Some(id)),
        [] => Ok(None),
        several => {
            let several: Vec<String> = several.iter().map(|id| short(id)).collect();
            bail!("{given:?} may mean several: {}", several.join(", "))
        }
    }
}

fn name(metadata: &Option<wire::ContainerMetadata>) -> &str {
    metadata.as_ref().map(|metadata| metadata.name.as_str()).unwrap_or_default()
}

enum Found {
    Container(String),
    Pod(String),
}

async fn find(client: &Client, given: &str) -> anyhow::Result<Found> {
    match find_container(client, given).await? {
        Some(id) => Ok(Found::Container(id)),
        None => match find_pod(client, given).await? {
            Some(id) => Ok(Found::Pod(id)),
            None => bail!("there is no container and no pod {given:?}"),
        },
    }
}

async fn container_id(client: &Client, given: &str) -> anyhow::Result<String> {
    find_container(client, given).await?.with_context(|| format!("there is no container {given:?}"))
}

async fn find_container(client: &Client, given: &str) -> anyhow::Result<Option<String>> {
    let all = containers(client).await?;
    let names = all.iter().map(|container| (container.id.as_str(), name(&container.metadata)));
    Ok(chosen(given, names)?.map(String::from))
}

async fn find_pod(client: &Client, given: &str) -> anyhow::Result<Option<String>> {
    let all = pods(client).await?;
    let name = |pod: &wire::PodSandbox| pod.metadata.as_ref().map(|m| m.name.clone()).unwrap_or_default();
    let names: Vec<(String, String)> = all.iter().map(|pod| (pod.id.clone(), name(pod))).collect();
    Ok(chosen(given, names.iter().map(|(id, name)| (id.as_str(), name.as_str())))?.map(String::from))
}

async fn list_pods(client: &Client) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for pod in pods(client).await? {
        let metadata = pod.metadata.unwrap_or_default();
        let state = if pod.state == 0 { "Ready" } else { "NotReady" };
        rows.push([short(&pod.id), metadata.namespace, metadata.name, state.to_owned(), age(pod.created_at)]);
    }
    table(&["POD ID", "NAMESPACE", "NAME", "STATE", "AGE"], &rows)
}

async fn list_containers(client: &Client, all: bool) -> anyhow::Result<()> {
    const STATES: [&str; 4] = ["Created", "Running", "Exited", "Unknown"];
    let known = pods(client).await?;
    let pod = |id: &str| known.iter().find(|pod| pod.id == id).and_then(|pod| pod.metadata.clone()).unwrap_or_default();
    let mut rows = Vec::new();
    for container in containers(client).await?.into_iter().filter(|container| all || container.state == 1) {
        let state = usize::try_from(container.state).ok().and_then(|state| STATES.get(state)).unwrap_or(&"Unknown");
        let metadata = pod(&container.pod_sandbox_id);
        rows.push([
            short(&container.id),
            name(&container.metadata).to_owned(),
            (*state).to_owned(),
            age(container.created_at),
            format!("{}/{}", metadata.namespace, metadata.name),
            container.image.unwrap_or_default().image,
        ]);
    }
    table(&["ID", "NAME", "STATE", "AGE", "POD", "IMAGE"], &rows)
}

async fn status(client: &Client, id: &str) -> anyhow::Result<wire::ContainerStatus> {
    let request = wire::ContainerStatusRequest { container_id: id.into(), verbose: false };
    let answer: wire::ContainerStatusResponse = client.call(RUNTIME, "ContainerStatus", request).await?;
    answer.status.context("the runtime tells no status")
}

async fn inspect(client: &Client, given: &str) -> anyhow::Result<()> {
    let text = match find(client, given).await? {
        Found::Container(container_id) => {
            let request = wire::ContainerStatusRequest { container_id, verbose: true };
            let answer: wire::ContainerStatusResponse = client.call(RUNTIME, "ContainerStatus", request).await?;
            serde_json::to_string_pretty(&answer)?
        }
        Found::Pod(pod_sandbox_id) => {
            let request = wire::PodSandboxStatusRequest { pod_sandbox_id, verbose: true };
            let answer: wire::PodSandboxStatusResponse = client.call(RUNTIME, "PodSandboxStatus", request).await?;
            serde_json::to_string_pretty(&answer)?
        }
    };
    Ok(writeln!(io::stdout(), "{text}")?)
}

async fn remove(client: &Client, given: &str) -> anyhow::Result<()> {
    let (method, id) = match find(client, given).await? {
        Found::Container(id) => ("RemoveContainer", id),
        Found::Pod(id) => ("RemovePodSandbox", id),
    };
    // Both requests are an id in the same place.
    let _: wire::Empty = client.call(RUNTIME, method, wire::ContainerId { container_id: id }).await?;
    Ok(())
}

async fn stats(client: &Client) -> anyhow::Result<()> {
    let request = wire::ListContainerStatsRequest::default();
    let all: wire::ListContainerStatsResponse = client.call(RUNTIME, "ListContainerStats", request).await?;
    let number = |value: Option<wire::UInt64Value>| value.unwrap_or_default().value;
    let mut rows = Vec::new();
    for stats in all.stats {
        let attributes = stats.attributes.unwrap_or_default();
        let seconds = number(stats.cpu.unwrap_or_default().usage_core_nano_seconds) as f64 / 1e9;
        rows.push([
            short(&attributes.id),
            name(&attributes.metadata).to_owned(),
            format!("{seconds:.2} s"),
            human(number(stats.memory.unwrap_or_default().working_set_bytes)),
            human(number(stats.writable_layer.unwrap_or_default().used_bytes)),
        ]);
    }
    table(&["ID", "NAME", "CPU TIME", "MEMORY", "DISK"], &rows)
}

/// Prints what a container wrote, each stream where it belongs.
async fn logs(client: &Client, id: &str, path: &Path, follow: bool, tail: Option<usize>) -> anyhow::Result<()> {
    let open = || File::open(path).with_context(|| path.display().to_string());
    let mut lines = BufReader::new(open()?);
    let mut text = Vec::new();
    lines.read_to_end(&mut text)?;
    let all: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for line in all.iter().skip(all.len().saturating_sub(tail.unwrap_or(usize::MAX))) {
        print(line)?;
    }
    if !follow {
        return Ok(());
    }
    let mut line = Vec::new();
    loop {
        let ended = status(client, id).await?.state != 1;
        // When it is full, another one takes its place.
        let own = lines.get_ref().metadata()?.ino();
        let replaced = std::fs::metadata(path).is_ok_and(|current| current.ino() != own);
        while lines.read_until(b'\n', &mut line)? > 0 && line.ends_with(b"\n") {
            print(&line)?;
            line.clear();
        }
        if replaced {
            lines = BufReader::new(open()?);
            line.clear();
        } else if ended {
            return Ok(());
        } else {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// A line of a log is a time, a stream, a mark and the text, which may be anything.
fn print(line: &[u8]) -> io::Result<()> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let (stream, mark, text) = (fields.nth(1), fields.next(), fields.next().unwrap_or_default());
    let end: &[u8] = if mark == Some(b"P".as_slice()) { b"" } else { b"\n" };
    let whole = [text, end].concat();
    match stream {
        Some(b"stderr") => io::stderr().write_all(&whole),
        _ => io::stdout().write_all(&whole),
    }
}

/// A terminal that passes every key on, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn new() -> anyhow::Result<Self> {
        let before = tcgetattr(io::stdin()).context("standard input is not a terminal; try without -t")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

async fn exec(client: &Client, request: wire::ExecRequest) -> anyhow::Result<i32> {
    let (tty, stdin) = (request.tty, request.stdin);
    let raw = if tty && stdin { Some(Raw::new()?) } else { None };
    let (sender, receiver) = mpsc::unbounded_channel();
    let first = wire::ExecInput { start: Some(request), end: !stdin, ..size(tty) };
    sender.send(first).context("nobody listens")?;
    if stdin {
        let typed = sender.clone();
        // It waits for a key until the process ends, which nothing can stop.
        std::thread::spawn(move || read_keys(&typed));
    }
    let input =
        futures::stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let mut output = client.talk::<_, wire::ExecOutput>(FERRY, "Exec", input).await?;
    let mut resized = tokio::signal::unix::signal(SignalKind::window_change())?;
    let code = loop {
        let message = tokio::select! {
            message = output.message() => message.map_err(|status| anyhow::anyhow!(status.message().to_owned()))?,
            _ = resized.recv(), if tty => {
                let _ = sender.send(size(tty));
                continue;
            }
        };
        let message = message.context("the runtime has ended")?;
        io::stdout().write_all(&message.stdout)?;
        io::stdout().flush()?;
        io::stderr().write_all(&message.stderr)?;
        if let Some(exit) = message.exit {
            break i32::try_from(exit.value).unwrap_or(1);
        }
    };
    drop(raw);
    Ok(code)
}

fn read_keys(sender: &mpsc::UnboundedSender<wire::ExecInput>) {
    let mut buffer = [0; 4096];
    loop {
        let length = io::stdin().read(&mut buffer).unwrap_or(0);
        let stdin = buffer.get(..length).unwrap_or_default().to_vec();
        if sender.send(wire::ExecInput { end: length == 0, stdin, ..Default::default() }).is_err() || length == 0 {
            return;
        }
    }
}

/// The size of our terminal, if there is one and it matters.
fn size(tty: bool) -> wire::ExecInput {
    let size = (tty && io::stdout().is_terminal()).then(|| tcgetwinsize(io::stdout().as_fd()).ok()).flatten();
    let (width, height) = size.map(|size| (size.ws_col, size.ws_row)).unwrap_or_default();
    wire::ExecInput { width: width.into(), height: height.into(), ..Default::default() }
}
