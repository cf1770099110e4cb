//! `ferry down`: stop a cluster, and with `--purge` remove every trace of it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};

use super::up::default_data_dir;
use crate::{
    cluster::{self, traces_file},
    node, running,
};

const STOPS_WITHIN: Duration = Duration::from_secs(30);

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
        match running::process(&self.data_dir)? {
            Some(pid) => stop(pid)?,
            None => eprintln!("no cluster is running in {}", self.data_dir.display()),
        }
        if !self.purge {
            return stop_pods(&self.data_dir);
        }
        if self.data_dir.exists() {
            anyhow::ensure!(
                is_data_dir(&self.data_dir),
                "{} does not look like a data folder of ferry, so it is left alone\nhint: name the right one with --data-dir",
                self.data_dir.display()
            );
            remove_nodes(&self.data_dir)?;
            for trace in fs::read_to_string(traces_file(&self.data_dir)).unwrap_or_default().lines() {
                remove_file(Path::new(trace))?;
            }
            fs::remove_dir_all(&self.data_dir).with_context(|| format!("cannot remove {}", self.data_dir.display()))?;
            eprintln!("removed {}", self.data_dir.display());
        }
        Ok(())
    }
}

/// Ends the processes of all pods. They start again with the cluster.
fn stop_pods(data_dir: &Path) -> anyhow::Result<()> {
    run(node::stop_pods(data_dir))?;
    for (name, folder) in cluster::folders_of_further_nodes(data_dir) {
        cluster::inside_further_node(data_dir, &name, || run(node::stop_pods(&folder)))??;
    }
    Ok(())
}

/// Removes what nodes have made outside of the data folder. The first one shares the folder of the cluster.
fn remove_nodes(data_dir: &Path) -> anyhow::Result<()> {
    run(node::purge(data_dir))?;
    for (name, folder) in cluster::folders_of_further_nodes(data_dir) {
        cluster::inside_further_node(data_dir, &name, || run(node::purge(&folder)))??;
        run(cluster::remove_further_node(data_dir, &name))?;
    }
    Ok(())
}

fn run(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn stop(pid: Pid) -> anyhow::Result<()> {
    kill_process(pid, Signal::TERM).context("cannot stop the cluster")?;
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
    folder.join("pki").is_dir() || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}
