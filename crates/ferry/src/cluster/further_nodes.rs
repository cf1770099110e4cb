//! Further nodes on this machine: each a process of its own in a network namespace that stands for its machine.

use std::{
    fs,
    net::SocketAddr,
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use api_server::serving::{authority::Authority, kubeconfig};
use futures::{FutureExt, future::select_all};
use network::hosts;
use rustix::{
    process::{Pid, Signal, kill_process, set_parent_process_death_signal},
    thread::{LinkNameSpaceType, move_into_link_name_space},
};
use tokio::process::{Child, Command};

use super::{NodeChoice, STOP_WITHIN, access};
use crate::{commands::agent::Files, node, progress::say};

/// How long after its end the process of a node is started again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The processes of further nodes.
#[derive(Default)]
pub struct FurtherNodes {
    running: Vec<FurtherNode>,
}

struct FurtherNode {
    host: hosts::Host,
    folder: PathBuf,
    proxy: bool,
    process: Child,
}

impl FurtherNodes {
    /// Starts those that are wanted beside the node `first`; they reach the API at `api`.
    pub async fn start(
        &mut self,
        data_dir: &Path,
        first: &NodeChoice,
        authority: &Authority,
        api: SocketAddr,
    ) -> anyhow::Result<()> {
        for number in 2..2 + first.further {
            let name = format!("{}-{number}", first.name);
            let folder = data_dir.join("nodes").join(&name);
            fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let host = hosts::ensure(&cluster(data_dir)?, &name).await?;
            write_credentials(&host, &folder, authority, api)?;
            let process =
                spawn(&host, &folder, first.proxy).with_context(|| format!("cannot start the node {name}"))?;
            say(&format!("node {name} has the address {}", host.address));
            self.running.push(FurtherNode { host, folder, proxy: first.proxy, process });
        }
        Ok(())
    }

    /// Starts a node's process again whenever it ends though nobody told it to, and with young certificates before the old
    /// ones expire.
    pub async fn keep(&mut self, authority: &Authority, api: SocketAddr) {
        if self.running.is_empty() {
            return std::future::pending().await;
        }
        let mut made = SystemTime::now();
        // One for all turns: however often processes end, it goes on.
        let mut due = std::pin::pin!(access::due(made));
        loop {
            let waiting = self
                .running
                .iter_mut()
                .enumerate()
                .map(|(index, node)| async move { (index, node.process.wait().await) }.boxed());
            let ended = tokio::select! {
                ended = select_all(waiting).map(|(ended, ..)| ended) => Some(ended),
                () = &mut due => None,
            };
            let Some((index, status)) = ended else {
                match self.renew(authority, api).await {
                    Ok(()) => made = SystemTime::now(),
                    Err(error) => tracing::error!(error = format!("{error:#}"), "cannot renew the nodes' certificates"),
                }
                due.set(access::due(made));
                continue;
            };
            let Some(node) = self.running.get_mut(index) else { continue };
            tracing::error!(node = node.host.name, ?status, "the process of a node has ended; it is started again");
            tokio::time::sleep(AGAIN_AFTER).await;
            match spawn(&node.host, &node.folder, node.proxy) {
                Ok(process) => node.process = process,
                Err(error) => tracing::error!(node = node.host.name, error = format!("{error:#}"), "it does not start"),
            }
        }
    }

    /// Gives the nodes new certificates and starts their processes anew, one after the other; their pods go on.
    async fn renew(&mut self, authority: &Authority, api: SocketAddr) -> anyhow::Result<()> {
        for node in &mut self.running {
            write_credentials(&node.host, &node.folder, authority, api)?;
            node.tell_to_stop();
            node.stopped(STOP_WITHIN).await;
            node.process = spawn(&node.host, &node.folder, node.proxy)?;
        }
        Ok(())
    }

    /// Tells all to stop and waits for them; their pods go on.
    pub async fn stop(&mut self, within: Duration) {
        self.running.iter().for_each(FurtherNode::tell_to_stop);
        for node in &mut self.running {
            node.stopped(within).await;
        }
    }
}

impl FurtherNode {
    fn tell_to_stop(&self) {
        if let Some(pid) = self.process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    async fn stopped(&mut self, within: Duration) {
        if tokio::time::timeout(within, self.process.wait()).await.is_err() {
            tracing::warn!(node = self.host.name, "the node did not stop in order");
            let _ = self.process.kill().await;
        }
    }
}

/// What the process of a node knows the API by, and is known by.
fn write_credentials(host: &hosts::Host, folder: &Path, authority: &Authority, api: SocketAddr) -> anyhow::Result<()> {
    let (files, user) = (Files::of(folder), format!("system:node:{}", host.name));
    kubeconfig::write(&files.kubeconfig, authority, api, &user, "system:nodes")?;
    kubeconfig::write(&files.proxy_kubeconfig, authority, api, "system:kube-proxy", "system:kube-proxy")?;
    files.write_certificate(authority, &node::names(&host.name, host.address))
}

/// The node's process, in the network of its host. It ends with this one.
fn spawn(host: &hosts::Host, folder: &Path, proxy: bool) -> anyhow::Result<Child> {
    let network = fs::File::open(&host.netns).with_context(|| format!("cannot open {}", host.netns.display()))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("agent").arg("--name").arg(&host.name).arg("--address").arg(host.address.to_string());
    // Nobody may wait for its standard output: that of a detached cluster tells when it is up.
    command.arg("--data-dir").arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    if !proxy {
        command.args(["--disable", "proxy"]);
    }
    // SAFETY: between fork and exec only two system calls are made.
    unsafe {
        command.pre_exec(move || {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            set_parent_process_death_signal(Some(Signal::TERM))?;
            Ok(())
        });
    }
    Ok(command.spawn()?)
}

/// The folders of all further nodes that there have been, by their names.
pub fn folders(data_dir: &Path) -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(data_dir.join("nodes")).into_iter().flatten().flatten();
    entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

/// Does something to what a further node left, in the network of its host.
pub fn inside<T: Send>(data_dir: &Path, name: &str, work: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
    Ok(hosts::inside(&cluster(data_dir)?, name, work)?)
}

/// Removes the host of a further node.
pub async fn remove(data_dir: &Path, name: &str) -> anyhow::Result<()> {
    Ok(hosts::remove(&cluster(data_dir)?, name).await?)
}

/// A short name for the cluster of a data folder, unlike that of others on this machine.
fn cluster(data_dir: &Path) -> anyhow::Result<String> {
    let folder = std::path::absolute(data_dir)?;
    Ok(node::short_name(&folder))
}
