//! A node: container runtime, pod network, agent and service proxy, brought together. The same for the node that shares its
//! process with the API server and for one that is a process of its own.

mod pod_network;
pub mod requirements;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use api_server::serving::authority::Names;
use container_runtime::{
    Runtime, cri,
    services::{PodSandboxFilter, PodSandboxState, RuntimeService},
};
use controller_runtime::{Informer, Informers, SystemClock};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use rustix::mount::{UnmountFlags, unmount};
use rustls::ServerConfig;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::toolbox;
use pod_network::NodeNetwork;

/// The block that all pods of a cluster have their addresses from.
pub const CLUSTER_CIDR: &str = "10.244.0.0/16";
/// Where pods ask for names.
pub const CLUSTER_DNS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 10));
pub const DOMAIN: &str = "cluster.local";
/// Where the agents of nodes listen.
pub const AGENT_PORT: u16 = 10250;
/// How many pods a node takes.
const MAX_PODS: u32 = 110;

/// What a node is told at its start.
pub struct Settings {
    pub name: String,
    /// By which pods and other nodes reach it.
    pub address: IpAddr,
    /// Where it keeps images, containers, volumes and its network's state.
    pub folder: PathBuf,
    pub tls: Arc<ServerConfig>,
    /// Acts as `system:node:<name>`.
    pub client: Client,
    /// What the service proxy and the routes are made from.
    pub informers: Informers,
    /// Whether Services are in this node's kernel.
    pub proxy: bool,
}

/// Runs the node until it is told to stop; its pods go on after that. `ready` is told when pods can run.
pub async fn run(settings: Settings, ready: oneshot::Sender<()>, stop: CancellationToken) -> anyhow::Result<()> {
    let network = Arc::new(NodeNetwork::open(&settings.folder).await?);
    let runtime = Runtime::open(runtime_settings(&settings.folder)?, network.clone()).await;
    let runtime = runtime.context("cannot start the container runtime")?;
    let known = runtime.list_pod_sandbox(&PodSandboxFilter::default()).await?;
    network.forget_all_but(known.iter().map(|sandbox| sandbox.id.as_str()).collect()).await;
    toolbox::install(&runtime).await?;
    let socket = settings.folder.join(cri::SOCKET);
    let serving = tokio::spawn({
        let runtime = runtime.clone();
        async move {
            if let Err(error) = cri::serve(runtime, &socket).await {
                tracing::warn!(%error, "the runtime's socket cannot be served: ferry image and ferry ctr do not work");
            }
        }
    });
    let own = Informer::<Node>::start(
        Api::all(settings.client.clone()),
        Some(format!("metadata.name={}", settings.name)),
        |node| node.metadata.managed_fields = None,
        stop.clone(),
    );
    let (tell, is_ready) = oneshot::channel();
    tell_when_ready(&own, tell);
    let unpacking = runtime.clone();
    tokio::spawn(async move {
        if is_ready.await.is_ok() {
            // Whoever waited may have given up.
            let _ = ready.send(());
            // Nobody need wait for this one.
            toolbox::unpack(&unpacking).await;
        }
    });

    let agent = node_agent::Settings {
        node_name: settings.name.clone(),
        addresses: vec![settings.address],
        root: settings.folder.join("agent"),
        port: AGENT_PORT,
        tls: settings.tls,
        client: settings.client,
        runtime: Arc::new(runtime.clone()),
        images: Arc::new(runtime.clone()),
        network: network.state(),
        cluster_dns: vec![CLUSTER_DNS],
        cluster_domain: DOMAIN.into(),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        max_pods: MAX_PODS,
        control_groups: Some(container_runtime::cgroups::Layout::detect()?),
        thresholds: Default::default(),
        clock: Arc::new(SystemClock),
    };
    let proxy = network::proxy::Setting {
        informers: settings.informers.clone(),
        node_name: settings.name.clone(),
        node_addresses: vec![settings.address],
        cluster_cidr: CLUSTER_CIDR.into(),
    };
    let routes = network::routes::run(settings.informers, settings.name, stop.clone());
    let services = async {
        if settings.proxy {
            network::proxy::run(proxy, stop.clone()).await;
        }
    };
    tokio::join!(network.follow(&own, &stop), node_agent::run(agent, stop.clone()), routes, services);
    serving.abort();
    Ok(())
}

/// Says once that the node is Ready.
fn tell_when_ready(own: &Informer<Node>, ready: oneshot::Sender<()>) {
    let ready = std::sync::Mutex::new(Some(ready));
    own.on_change(move |change| {
        let conditions = change.object().status.as_ref().and_then(|status| status.conditions.as_ref());
        let is_ready = |all: &Vec<k8s_openapi::api::core::v1::NodeCondition>| {
            all.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        if conditions.is_some_and(is_ready)
            && let Ok(mut ready) = ready.lock()
            && let Some(ready) = ready.take()
        {
            let _ = ready.send(());
        }
    });
}

/// Whom the certificate of a node's agent is for.
pub fn names(name: &str, address: IpAddr) -> Names {
    Names { dns: vec![name.to_owned(), "localhost".into()], addresses: vec![address, Ipv4Addr::LOCALHOST.into()] }
}

/// The groups of processes are named by the folder, so that several nodes on one machine do not share them.
fn runtime_settings(folder: &Path) -> anyhow::Result<container_runtime::Settings> {
    let folder = std::path::absolute(folder)?;
    let cgroup = format!("/ferry-{}", short_name(&folder));
    Ok(container_runtime::Settings { cgroup, ..container_runtime::Settings::new(folder.join("runtime")) })
}

/// A name of eight letters for a folder (FNV-1a), unlike those of others on this machine.
pub fn short_name(folder: &Path) -> String {
    let bytes = folder.as_os_str().as_encoded_bytes();
    let hash = bytes.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// Whether there is or was a node in a folder.
pub fn was_in(folder: &Path) -> bool {
    folder.join(pod_network::FOLDER).exists()
}

/// Ends the processes of all pods of a node whose process has stopped; how many pods that were. They start again when the node
/// does.
pub async fn stop_pods(folder: &Path) -> anyhow::Result<usize> {
    let mut stopped = 0;
    if !was_in(folder) {
        return Ok(stopped);
    }
    let Some(runtime) = left_runtime(folder).await? else { return Ok(stopped) };
    for sandbox in runtime.list_pod_sandbox(&PodSandboxFilter::default()).await? {
        if sandbox.state == PodSandboxState::Ready {
            stopped += 1;
        }
        runtime
            .stop_pod_sandbox(&sandbox.id)
            .await
            .with_context(|| format!("cannot stop {}", sandbox.metadata.name))?;
    }
    Ok(stopped)
}

/// Removes everything that a node whose process has stopped has made outside of its folder, and its pods.
pub async fn purge(folder: &Path) -> anyhow::Result<()> {
    if let Some(runtime) = left_runtime(folder).await? {
        runtime.purge().await.context("cannot remove the pods")?;
    }
    unmount_all_below(folder)?;
    NodeNetwork::open(folder).await?.purge().await?;
    network::proxy::purge().await?;
    network::routes::purge().await?;
    remove_empty_groups();
    Ok(())
}

/// The groups above those of pods, which all nodes of a machine share: the last one takes them away, as those that are in use
/// cannot be removed.
fn remove_empty_groups() {
    const ROOT: &str = "/sys/fs/cgroup";
    let hierarchies = std::fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([ROOT.into()]) {
        for group in ["kubepods/burstable", "kubepods/besteffort", "kubepods"] {
            let _ = std::fs::remove_dir(hierarchy.join(group));
        }
    }
}

/// Volumes of pods are mounts, and a folder with a mount in it cannot be removed.
fn unmount_all_below(folder: &Path) -> anyhow::Result<()> {
    let folder = std::path::absolute(folder)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("cannot tell what is mounted")?;
    let below = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescaped);
    // The last one that was mounted may be inside of an earlier one.
    let below: Vec<PathBuf> = below.filter(|mount| mount.starts_with(&folder) && *mount != folder).collect();
    for mount in below.into_iter().rev() {
        unmount(&mount, UnmountFlags::DETACH).with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    Ok(())
}

/// Linux writes blanks and the like in octal.
fn unescaped(path: &str) -> PathBuf {
    let plain = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    plain.iter().fold(path.to_owned(), |path, (octal, character)| path.replace(octal, character)).into()
}

/// The runtime of a node that ran before, if it did.
async fn left_runtime(folder: &Path) -> anyhow::Result<Option<Runtime>> {
    let settings = runtime_settings(folder)?;
    if !settings.root.exists() {
        return Ok(None);
    }
    let network = Arc::new(NodeNetwork::open(folder).await?);
    let opened = Runtime::open(settings, network).await;
    opened.context("cannot open the container runtime").map(Some)
}

/// Whether pods can be given a network, or why not yet.
type NetworkState = watch::Receiver<Result<(), String>>;
