//! Pods that a scheduler binds to nodes nobody runs: how many in a second, and how long after each was created.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use memchr::memmem;
use serde_json::{Value, json};

use super::{Connection, Load, Measured, Report, Row, requests::request};

/// No scheduler takes longer.
const BOUND_WITHIN: Duration = Duration::from_secs(600);
const JSON: &str = "Content-Type: application/json\r\n";
/// Marks nodes and pods as belonging to the load.
const LABEL: &str = "bench";

/// Makes the nodes, measures the rows that are wanted, and takes everything away.
pub async fn bindings(load: &Load, rows: &[Row], report: &mut Report) -> anyhow::Result<()> {
    let mut connections = load.open(load.connections).await?;
    let host = load.cluster.address.to_string();
    let post = |i: usize| request("POST", &host, "/api/v1/nodes", JSON, &node(i));
    let nodes: Vec<_> = (0..load.nodes).map(post).collect();
    load.all(&mut connections, 201, move |i| nodes.get(i).cloned()).await?;
    for (row, apart, remark) in [(Row::Bind, false, ""), (Row::Apart, true, ", one each")] {
        if rows.contains(&row) {
            let measured = bind(load, &mut connections, &host, apart).await?;
            report.row(&format!("bind {} pods to {} nodes{remark}", measured.took.len(), load.nodes), measured);
        }
    }
    let delete = |i: usize| request("DELETE", &host, &format!("/api/v1/nodes/{}", node_name(i)), "", b"");
    let nodes: Vec<_> = (0..load.nodes).map(delete).collect();
    load.all(&mut connections, 200, move |i| nodes.get(i).cloned()).await?;
    Ok(())
}

/// When pods were created, and when they were seen bound.
struct Board {
    began: Instant,
    /// In microseconds since the beginning, by the pod's number.
    created: Mutex<HashMap<usize, u64>>,
    bound: AtomicUsize,
}

async fn bind(load: &Load, connections: &mut Vec<Connection>, host: &str, apart: bool) -> anyhow::Result<Measured> {
    let collection = format!("/api/v1/namespaces/{}/pods", load.namespace);
    let pods = if apart { load.pods.min(load.nodes) } else { load.pods };
    let board = Arc::new(Board { began: Instant::now(), created: Mutex::default(), bound: AtomicUsize::new(0) });
    let (end, ended) = tokio::sync::watch::channel(());
    let watched = format!("{collection}?watch=1&labelSelector={LABEL}%3Dpod");
    let watch = request("GET", host, &watched, "", b"");
    let watching = tokio::spawn(see(Connection::open(&load.cluster).await?, watch, board.clone(), ended));

    let create = |i: usize| request("POST", host, &collection, JSON, &pod(i, apart));
    let (requests, noting): (Vec<_>, _) = ((0..pods).map(create).collect(), board.clone());
    let (began, cpu) = (Instant::now(), load.cpu());
    let next = move |i: usize| {
        let request = requests.get(i).cloned()?;
        let now = noting.began.elapsed().as_micros() as u64;
        noting.created.lock().unwrap_or_else(PoisonError::into_inner).insert(i, now);
        Some(request)
    };
    load.all(connections, 201, next).await?;
    let all_bound = tokio::time::timeout(BOUND_WITHIN, async {
        while board.bound.load(Ordering::Relaxed) < pods && !watching.is_finished() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let in_time = all_bound.await.is_ok();
    let (time, cpu) = (began.elapsed(), load.cpu().saturating_sub(cpu));
    drop(end);
    let took = watching.await??;
    ensure!(in_time && took.len() == pods, "{} of {pods} pods were bound: does a scheduler run?", took.len());

    let delete =
        |i: usize| request("DELETE", host, &format!("{collection}/{}?gracePeriodSeconds=0", pod_name(i)), "", b"");
    let requests: Vec<_> = (0..pods).map(delete).collect();
    load.all(connections, 200, move |i| requests.get(i).cloned()).await?;
    Ok(Measured { time, cpu, took, bytes: 0 })
}

/// Watches until told to end; returns how long after they were created pods were bound, in microseconds.
async fn see(
    mut connection: Connection,
    request: Vec<u8>,
    board: Arc<Board>,
    mut ended: tokio::sync::watch::Receiver<()>,
) -> anyhow::Result<Vec<u32>> {
    let (mut took, mut line, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
    let watching = connection.stream(&request, 200, |mut chunk| {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            line.extend_from_slice(&chunk[..end]);
            chunk = &chunk[end + 1..];
            let bound = memmem::find(&line, br#""nodeName":""#).is_some();
            if let Some(number) = number_in(&line).filter(|number| bound && seen.insert(*number, ()).is_none()) {
                let now = board.began.elapsed().as_micros() as u64;
                let created = board.created.lock().unwrap_or_else(PoisonError::into_inner).get(&number).copied();
                took.push(now.saturating_sub(created.unwrap_or(now)) as u32);
                board.bound.fetch_add(1, Ordering::Relaxed);
            }
            line.clear();
        }
        line.extend_from_slice(chunk);
    });
    tokio::select! {
        // The other end of the channel says nothing and goes away at the end.
        _ = ended.changed() => {}
        broken = watching => broken.context("a watch ended")?,
    }
    Ok(took)
}

fn number_in(event: &[u8]) -> Option<usize> {
    const NAME: &[u8] = br#""name":"bench-pod-"#;
    let at = memmem::find(event, NAME)? + NAME.len();
    let digits: String = event.get(at..)?.iter().take_while(|b| b.is_ascii_digit()).map(|b| char::from(*b)).collect();
    digits.parse().ok()
}

fn node_name(i: usize) -> String {
    format!("bench-node-{i:05}")
}

fn pod_name(i: usize) -> String {
    format!("bench-pod-{i:05}")
}

fn node(i: usize) -> Vec<u8> {
    let (name, zone) = (node_name(i), format!("zone-{}", i % 3));
    let has = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            LABEL: "node", "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone,
        }},
        "status": {"capacity": has, "allocatable": has, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Hollow", "message": "nobody is here",
        }]},
    });
    node.to_string().into_bytes()
}

/// A pod for those nodes only, which tolerates that nobody keeps them.
fn pod(i: usize, apart: bool) -> Vec<u8> {
    let affinity = match apart {
        false => Value::Null,
        true => json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {LABEL: "pod"}}, "topologyKey": "kubernetes.io/hostname",
        }]}}),
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(i), "labels": {LABEL: "pod"}},
        "spec": {
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}],
            "nodeSelector": {LABEL: "node"}, "tolerations": [{"operator": "Exists"}], "affinity": affinity,
            "automountServiceAccountToken": false,
        },
    });
    pod.to_string().into_bytes()
}
