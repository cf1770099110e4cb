//! A flood: how much slower one tenant, and the system, become while another tenant sends on many connections at full
//! speed.
//!
//! Three service accounts are made for it: the tenant who floods, the tenant who goes on with what they do, and one of
//! kube-system. The two that go on send now and then, on a connection each; what they wait for is measured without and with the
//! flood, which comes from a process of its own; if that is to be far away, also while it only keeps the processors busy.
//! Everything that was made is gone at the end.

mod afar;
pub mod client;
mod tenants;

use std::{
    fmt,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use afar::Afar;
use anyhow::{Context, ensure};
use bench::process::resident_kilobytes;
use clap::{Args, ValueEnum};
use client::{Kind, TOKEN};
use tenants::{Tenant, Tenants};

use crate::load::{
    connection::Connection,
    kubeconfig::Cluster,
    report::{percentile, shown, write_table},
};

/// Between two requests of those who go on with what they do.
const PAUSE: Duration = Duration::from_millis(1);
/// Before anything is measured: the store still has to put away what was written last.
const SETTLE: Duration = Duration::from_secs(5);

/// Measure how much slower one tenant becomes while another floods the server
#[derive(Args)]
pub struct Arguments {
    /// The server, and a user with a client certificate who may do everything
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// The server's processes on this machine, to measure their memory
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    server_pid: Vec<u32>,
    /// Connections of the flood
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    connections: usize,
    /// ConfigMaps of 1 KiB that the flood reads
    #[arg(long, value_name = "COUNT", default_value_t = 3000)]
    objects: usize,
    /// How often each request of those who go on is measured, without and with the flood
    #[arg(long, value_name = "COUNT", default_value_t = 2000)]
    samples: usize,
    /// In how many parts, without and with the flood by turns: the machine itself is not always equally fast
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    rounds: usize,
    /// Only these floods
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Let the flood have only the processor time that nobody else wants, as if it came from another machine
    #[arg(long)]
    from_afar: bool,
}

/// What was measured of one kind of request of one who goes on.
struct Row {
    flood: Kind,
    what: &'static str,
    quiet: Vec<u32>,
    /// While nobody floods, and what would flood only computes. Empty if that was not asked for.
    busy: Vec<u32>,
    flooded: Vec<u32>,
}

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
    remarks: Vec<String>,
}

const WHAT: [&str; 4] = ["tenant get", "tenant create", "system get", "system create"];
type Samples = [Vec<u32>; WHAT.len()];

impl Arguments {
    pub async fn run(&self) -> anyhow::Result<Report> {
        let cluster = Cluster::read(&self.kubeconfig)
            .with_context(|| format!("cannot use the kubeconfig {}", self.kubeconfig.display()))?;
        let tenants = Tenants::make(&cluster, self.objects).await?;
        let report = self.measure(&cluster, &tenants).await;
        tenants.remove(&cluster).await?;
        report
    }

    async fn measure(&self, cluster: &Cluster, tenants: &Tenants) -> anyhow::Result<Report> {
        let mut report = Report::default();
        report.remarks.push(match self.from_afar {
            true => "the flood had only the processor time that nobody else wanted (cpu.idle)".into(),
            false => "the flood took processor time from the server and from those who were measured".into(),
        });
        let quiet_ones = [&tenants.quiet, &tenants.system];
        let kinds = if self.kinds.is_empty() { Kind::value_variants() } else { &self.kinds };
        let rounds = self.rounds.max(1);
        let times = self.samples.div_ceil(rounds);
        for flood in kinds {
            let [mut quiet, mut busy, mut flooded] = <[Samples; 3]>::default();
            let (mut answered, mut refused, mut before, mut during) = (0, 0, u64::MAX, 0);
            for _ in 0..rounds {
                tokio::time::sleep(SETTLE).await;
                sample(cluster, quiet_ones, times, &mut quiet).await?;
                before = before.min(self.memory());
                if self.from_afar {
                    let running = Flood::start(self, &tenants.flooding, *flood, &["--compute"])?;
                    sample(cluster, quiet_ones, times, &mut busy).await?;
                    running.end()?;
                }
                let running = Flood::start(self, &tenants.flooding, *flood, &[])?;
                sample(cluster, quiet_ones, times, &mut flooded).await?;
                during = during.max(self.memory());
                let counted = running.end()?;
                answered += counted.0;
                refused += counted.1;
            }
            let memory = if self.server_pid.is_empty() {
                String::new()
            } else {
                format!("; server memory {before} kB before, {during} kB at the most")
            };
            report
                .remarks
                .push(format!("flood of {}: {answered} answered, {refused} told to come later{memory}", flood.name()));
            for (((what, quiet), busy), flooded) in WHAT.iter().zip(quiet).zip(busy).zip(flooded) {
                report.rows.push(Row { flood: *flood, what, quiet, busy, flooded });
            }
        }
        Ok(report)
    }

    fn memory(&self) -> u64 {
        self.server_pid.iter().map(|process| resident_kilobytes(*process)).sum()
    }
}

/// Each of them gets and creates, in turn, so often, on a connection of their own. How long that took, in microseconds, is
/// added to what was measured before.
async fn sample(cluster: &Cluster, tenants: [&Tenant; 2], times: usize, samples: &mut Samples) -> anyhow::Result<()> {
    let mut connections = [Connection::open_as_nobody(cluster).await?, Connection::open_as_nobody(cluster).await?];
    // The first requests of a connection take longer, and do not count.
    let warm = times / 10;
    for time in 0..warm + times.max(1) {
        let mut filled = samples.iter_mut();
        for (connection, tenant) in connections.iter_mut().zip(tenants) {
            for (request, code) in [(&tenant.get, 200), (&tenant.create, 201)] {
                tokio::time::sleep(PAUSE).await;
                let sent = Instant::now();
                connection.exchange(request, code).await?;
                if let Some(took) = filled.next().filter(|_| time >= warm) {
                    took.push(sent.elapsed().as_micros() as u32);
                }
            }
            connection.exchange(&tenant.delete, 200).await?;
        }
    }
    samples.iter_mut().for_each(|took| took.sort_unstable());
    Ok(())
}

/// The process that floods. It ends when its standard input does.
struct Flood {
    child: Child,
    /// Where it runs, if not among all the others.
    afar: Option<Afar>,
}

impl Flood {
    fn start(arguments: &Arguments, tenant: &Tenant, kind: Kind, further: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("flood-client").arg("--kubeconfig").arg(&arguments.kubeconfig);
        command.args(["--namespace", &tenant.namespace, "--kind", kind.name()]);
        command.args(["--connections", &arguments.connections.to_string()]);
        command.args(["--objects", &arguments.objects.to_string()]).args(further);
        command.env(TOKEN, &tenant.token).stdin(Stdio::piped()).stdout(Stdio::piped());
        let afar = if arguments.from_afar { Some(Afar::make()?) } else { None };
        let child = command.spawn().context("cannot start the process that floods")?;
        let mut flood = Self { child, afar };
        if let Some(afar) = &flood.afar {
            afar.take(&flood.child)?;
        }
        let mut line = String::new();
        BufReader::with_capacity(1, flood.child.stdout.as_mut().context("it has an output")?).read_line(&mut line)?;
        ensure!(line == "flooding\n", "the process that floods failed");
        Ok(flood)
    }

    /// How many of its requests were answered, and how often it was told to come later.
    fn end(mut self) -> anyhow::Result<(u64, u64)> {
        drop(self.child.stdin.take());
        let mut told = String::new();
        self.child.stdout.take().context("it has an output")?.read_to_string(&mut told)?;
        ensure!(self.child.wait()?.success(), "the process that floods failed");
        let (answered, refused) = told.trim().split_once(' ').context("it tells two numbers")?;
        Ok((answered.parse()?, refused.parse()?))
    }
}

/// Whatever happened, nobody floods on.
impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Only now is it empty.
        drop(self.afar.take());
    }
}

const HEAD: [&str; 9] =
    ["flood of", "who waits", "p50 ms", "p99 ms", "busy p99", "flooded p50", "flooded p99", "p99 ratio", "to busy"];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = vec![HEAD.map(str::to_owned)];
        for Row { flood, what, quiet, busy, flooded } in &self.rows {
            let p99 = |sorted: &[u32]| percentile(sorted, 99).unwrap_or(f64::NAN);
            lines.push([
                flood.name().to_owned(),
                (*what).to_owned(),
                shown(quiet, 50),
                shown(quiet, 99),
                shown(busy, 99),
                shown(flooded, 50),
                shown(flooded, 99),
                format!("{:.1}", p99(flooded) / p99(quiet)),
                if busy.is_empty() { "-".into() } else { format!("{:.1}", p99(flooded) / p99(busy)) },
            ]);
        }
        write_table(f, &lines)?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))
    }
}
