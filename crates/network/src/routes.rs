//! The way to the pods of other nodes: a route to each node's block through that node's address.
//!
//! All routes of ours have a protocol number of our own, by which they are found again. A node that is not on the same
//! network is reached by the router that leads to it, which must know the way to the node's pods: on one machine with
//! several nodes that is the machine itself. There is no overlay network.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use controller_runtime::{Change, Informer, Informers, Key};
use k8s_openapi::api::core::v1::Node;
use nlink::netlink::{
    Connection, Route,
    messages::RouteMessage,
    route::Ipv4Route,
    types::route::{RouteProtocol, RouteScope},
};
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{Error, LOOK_EVERY, block::Block, links::open};

/// By which our routes are known. Nobody else has registered it.
const OURS: RouteProtocol = RouteProtocol::Other(157);
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Keeps the routes of this node up to date until it is told to stop. They stay when it stops; [`purge`] removes them.
pub async fn run(informers: Informers, node_name: String, stop: CancellationToken) {
    let nodes = informers.of::<Node>();
    let changed = Arc::new(Notify::new());
    nodes.on_change({
        let changed = Arc::downgrade(&changed);
        move |change: &Change<Node>| {
            let same = match change {
                Change::Applied { old: Some(old), new } => ways_to(old) == ways_to(new),
                _ => false,
            };
            if let Some(changed) = changed.upgrade().filter(|_| !same) {
                changed.notify_one();
            }
        }
    });
    stop.run_until_cancelled(async {
        nodes.synced().await;
        let mut told = None;
        loop {
            let problem = bring_about(&nodes, &node_name).await.err().map(|error| error.to_string());
            if let Some(problem) = problem.as_ref().filter(|problem| told.as_ref() != Some(*problem)) {
                tracing::warn!(problem, "pods of some nodes cannot be reached; trying again");
            }
            // Routes go with a link that goes down, and do not come back with it. A node that cannot be reached keeps none that
            // changes waiting.
            let again_after = if problem.is_some() { AFTER_FAILURE } else { LOOK_EVERY };
            let _ = timeout(again_after, changed.notified()).await;
            told = problem;
        }
    })
    .await;
}

/// Removes the routes that [`run`] has made.
pub async fn purge() -> Result<(), Error> {
    let kernel = open()?;
    for (block, next) in ours(&kernel).await? {
        remove(&kernel, block, next).await?;
    }
    Ok(())
}

/// The blocks of a node's pods, each with the node's address.
fn ways_to(node: &Node) -> Vec<(Block, Ipv4Addr)> {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref()).into_iter().flatten();
    let mut internal = addresses.filter(|address| address.type_ == "InternalIP");
    let Some(address) = internal.find_map(|address| address.address.parse().ok()) else { return Vec::new() };
    let blocks = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
    blocks.filter_map(|block| Some((block.parse().ok()?, address))).collect()
}

/// Makes the routes that are missing, and removes those that lead nowhere any more. One that cannot be made keeps no other from
/// being made.
async fn bring_about(nodes: &Informer<Node>, own_name: &str) -> Result<(), Error> {
    let kernel = open()?;
    let mut known = ours(&kernel).await?;
    let own = Key::new("", own_name);
    let mut problems = Vec::new();
    for node in nodes.all().iter().filter(|node| Key::of(&***node) != own) {
        for (block, address) in ways_to(node) {
            // As long as there is no other way, the one that was there may be right.
            let before = known.remove(&block);
            let next = match next_hop(&kernel, address).await {
                Ok(next) if before == Some(next) => continue,
                Ok(next) => next,
                Err(error) => {
                    problems.push(error.to_string());
                    continue;
                }
            };
            match kernel.replace_route(route(block, next)).await {
                Ok(()) => tracing::debug!(%block, %next, "a route to the pods of a node"),
                Err(error) => problems.push(format!("{block} through {next}: {error}")),
            }
        }
    }
    for (block, next) in known {
        problems.extend(remove(&kernel, block, next).await.err().map(|error| error.to_string()));
    }
    if problems.is_empty() { Ok(()) } else { Err(Error(problems.join("; "))) }
}

/// The address itself if it is on a network of this node, or else the router that leads to it.
async fn next_hop(kernel: &Connection<Route>, address: Ipv4Addr) -> Result<Ipv4Addr, Error> {
    let way = kernel.lookup_route(address.into()).await;
    match way.map_err(|error| Error(format!("there is no way to the node at {address}: {error}")))?.gateway() {
        Some(IpAddr::V4(router)) => Ok(*router),
        _ => Ok(address),
    }
}

async fn ours(kernel: &Connection<Route>) -> Result<HashMap<Block, Ipv4Addr>, Error> {
    let all = kernel.get_routes().await.map_err(|error| Error(format!("cannot read the routes: {error}")))?;
    Ok(all.iter().filter(|route| route.protocol() == OURS).filter_map(way_of).collect())
}

fn way_of(route: &RouteMessage) -> Option<(Block, Ipv4Addr)> {
    match (route.destination()?, route.gateway()?) {
        (IpAddr::V4(first), IpAddr::V4(next)) => Some((Block::around(*first, route.dst_len()), *next)),
        _ => None,
    }
}

fn route(block: Block, next: Ipv4Addr) -> Ipv4Route {
    Ipv4Route::new(block.first(), block.prefix()).gateway(next).protocol(OURS).scope(RouteScope::Universe)
}

async fn remove(kernel: &Connection<Route>, block: Block, next: Ipv4Addr) -> Result<(), Error> {
    let removed = kernel.del_route_if_exists(route(block, next)).await;
    removed.map(drop).map_err(|error| Error(format!("cannot remove the route to {block}: {error}")))
}
