//! Pods that really run, and what holds them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::ensure;
use bench::process::{all, mount_namespace, parent, private_kilobytes, proportional_kilobytes, resident_kilobytes};
use serde_json::{Value, json};

use super::{Report, megabytes};
use crate::load::{
    Load,
    connection::Connection,
    requests::{JSON, request},
    sightings::{LABEL, Sightings, pod_name},
};

const RUNNING: &str = r#""phase":"Running""#;
/// From when pods are deleted until nothing of them is left.
const GONE_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Pods<'a> {
    load: &'a Load,
    host: String,
    collection: String,
    spec: Value,
}

impl<'a> Pods<'a> {
    pub fn new(load: &'a Load, image: &str, command: &[String]) -> Self {
        let command: Vec<&String> = command.iter().filter(|word| !word.is_empty()).collect();
        let container = json!({
            "name": "main", "image": image, "command": command, "imagePullPolicy": "IfNotPresent",
        });
        Self {
            load,
            host: load.cluster.address.to_string(),
            collection: format!("/api/v1/namespaces/{}/pods", load.namespace),
            // Nobody waits for these pods to say goodbye.
            spec: json!({"containers": [container], "terminationGracePeriodSeconds": 1}),
        }
    }

    fn create(&self, i: usize) -> Vec<u8> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod_name(i), "labels": {LABEL: "pod"}}, "spec": self.spec,
        });
        request("POST", &self.host, &self.collection, JSON, pod.to_string().as_bytes())
    }

    /// Each is created when the one before is gone. How long they took until they ran, in microseconds.
    pub async fn one_by_one(&self, count: usize) -> anyhow::Result<Vec<u32>> {
        let sightings = self.watch().await?;
        let mut connection = Connection::open(&self.load.cluster).await?;
        for i in 0..count {
            sightings.board.creates(i);
            connection.exchange(&self.create(i), 201).await?;
            if !sightings.wait_for(i + 1).await {
                break;
            }
            self.remove().await?;
        }
        sightings.end(count).await
    }

    /// All are created at once. How long it took until the last one ran.
    pub async fn at_once(&self, count: usize) -> anyhow::Result<Duration> {
        let sightings = self.watch().await?;
        let mut connections = self.load.open(count.min(self.load.connections)).await?;
        let requests: Vec<_> = (0..count).map(|i| self.create(i)).collect();
        let began = Instant::now();
        self.load.all(&mut connections, 201, move |i| requests.get(i).cloned()).await?;
        sightings.wait_for(count).await;
        let time = began.elapsed();
        sightings.end(count).await?;
        Ok(time)
    }

    async fn watch(&self) -> anyhow::Result<Sightings> {
        Sightings::begin(&self.load.cluster, &self.collection, RUNNING).await
    }

    /// Deletes all, and waits until they are gone.
    pub async fn remove(&self) -> anyhow::Result<()> {
        let selected = format!("{}?labelSelector={LABEL}%3Dpod", self.collection);
        let mut connection = Connection::open(&self.load.cluster).await?;
        connection.exchange(&request("DELETE", &self.host, &selected, "", b""), 200).await?;
        let list = request("GET", &self.host, &selected, "", b"");
        let began = Instant::now();
        loop {
            let (code, answer) = connection.ask(&list).await?;
            ensure!(code == 200, "pods cannot be listed: {}", String::from_utf8_lossy(&answer));
            let left: Value = serde_json::from_slice(&answer)?;
            let left = left["items"].as_array().map_or(0, Vec::len);
            if left == 0 {
                return Ok(());
            }
            ensure!(began.elapsed() < GONE_WITHIN, "{left} pods are not gone within {} s", GONE_WITHIN.as_secs());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The processes of pods: those that see other files than the cluster does, and beside them those that look after them.
#[derive(Default)]
pub struct PodProcesses {
    own: BTreeSet<u32>,
    pub beside: BTreeSet<u32>,
}

impl PodProcesses {
    /// What there is at the moment; the process of the cluster sees the files of the machine.
    pub fn look(cluster: u32) -> Self {
        let machine = mount_namespace(cluster);
        let sees_others = |process: &u32| mount_namespace(*process).is_some_and(|own| Some(own) != machine);
        let own: BTreeSet<u32> = all().into_iter().filter(sees_others).collect();
        let parents = own.iter().filter_map(|process| parent(*process));
        let beside = parents.filter(|parent| !own.contains(parent) && *parent > 1 && *parent != cluster).collect();
        Self { own, beside }
    }

    /// Those that are new.
    pub fn since(&self, before: &Self) -> Self {
        let new = |now: &BTreeSet<u32>, before: &BTreeSet<u32>| -> BTreeSet<u32> {
            now.difference(before).copied().collect()
        };
        Self { own: new(&self.own, &before.own), beside: new(&self.beside, &before.beside) }
    }

    /// What one takes beside the processes of its pod.
    pub fn tell(&self, report: &mut Report) {
        let count = self.beside.len() as u64;
        let mut each = |what: &str, of: fn(u32) -> u64| {
            let sum: u64 = self.beside.iter().map(|process| of(*process)).sum();
            let figure = sum.checked_div(count).map_or("-".to_owned(), megabytes);
            report.figure(format!("beside a pod's own processes: {what}, of {count}"), figure);
        };
        each("private memory", private_kilobytes);
        each("proportional memory", proportional_kilobytes);
        each("resident memory", resident_kilobytes);
    }
}
