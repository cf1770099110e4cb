//! `ferry status`: whether a cluster runs, and how it is.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use controller_runtime::transport;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use rustix::process::Pid;

use super::{kubeconfig, up::default_data_dir};
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
    #[allow(clippy::print_stdout, reason = "it is asked for")]
    pub fn run(self) -> anyhow::Result<()> {
        let folder = self.data_dir.display();
        let Some(pid) = running::process(&self.data_dir)? else {
            anyhow::bail!("no cluster is running in {folder}\nhint: start one with: ferry up");
        };
        let file = kubeconfig::find(&self.data_dir)?;
        println!("cluster     {folder}, process {}{}", pid.as_raw_nonzero(), memory(pid));
        println!("kubeconfig  {}", file.display());
        let threads = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        threads.block_on(async {
            let client = transport::from_kubeconfig(&file, "ferry").await?;
            let told = tokio::time::timeout(PATIENCE, tell(client)).await;
            told.with_context(|| format!("the API has not answered within {} s", PATIENCE.as_secs()))?
        })
    }
}

#[allow(clippy::print_stdout, reason = "it is asked for")]
async fn tell(client: Client) -> anyhow::Result<()> {
    let version = client.apiserver_version().await.context("the API does not answer")?;
    println!("API         {} ready", version.git_version);
    for node in Api::<Node>::all(client.clone()).list(&Default::default()).await? {
        let status = node.status.unwrap_or_default();
        let ready = status.conditions.iter().flatten().find(|condition| condition.type_ == "Ready");
        let state = match ready {
            Some(condition) if condition.status == "True" => "Ready".to_owned(),
            Some(condition) => format!("not Ready: {}", condition.message.as_deref().unwrap_or_default()),
            None => "not Ready yet".to_owned(),
        };
        println!("node        {} {state}", node.metadata.name.unwrap_or_default());
    }
    let mut phases: BTreeMap<String, usize> = BTreeMap::new();
    for pod in Api::<Pod>::all(client).list(&Default::default()).await? {
        *phases.entry(pod.status.and_then(|status| status.phase).unwrap_or_default()).or_default() += 1;
    }
    let counted: Vec<String> = phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    println!("pods        {}", if counted.is_empty() { "none".into() } else { counted.join(", ") });
    Ok(())
}

/// How much memory the process holds, if Linux tells.
fn memory(pid: Pid) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.map(|kilobytes| format!(", {} MB", kilobytes / 1024)).unwrap_or_default()
}
