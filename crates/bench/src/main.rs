//! A load generator for any Kubernetes API server that a kubeconfig names: what it does in a second, how long each
//! request takes, and what each costs the server's processes.

#![allow(clippy::print_stdout, reason = "figures are for people to read")]

mod load;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::{Parser, ValueEnum};

use load::{Load, Row, kubeconfig::Cluster};

/// Load an API server, and measure what each request takes and costs
#[derive(Parser)]
#[command(name = "bench")]
struct Arguments {
    /// The server, and a user with a client certificate who may do everything
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
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
    /// How often all objects are created and deleted
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    rounds: usize,
    /// How long each of the other rows is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    seconds: f64,
    /// The namespace for the objects; it must exist
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// What to measure [default: everything]
    #[arg(value_enum, value_name = "ROWS")]
    rows: Vec<Row>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let cluster = Cluster::read(&arguments.kubeconfig)
        .with_context(|| format!("cannot use the kubeconfig {}", arguments.kubeconfig.display()))?;
    let rows = if arguments.rows.is_empty() { Row::value_variants().to_vec() } else { arguments.rows };
    let load = Load {
        cluster,
        processes: arguments.server_pid,
        connections: arguments.connections.max(1),
        patchers: arguments.patchers.max(1),
        watchers: arguments.watchers,
        idle: arguments.idle,
        objects: arguments.objects.max(1),
        rounds: arguments.rounds.max(1),
        lasts: Duration::from_secs_f64(arguments.seconds),
        namespace: arguments.namespace,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let report = runtime.block_on(load.run(&rows))?;
    print!("{report}");
    Ok(())
}
