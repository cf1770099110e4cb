//! A load generator for any Kubernetes API server that a kubeconfig names: what it does in a second, how long each
//! request takes, and what each costs the server's processes. Its commands measure a flood by one tenant, and a whole cluster.

#![allow(clippy::print_stdout, reason = "figures are for people to read")]

mod cluster;
mod flood;
mod load;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Parser, Subcommand};

use load::{Load, Row, kubeconfig::Cluster};

/// Load an API server, and measure what each request takes and costs
#[derive(Parser)]
#[command(name = "bench", args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The server, and a user with a client certificate who may do everything
    #[arg(long, value_name = "FILE", required = true)]
    kubeconfig: Option<PathBuf>,
    /// The server's processes on this machine, with its store's, to measure their CPU and memory
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Connections that send requests
    #[arg(long, value_name = "COUNT", default_value_t = 32)]
    connections: usize,
    /// Connections that send patches
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    patchers: usize,
    /// Connections that watch while objects are patched
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    watchers: usize,
    /// Connections that are opened and not used
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    idle: usize,
    /// ConfigMaps of 1 KiB
    #[arg(long, value_name = "COUNT", default_value_t = 3000)]
    objects: usize,
    /// Nodes for pods to be bound to; nobody runs them
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    nodes: usize,
    /// Pods to be bound
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pods: usize,
    /// How often all objects are created and deleted
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// How long each of the other rows is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// The namespace for the objects; it must exist
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// What to measure [default: everything that needs no scheduler]
    #[arg(value_enum, value_name = "ROWS")]
    rows: Vec<Row>,
}

#[derive(Subcommand)]
enum Command {
    Cluster(cluster::Arguments),
    Flood(flood::Arguments),
    #[command(hide = true)]
    FloodClient(flood::client::Arguments),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match &arguments.command {
            Some(Command::Cluster(cluster)) => print!("{}", cluster.run().await?),
            Some(Command::Flood(flood)) => print!("{}", flood.run().await?),
            Some(Command::FloodClient(client)) => client.run().await?,
            None => {
                let rows = match arguments.rows.as_slice() {
                    [] => Row::without_scheduler(),
                    chosen => chosen.to_vec(),
                };
                print!("{}", arguments.load()?.run(&rows).await?);
            }
        }
        Ok(())
    })
}

impl Arguments {
    fn load(&self) -> anyhow::Result<Load> {
        let kubeconfig = self.kubeconfig.as_ref().context("--kubeconfig says which server")?;
        let cluster =
            Cluster::read(kubeconfig).with_context(|| format!("cannot use the kubeconfig {}", kubeconfig.display()))?;
        Ok(Load {
            cluster,
            processes: self.server_pid.clone(),
            connections: self.connections.max(1),
            patchers: self.patchers.max(1),
            watchers: self.watchers,
            idle: self.idle,
            objects: self.objects.max(1),
            nodes: self.nodes.max(1),
            pods: self.pods.max(1),
            rounds: self.rounds.max(1),
            lasts: Duration::from_secs_f64(self.seconds),
            namespace: self.namespace.clone(),
        })
    }
}
