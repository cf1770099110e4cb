//! `ferry down`: stop a cluster, and with `--purge` remove every trace of it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use api_server::serving::kubeconfig;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use super::up::{LOG, default_data_dir};
use crate::{
    cluster::{self, traces_file},
    node,
    progress::say,
    running,
};

const STOPS_WITHIN: Duration = Duration::from_secs(30);
/// By which a data folder is known, also one of a start that did not come far. Other folders may have a `pki` in them.
const MARKS: [&str; 5] = ["pki/service-accounts", "state.redb", "runtime/sandboxes", running::FILE, LOG];

#[derive(Args)]
pub struct Down {
    /// The cluster's data folder
    #[arg(long, value_name = "FOLDER", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
    /// Remove every trace: pods, networks, the data folder, and the kubeconfig wherever it is
    #[arg(long)]
    purge: bool,
}

impl Down {
    pub fn run(self) -> anyhow::Result<()> {
        let folder = self.data_dir.display();
        match running::process(&self.data_dir)? {
            Some(pid) => {
                stop(pid)?;
                say(&format!("stopped the cluster in {folder}"));
            }
            None => say(&format!("no cluster is running in {folder}")),
        }
        if !self.purge {
            return stop_pods(&self.data_dir);
        }
        if self.data_dir.exists() {
            anyhow::ensure!(
                is_data_dir(&self.data_dir),
                "{folder} does not look like a data folder of ferry, so it is left alone\nhint: name the right one with --data-dir"
            );
            remove_nodes(&self.data_dir)?;
            for trace in fs::read_to_string(traces_file(&self.data_dir)).unwrap_or_default().lines() {
                // Somebody may have put something of their own there since.
                if kubeconfig::is_ours(Path::new(trace)) {
                    remove_file(Path::new(trace))?;
                }
            }
            fs::remove_dir_all(&self.data_dir).with_context(|| format!("cannot remove {folder}"))?;
            say(&format!("removed {folder}"));
        }
        Ok(())
    }
}

/// Ends the processes of all pods. They start again with the cluster.
fn stop_pods(data_dir: &Path) -> anyhow::Result<()> {
    let mut stopped = run(node::stop_pods(data_dir))?;
    for (name, folder) in cluster::folders_of_further_nodes(data_dir) {
        stopped += cluster::inside_further_node(data_dir, &name, || run(node::stop_pods(&folder)))??;
    }
    if stopped > 0 {
        say(&format!("stopped {stopped} pods; they start again with the cluster"));
    }
    Ok(())
}

/// Removes what nodes have made outside of the data folder. The first one shares the folder of the cluster; where there never
/// was one, what there is may be another cluster's.
fn remove_nodes(data_dir: &Path) -> anyhow::Result<()> {
    if node::was_in(data_dir) {
        run(node::purge(data_dir))?;
    }
    for (name, folder) in cluster::folders_of_further_nodes(data_dir) {
        cluster::inside_further_node(data_dir, &name, || run(node::purge(&folder)))??;
        run(cluster::remove_further_node(data_dir, &name))?;
    }
    Ok(())
}

fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn stop(pid: Pid) -> anyhow::Result<()> {
    kill_process(pid, Signal::TERM)
        .map_err(|error| anyhow!("cannot stop process {}: {error}\nhint: try sudo", pid.as_raw_nonzero()))?;
    let since = Instant::now();
    while is_alive(pid) {
        anyhow::ensure!(
            since.elapsed() < STOPS_WITHIN,
            "process {} has not stopped within {} s\nhint: look at what it says, or end it by hand",
            pid.as_raw_nonzero(),
            STOPS_WITHIN.as_secs()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A process that ended but whose parent has not looked yet has no command line any more.
fn is_alive(pid: Pid) -> bool {
    fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).is_ok_and(|line| !line.is_empty())
}

fn remove_file(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Removing the wrong folder cannot be undone, so only one that we made is removed.
fn is_data_dir(folder: &Path) -> bool {
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    MARKS.iter().any(|mark| folder.join(mark).exists()) || is_empty()
}
