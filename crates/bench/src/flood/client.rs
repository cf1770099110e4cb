//! The process that floods: one tenant on many connections, each sending its next request as soon as it has its answer.

use std::{
    io::{Read, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use tokio::task::JoinSet;

use super::tenants::Caller;
use crate::load::{connection::Connection, kubeconfig::Cluster, requests};

/// The environment variable with the tenant's token.
pub const TOKEN: &str = "BENCH_TOKEN";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Read objects one by one
    Get,
    /// List them all
    List,
    /// Create an object and delete it again
    Create,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Create => "create",
        }
    }
}

/// Flood until standard input ends
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    namespace: String,
    #[arg(long, value_enum)]
    kind: Kind,
    #[arg(long)]
    connections: usize,
    #[arg(long)]
    objects: usize,
    /// Keep every processor busy instead, and send nothing
    #[arg(long)]
    compute: bool,
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    served: AtomicU64,
    refused: AtomicU64,
}

impl Counts {
    fn say(&self) -> anyhow::Result<()> {
        say(&format!("{} {}", self.served.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed)))
    }
}

/// Goes on until standard input ends, or there is nobody to tell that it has begun.
async fn until_told(counts: &Counts) -> anyhow::Result<()> {
    let begun = say("flooding");
    if begun.is_ok() {
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    }
    counts.stop.store(true, Ordering::Relaxed);
    begun
}

async fn compute(counts: Arc<Counts>) -> anyhow::Result<()> {
    for _ in 0..std::thread::available_parallelism()?.get() {
        let counts = counts.clone();
        tokio::task::spawn_blocking(move || {
            while !counts.stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
    until_told(&counts).await?;
    counts.say()
}

impl Arguments {
    pub async fn run(&self) -> anyhow::Result<()> {
        let counts = Arc::new(Counts::default());
        if self.compute {
            return compute(counts).await;
        }
        let cluster = Cluster::read(&self.kubeconfig)?;
        let token = std::env::var(TOKEN).context("whose flood is it?")?;
        let caller = Caller::new(&cluster, &self.namespace, &token);
        let mut tasks = JoinSet::new();
        for number in 0..self.connections.max(1) {
            let connection = Connection::open_as_nobody(&cluster).await?;
            tasks.spawn(flood(connection, self.requests(&caller, number), counts.clone()));
        }
        until_told(&counts).await?;
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        counts.say()
    }

    /// What one connection sends again and again.
    fn requests(&self, caller: &Caller, connection: usize) -> Vec<Vec<u8>> {
        match self.kind {
            Kind::Get => (0..self.objects.max(1))
                .skip(connection % 7)
                .step_by(7)
                .map(|i| caller.get(&requests::name(i)))
                .collect(),
            Kind::List => vec![caller.list()],
            Kind::Create => {
                let name = format!("flood-{connection}");
                vec![caller.create(&name), caller.delete(&name)]
            }
        }
    }
}

async fn flood(mut connection: Connection, requests: Vec<Vec<u8>>, counts: Arc<Counts>) -> anyhow::Result<()> {
    // At the end of a round, so that nothing is left that was created.
    while !counts.stop.load(Ordering::Relaxed) {
        for request in &requests {
            loop {
                let (code, beginning) = connection.outcome(request).await?;
                match code {
                    200 | 201 => {
                        counts.served.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    429 => counts.refused.fetch_add(1, Ordering::Relaxed),
                    _ => bail!("the server answered {code}: {}", String::from_utf8_lossy(&beginning)),
                };
            }
            if requests.len() > 2 && counts.stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
