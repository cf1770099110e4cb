//! Pods that a scheduler binds to nodes nobody runs: how many in a second, and how long after each was created.

use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};

use super::{
    Connection, Load, Measured, Report, Row,
    requests::{JSON, request},
    sightings::{LABEL, Sightings, pod_name},
};

/// Makes the nodes, measures the rows that are wanted, and takes the nodes away whatever happened.
pub async fn bindings(load: &Load, rows: &[Row], report: &mut Report) -> anyhow::Result<()> {
    let mut connections = load.open(load.connections).await?;
    let host = load.cluster.address.to_string();
    let post = |i: usize| request("POST", &host, "/api/v1/nodes", JSON, &node(i));
    let nodes: Vec<_> = (0..load.nodes).map(post).collect();
    load.all(&mut connections, 201, move |i| nodes.get(i).cloned()).await?;
    let measured = wanted(load, rows, &mut connections, report).await;
    if measured.is_err() {
        connections = load.open(load.connections).await?;
    }
    let delete = |i: usize| request("DELETE", &host, &format!("/api/v1/nodes/{}", node_name(i)), "", b"");
    let nodes: Vec<_> = (0..load.nodes).map(delete).collect();
    load.all(&mut connections, 200, move |i| nodes.get(i).cloned()).await?;
    measured
}

async fn wanted(
    load: &Load,
    rows: &[Row],
    connections: &mut Vec<Connection>,
    report: &mut Report,
) -> anyhow::Result<()> {
    for (row, apart, remark) in [(Row::Bind, false, ""), (Row::Apart, true, ", one each")] {
        if rows.contains(&row) {
            let measured = bind(load, connections, apart).await?;
            report.row(&format!("bind {} pods to {} nodes{remark}", measured.took.len(), load.nodes), measured);
        }
    }
    Ok(())
}

async fn bind(load: &Load, connections: &mut Vec<Connection>, apart: bool) -> anyhow::Result<Measured> {
    let host = load.cluster.address.to_string();
    let collection = format!("/api/v1/namespaces/{}/pods", load.namespace);
    let pods = if apart { load.pods.min(load.nodes) } else { load.pods };
    let sightings = Sightings::begin(&load.cluster, &collection, r#""nodeName":""#).await?;
    let create = |i: usize| request("POST", &host, &collection, JSON, &pod(i, apart));
    let (requests, board): (Vec<_>, _) = ((0..pods).map(create).collect(), sightings.board.clone());
    let (began, cpu) = (Instant::now(), load.cpu());
    let next = move |i: usize| {
        let request = requests.get(i).cloned()?;
        board.creates(i);
        Some(request)
    };
    load.all(connections, 201, next).await?;
    sightings.wait_for(pods).await;
    let (time, cpu) = (began.elapsed(), load.cpu().saturating_sub(cpu));
    let took = sightings.end(pods).await.context("pods are not bound: does a scheduler run?")?;

    let delete =
        |i: usize| request("DELETE", &host, &format!("{collection}/{}?gracePeriodSeconds=0", pod_name(i)), "", b"");
    let requests: Vec<_> = (0..pods).map(delete).collect();
    load.all(connections, 200, move |i| requests.get(i).cloned()).await?;
    Ok(Measured { time, cpu, took, bytes: 0 })
}

fn node_name(i: usize) -> String {
    format!("bench-node-{i:05}")
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
