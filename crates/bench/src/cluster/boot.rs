//! A cluster that is started for the measurement: a folder of its own, and nothing of it left at the end.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::load::{connection::Connection, kubeconfig::Cluster, requests::request};

/// No cluster takes longer.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Between two looks. What is found is at most this late.
const LOOK_EVERY: Duration = Duration::from_millis(2);

pub struct Boot {
    ferry: PathBuf,
    folder: PathBuf,
    process: Child,
    /// From its start until its API said so.
    pub api_ready: Duration,
    pub node_ready: Duration,
    removed: bool,
}

impl Boot {
    /// What it says goes to standard error.
    pub async fn start(ferry: &Path) -> anyhow::Result<Self> {
        static FOLDERS: AtomicUsize = AtomicUsize::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("bench-cluster-{}-{number}", std::process::id()));
        let mut command = Command::new(ferry);
        command.args(["up", "--api-port", "0", "--data-dir"]).arg(&folder);
        let began = Instant::now();
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", ferry.display()))?;
        let mut boot = Self {
            ferry: ferry.to_owned(),
            folder,
            process,
            api_ready: Duration::ZERO,
            node_ready: Duration::ZERO,
            removed: false,
        };
        let mut connection = boot.connected(began).await?;
        let host = boot.cluster()?.address.to_string();
        let asks = |path: &str| request("GET", &host, path, "", b"");
        while connection.ask(&asks("/readyz")).await?.0 != 200 {
            boot.look_again(began).await?;
        }
        boot.api_ready = began.elapsed();
        while !has_ready_node(&connection.ask(&asks("/api/v1/nodes")).await?.1) {
            boot.look_again(began).await?;
        }
        boot.node_ready = began.elapsed();
        Ok(boot)
    }

    pub fn cluster(&self) -> anyhow::Result<Cluster> {
        Cluster::read(&self.folder.join("kubeconfig.yaml"))
    }

    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// To the API, as soon as it can be reached.
    async fn connected(&mut self, began: Instant) -> anyhow::Result<Connection> {
        loop {
            if let Ok(cluster) = self.cluster()
                && let Ok(connection) = Connection::open(&cluster).await
            {
                return Ok(connection);
            }
            self.look_again(began).await?;
        }
    }

    async fn look_again(&mut self, began: Instant) -> anyhow::Result<()> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the cluster has ended: {status}");
        }
        ensure!(began.elapsed() < READY_WITHIN, "the cluster was not ready within {} s", READY_WITHIN.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
        Ok(())
    }

    /// Stops it and removes every trace.
    pub fn remove(mut self) -> anyhow::Result<()> {
        self.purge()
    }

    fn purge(&mut self) -> anyhow::Result<()> {
        self.removed = true;
        let mut command = Command::new(&self.ferry);
        let status = command.args(["down", "--purge", "--data-dir"]).arg(&self.folder).stdin(Stdio::null()).status();
        ensure!(status.context("cannot remove the cluster")?.success(), "cannot remove {}", self.folder.display());
        self.process.wait()?;
        Ok(())
    }
}

/// Whatever happened, no cluster is left.
impl Drop for Boot {
    fn drop(&mut self) {
        if !self.removed && self.purge().is_err() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn has_ready_node(list: &[u8]) -> bool {
    let list: Value = serde_json::from_slice(list).unwrap_or_default();
    let items = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    items(&list["items"]).iter().any(|node| items(&node["status"]["conditions"]).iter().any(is_ready))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::has_ready_node;

    #[test]
    fn a_node_is_ready_when_it_says_so() {
        let list = |status: &str| {
            let conditions = json!([{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": status}]);
            json!({"items": [{"status": {"conditions": conditions}}]}).to_string()
        };
        assert!(has_ready_node(list("True").as_bytes()));
        assert!(!has_ready_node(list("False").as_bytes()));
        assert!(!has_ready_node(br#"{"items": [{}]}"#) && !has_ready_node(b"refused"));
    }
}
