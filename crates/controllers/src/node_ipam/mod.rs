//! Every node has a block of addresses for its pods. Kubernetes calls this the RangeAllocator.
//!
//! Invariant: a block is taken before it is written to a node, and given back when the write fails for good or the node is
//! gone. So two nodes never get the same, however far behind the cache is.

mod blocks;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use blocks::Range;
use controller_runtime::{
    Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder, about},
};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Setting;

pub use blocks::{Error as BlocksError, PodBlocks};

const ACCOUNT: &str = "node-controller";
const COMPONENT: &str = "cidrAllocator";
const WORKERS: usize = 4;

struct NodeIpam {
    client: Client,
    nodes: Informer<Node>,
    ranges: Arc<Mutex<Vec<Range>>>,
    /// Nodes for which there was no block. They are asked again when one becomes free.
    without: Arc<Mutex<BTreeSet<Key>>>,
    queue: WorkQueue<Key>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = NodeIpam {
        client: setting.client(ACCOUNT),
        nodes: setting.informers.of(),
        ranges: Arc::new(Mutex::new(setting.pod_blocks.ranges())),
        without: Arc::default(),
        queue: queue.clone(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
    };
    // What nodes have already must be known before the first block is given away.
    controller.nodes.synced_or_stopped().await;
    let (on_node, ranges, without) = (queue.clone(), controller.ranges.clone(), controller.without.clone());
    controller.nodes.on_change(move |change| match change {
        Change::Applied { new, .. } => {
            each(&mut lock(&ranges), &blocks_of(new), Range::occupy);
            on_node.add(Key::of(&**new));
        }
        Change::Deleted(last) => {
            lock(&without).remove(&Key::of(&**last));
            give_back(&ranges, &blocks_of(last), &without, &on_node);
        }
    });
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn each(ranges: &mut [Range], blocks: &[IpNet], work: impl Fn(&mut Range, &IpNet)) {
    for range in ranges {
        blocks.iter().for_each(|block| work(range, block));
    }
}

/// The blocks are free, and whoever waits for one may have it: the first that asks.
fn give_back(ranges: &Mutex<Vec<Range>>, blocks: &[IpNet], without: &Mutex<BTreeSet<Key>>, queue: &WorkQueue<Key>) {
    each(&mut lock(ranges), blocks, Range::release);
    lock(without).iter().cloned().for_each(|waiting| queue.add(waiting));
}

fn blocks_of(node: &Node) -> Vec<IpNet> {
    let blocks = node.spec.iter().filter_map(|spec| spec.pod_cidrs.as_ref()).flatten();
    blocks.filter_map(|block| block.parse().ok()).collect()
}

impl Controller for NodeIpam {
    type Key = Key;

    fn name(&self) -> &'static str {
        "node-ipam-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Next::WhenChanged) };
        let has_some = node.spec.as_ref().and_then(|spec| spec.pod_cidrs.as_ref()).is_some_and(|has| !has.is_empty());
        if has_some || node.metadata.deletion_timestamp.is_some() {
            lock(&self.without).remove(key);
            return Ok(Next::WhenChanged);
        }
        let Some(taken) = self.take(key, &node) else { return Ok(Next::WhenChanged) };
        let texts: Vec<String> = taken.iter().map(IpNet::to_string).collect();
        let change = json!({
            "metadata": {"uid": node.metadata.uid},
            "spec": {"podCIDR": texts.first(), "podCIDRs": texts},
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        match nodes.patch(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await {
            Ok(written) => {
                self.own_writes.wrote(key, &self.nodes, &written);
                Ok(Next::WhenChanged)
            }
            // The server says no. The node may be gone, or another of its name may be there, or it has a block already.
            Err(kube::Error::Api(status)) => {
                give_back(&self.ranges, &taken, &self.without, &self.queue);
                if status.is_not_found() {
                    return Ok(Next::WhenChanged);
                }
                self.tell(&node, "CIDRAssignmentFailed");
                Err(kube::Error::Api(status).into())
            }
            // Whether it was written is not known: the blocks stay taken.
            Err(error) => Err(error.into()),
        }
    }
}

impl NodeIpam {
    /// One block of each family, or none at all: then the node waits for others to go.
    fn take(&self, key: &Key, node: &Node) -> Option<Vec<IpNet>> {
        let mut ranges = lock(&self.ranges);
        let taken: Vec<IpNet> = ranges.iter_mut().filter_map(Range::take).collect();
        if taken.len() == ranges.len() {
            lock(&self.without).remove(key);
            return Some(taken);
        }
        each(&mut ranges, &taken, Range::release);
        // Before anybody can give a block back and not know of this node.
        let mut without = lock(&self.without);
        if without.is_empty() {
            tracing::warn!(
                node = key.name,
                "all blocks of addresses for nodes are taken: this one and later ones get none"
            );
        }
        if without.insert(key.clone()) {
            self.tell(node, "CIDRNotAvailable");
        }
        None
    }

    fn tell(&self, node: &Node, status: &str) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        self.recorder.event(&about(node), EventType::Normal, status, format!("Node {name} status is now: {status}"));
    }
}
