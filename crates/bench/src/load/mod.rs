//! The load: rows of the same kind of request, from many connections at once, each waiting for its answer before it
//! sends the next.

pub mod connection;
pub mod kubeconfig;
pub mod report;
pub mod requests;
mod scheduling;
pub mod sightings;
mod watching;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use bench::process::{cpu_time, resident_kilobytes};
use clap::ValueEnum;
use connection::Connection;
use kubeconfig::Cluster;
use report::{Measured, Report};
use requests::Requests;
use tokio::task::JoinSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Row {
    /// Memory for connections that nobody uses
    Idle,
    /// Create objects
    Create,
    /// Read them one by one
    Get,
    /// List them all
    List,
    /// List them all by a label
    Label,
    /// List one in a hundred by a label
    Rare,
    /// Patch them while others watch
    Patch,
    /// Delete them
    Delete,
    /// Create pods, and wait until a scheduler has bound them
    Bind,
    /// The same with pods that must not share a node
    Apart,
}

impl Row {
    /// What every API server can do by itself.
    pub fn without_scheduler() -> Vec<Self> {
        Self::value_variants().iter().copied().filter(|row| !row.needs_scheduler()).collect()
    }

    fn needs_scheduler(self) -> bool {
        matches!(self, Row::Bind | Row::Apart)
    }
}

pub struct Load {
    pub cluster: Cluster,
    pub processes: Vec<u32>,
    pub connections: usize,
    pub patchers: usize,
    pub watchers: usize,
    pub idle: usize,
    pub objects: usize,
    pub nodes: usize,
    pub pods: usize,
    pub rounds: usize,
    pub lasts: Duration,
    pub namespace: String,
}

impl Load {
    /// Measures the rows that are wanted. Objects are there for all of them, and gone at the end.
    pub async fn run(&self, rows: &[Row]) -> anyhow::Result<Report> {
        let mut report = Report::default();
        let before = self.memory();
        if rows.iter().any(|row| row.needs_scheduler()) {
            scheduling::bindings(self, rows, &mut report).await?;
        }
        if rows.iter().all(|row| row.needs_scheduler()) {
            return Ok(report);
        }
        if rows.contains(&Row::Idle) {
            self.idle_connections(&mut report).await?;
        }
        let requests = Arc::new(Requests::new(&self.cluster.address.to_string(), &self.namespace, self.objects));
        let mut connections = self.open(self.connections).await?;
        let (mut created, mut deleted) = (Measured::default(), Measured::default());
        let rounds = if rows.contains(&Row::Create) || rows.contains(&Row::Delete) { self.rounds } else { 1 };
        for round in 1..=rounds {
            let all = requests.clone();
            created.add(self.all(&mut connections, 201, move |i| all.create.get(i).cloned()).await?);
            if round == rounds {
                if rows.contains(&Row::Create) {
                    report.row("create", std::mem::take(&mut created));
                }
                self.reads(rows, &requests, &mut connections, &mut report).await?;
                if rows.contains(&Row::Patch) {
                    watching::patches(self, &requests, &mut connections, &mut report).await?;
                }
            }
            let all = requests.clone();
            deleted.add(self.all(&mut connections, 200, move |i| all.delete.get(i).cloned()).await?);
        }
        if rows.contains(&Row::Delete) {
            report.row("delete", deleted);
        }
        drop(connections);
        if !self.processes.is_empty() {
            let after = self.memory();
            let settling = self.lasts * 2;
            tokio::time::sleep(settling).await;
            let settled = self.memory();
            report.remark(format!(
                "server memory: {before} kB before the load, {after} kB after it, {settled} kB {settling:.1?} later"
            ));
        }
        Ok(report)
    }

    async fn reads(
        &self,
        rows: &[Row],
        requests: &Arc<Requests>,
        connections: &mut Vec<Connection>,
        report: &mut Report,
    ) -> anyhow::Result<()> {
        let count = self.objects;
        type Pick = fn(&Requests, usize) -> &[u8];
        let reads: [(Row, String, Pick); 4] = [
            (Row::Get, "get".into(), |r, i| &r.get[i % r.get.len()]),
            (Row::List, format!("list {count}"), |r, _| &r.list),
            (Row::Label, format!("list {count} by label"), |r, _| &r.by_label),
            (Row::Rare, format!("list {} of {count} by label", count.div_ceil(100)), |r, _| &r.by_rare_label),
        ];
        for (row, name, pick) in reads {
            if rows.contains(&row) {
                let (until, requests) = (Instant::now() + self.lasts, requests.clone());
                let next = move |i: usize| (Instant::now() < until).then(|| pick(&requests, i).to_vec());
                report.row(&name, self.all(connections, 200, next).await?);
            }
        }
        Ok(())
    }

    pub async fn open(&self, count: usize) -> anyhow::Result<Vec<Connection>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            let opened = Connection::open(&self.cluster).await;
            connections.push(opened.with_context(|| format!("cannot connect to {}", self.cluster.address))?);
        }
        Ok(connections)
    }

    /// Every connection sends the next request until there is none.
    pub async fn all(
        &self,
        connections: &mut Vec<Connection>,
        code: u16,
        next: impl Fn(usize) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> anyhow::Result<Measured> {
        let (next, counter) = (Arc::new(next), Arc::new(AtomicUsize::new(0)));
        let (began, cpu) = (Instant::now(), self.cpu());
        let mut tasks = JoinSet::new();
        for mut connection in connections.drain(..) {
            let (next, counter) = (next.clone(), counter.clone());
            tasks.spawn(async move {
                let mut measured = Measured::default();
                while let Some(request) = next(counter.fetch_add(1, Ordering::Relaxed)) {
                    let sent = Instant::now();
                    measured.bytes += connection.exchange(&request, code).await?;
                    measured.took.push(sent.elapsed().as_micros() as u32);
                }
                anyhow::Ok((connection, measured))
            });
        }
        let mut total = Measured::default();
        while let Some(ended) = tasks.join_next().await {
            let (connection, measured) = ended??;
            connections.push(connection);
            total.add(measured);
        }
        total.time = began.elapsed();
        total.cpu = self.cpu().saturating_sub(cpu);
        Ok(total)
    }

    async fn idle_connections(&self, report: &mut Report) -> anyhow::Result<()> {
        let before = self.memory();
        let connections = self.open(self.idle).await?;
        let after = self.memory();
        let each = after.saturating_sub(before) as f64 / connections.len().max(1) as f64;
        report.remark(format!(
            "{} idle connections: server memory {before} kB before, {after} kB with them, {each:.1} kB each",
            connections.len()
        ));
        Ok(())
    }

    pub fn cpu(&self) -> Duration {
        self.processes.iter().map(|process| cpu_time(*process)).sum()
    }

    pub fn memory(&self) -> u64 {
        self.processes.iter().map(|process| resident_kilobytes(*process)).sum()
    }
}
