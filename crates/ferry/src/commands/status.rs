//! `ferry status`: whether a cluster runs, and how it is.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Args;
use controller_runtime::transport;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use rustix::process::Pid;

use super::{
    kubeconfig,
    up::{LOG, default_data_dir, hint_of_no_cluster},
};
use crate::running;

/// A cluster that does not answer within this time is not well.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Args)]
pub struct Status {
    /// The cluster's data folder
    #[arg(long, value_name = "FOLDER", default_value_os_t = default_data_dir())]
    data_dir: PathBuf,
}

impl Status {
    pub fn run(self) -> anyhow::Result<()> {
        let folder = self.data_dir.display();
        let Some(pid) = running::process(&self.data_dir)? else {
            anyhow::bail!("no cluster is running in {folder}\n{}", hint_of_no_cluster(&self.data_dir));
        };
        writeln!(io::stdout(), "cluster     {folder}, process {}{}", pid.as_raw_nonzero(), memory(pid))?;
        // It is written right before the API begins to answer.
        let Ok(file) = kubeconfig::find(&self.data_dir) else {
            anyhow::bail!("the cluster is starting, and its API is not there yet\nhint: ask again in a moment");
        };
        writeln!(io::stdout(), "kubeconfig  {}", file.display())?;
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        threads.block_on(async {
            let client = transport::from_kubeconfig(&file, "ferry").await?;
            let told = tokio::time::timeout(PATIENCE, tell(client)).await;
            told.map_err(|_| {
                anyhow!(
                    "the API has not answered within {} s\nhint: if the cluster is not just starting, see what it says; \
                     without a terminal that is in {}",
                    PATIENCE.as_secs(),
                    self.data_dir.join(LOG).display()
                )
            })?
        })
    }
}

async fn tell(client: Client) -> anyhow::Result<()> {
    let version = client.apiserver_version().await.context("the API does not answer")?;
    writeln!(io::stdout(), "API         {} ready", version.git_version)?;
    for node in Api::<Node>::all(client.clone()).list(&Default::default()).await? {
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let state = match ready {
            Some(condition) if condition.status == "True" => "Ready".to_owned(),
            Some(condition) => format!("not Ready: {}", condition.message.as_deref().unwrap_or_default()),
            None => "not Ready yet".to_owned(),
        };
        writeln!(io::stdout(), "node        {} {state}", node.metadata.name.unwrap_or_default())?;
    }
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for pod in Api::<Pod>::all(client).list(&Default::default()).await? {
        *phases.entry(pod.status.and_then(|status| status.phase).unwrap_or_default()).or_default() += 1;
    }
    let counted: Vec<String> = phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    writeln!(io::stdout(), "pods        {}", if counted.is_empty() { "none".into() } else { counted.join(", ") })?;
    Ok(())
}

/// How much memory the process holds, if Linux tells.
fn memory(pid: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| format!(", {} MB", kilobytes / 1024)).unwrap_or_default()
}
