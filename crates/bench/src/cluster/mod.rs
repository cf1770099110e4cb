//! A whole cluster with a real node, measured as those do who have to decide whether it may run on their machine: how soon
//! it is there, what it takes while nothing happens, without and with pods, how soon pods run, and how many are bound in a
//! second.
//!
//! Either a cluster that runs already, or one that is started in a folder of its own and removed at the end: only then is it
//! known how soon it is there. Pods and nodes that are made for it are gone at the end.

mod boot;
mod pods;

use std::{
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Context;
use bench::process::{cpu_time, proportional_kilobytes, resident_kilobytes};
use boot::Boot;
use clap::Args;
use pods::{PodProcesses, Pods};

use crate::load::{
    Load, Row,
    kubeconfig::Cluster,
    report::{self, shown, write_table},
};

/// After a change, until nothing happens any more. No longer than it is watched then.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// Measure a whole cluster: how soon it is there and pods run, and what it takes
#[derive(Args)]
pub struct Arguments {
    /// Start clusters with this executable of ferry, measure how soon they are there, and go on with the last one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "server_pid"])]
    start: Option<PathBuf>,
    /// How many clusters are started one after the other
    #[arg(long, value_name = "COUNT", default_value_t = 5, requires = "start")]
    boots: usize,
    /// A cluster that runs, and a user with a client certificate who may do everything
    #[arg(long, value_name = "FILE", required_unless_present = "start")]
    kubeconfig: Option<PathBuf>,
    /// All processes of that cluster on this machine
    #[arg(long, value_name = "PID", value_delimiter = ',', required_unless_present = "start")]
    server_pid: Vec<u32>,
    /// Pods that are started one after the other
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    one_by_one: usize,
    /// Pods that are started at once
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    at_once: usize,
    /// The image of these pods; it must be on the node
    #[arg(long, value_name = "IMAGE", default_value = "ferry.local/toolbox")]
    image: String,
    /// What runs in them: words, or nothing for what the image says
    #[arg(long, value_name = "WORDS", value_delimiter = ' ', default_value = "pause")]
    command: Vec<String>,
    /// How long it is watched what is used while nothing happens
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    seconds: f64,
    /// Nodes for pods to be bound to; nobody runs them
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    nodes: usize,
    /// Pods to be bound to them
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pods: usize,
    /// The namespace for all pods; it must exist
    #[arg(long, value_name = "NAME", default_value = "default")]
    namespace: String,
}

/// Figures, each with what it is of.
#[derive(Default)]
pub struct Report {
    lines: Vec<[String; 2]>,
    bindings: report::Report,
}

impl Report {
    fn figure(&mut self, what: impl Into<String>, figure: String) {
        self.lines.push([what.into(), figure]);
    }
}

impl Arguments {
    pub async fn run(&self) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let Some(ferry) = &self.start else {
            let kubeconfig = self.kubeconfig.as_ref().context("--kubeconfig says which cluster")?;
            let cluster = Cluster::read(kubeconfig)
                .with_context(|| format!("cannot use the kubeconfig {}", kubeconfig.display()))?;
            self.measure(&self.load(cluster, self.server_pid.clone()), &mut report).await?;
            return Ok(report);
        };
        let mut last = Boot::start(ferry).await?;
        let (mut api_ready, mut node_ready) = (vec![last.api_ready], vec![last.node_ready]);
        for _ in 1..self.boots {
            last.remove()?;
            last = Boot::start(ferry).await?;
            api_ready.push(last.api_ready);
            node_ready.push(last.node_ready);
        }
        let size = std::fs::metadata(ferry).with_context(|| format!("cannot look at {}", ferry.display()))?.len();
        report.figure("size of the executable", format!("{:.1} MB", size as f64 / 1e6));
        report.figure("empty folder → API ready, p50", format!("{:.0} ms", median(api_ready)));
        report.figure("empty folder → node Ready, p50", format!("{:.0} ms", median(node_ready)));
        let measured = self.measure(&self.load(last.cluster()?, vec![last.process()]), &mut report).await;
        last.remove()?;
        measured.map(|()| report)
    }

    fn load(&self, cluster: Cluster, processes: Vec<u32>) -> Load {
        Load {
            cluster,
            processes,
            connections: 32,
            patchers: 0,
            watchers: 0,
            idle: 0,
            objects: 1,
            nodes: self.nodes.max(1),
            pods: self.pods.max(1),
            rounds: 1,
            lasts: SETTLES_WITHIN,
            namespace: self.namespace.clone(),
        }
    }

    async fn measure(&self, load: &Load, report: &mut Report) -> anyhow::Result<()> {
        let pods = Pods::new(load, &self.image, &self.command);
        let measured = self.with_pods(load, &pods, report).await;
        if measured.is_err() {
            // What went wrong is worth more than whether the rest of it can be removed.
            let _ = pods.remove().await;
            return measured;
        }
        report.bindings = load.run(&[Row::Bind, Row::Apart]).await?;
        Ok(())
    }

    async fn with_pods(&self, load: &Load, pods: &Pods<'_>, report: &mut Report) -> anyhow::Result<()> {
        let server = *load.processes.first().context("--server-pid says what to measure")?;
        let before = PodProcesses::look(server);
        self.idle(load, &PodProcesses::default(), "idle", report).await;

        let mut took = pods.one_by_one(self.one_by_one).await?;
        took.sort_unstable();
        let what = format!("create → Running, {} pods one by one", self.one_by_one);
        // Of less than a hundred, the 99th percentile would be the maximum.
        for (name, percent) in [("p50", 50), ("p90", 90), ("max", 100)] {
            report.figure(format!("{what}, {name}"), format!("{} ms", shown(&took, percent)));
        }

        let count = self.at_once;
        let time = pods.at_once(count).await?;
        report.figure(format!("create → Running, {count} pods at once, all"), format!("{:.2} s", time.as_secs_f64()));
        let theirs = PodProcesses::look(server).since(&before);
        self.idle(load, &theirs, &format!("{count} pods"), report).await;
        theirs.tell(report);
        let began = Instant::now();
        pods.remove().await?;
        report.figure(format!("delete → gone, {count} pods, all"), format!("{:.2} s", began.elapsed().as_secs_f64()));
        Ok(())
    }

    /// What the cluster's processes take while nothing happens, those that hold pods included.
    async fn idle(&self, load: &Load, pods: &PodProcesses, when: &str, report: &mut Report) {
        let watched = Duration::from_secs_f64(self.seconds);
        tokio::time::sleep(watched.min(SETTLES_WITHIN)).await;
        let cpu = || load.cpu() + pods.beside.iter().map(|process| cpu_time(*process)).sum::<Duration>();
        let (began, before) = (Instant::now(), cpu());
        tokio::time::sleep(watched).await;
        let used = cpu().saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64().max(f64::EPSILON);
        report.figure(format!("{when}: CPU, of one core"), format!("{:.2} %", used * 100.0));
        report.figure(format!("{when}: resident memory of the cluster"), megabytes(load.memory()));
        if !pods.beside.is_empty() {
            let what = format!("{when}: the same and all that looks after pods");
            let sum =
                |of: fn(u32) -> u64| load.processes.iter().chain(&pods.beside).map(|process| of(*process)).sum::<u64>();
            report.figure(format!("{what}, resident"), megabytes(sum(resident_kilobytes)));
            report.figure(format!("{what}, proportional"), megabytes(sum(proportional_kilobytes)));
        }
    }
}

fn megabytes(kilobytes: u64) -> String {
    format!("{:.1} MB", kilobytes as f64 / 1024.0)
}

/// In milliseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_table(f, &self.lines)?;
        write!(f, "\n{}", self.bindings)
    }
}
