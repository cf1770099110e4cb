//! How long agents may keep Secrets and ConfigMaps without asking again, told to each node by the size of the cluster.

use std::sync::{Arc, Mutex, PoisonError};

use controller_runtime::{Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue};
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::Setting;

const ACCOUNT: &str = "ttl-controller";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// From how many nodes, up to how many, and how many seconds. They overlap, so that a node more or less does not matter.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

#[derive(Default)]
struct Size {
    nodes: usize,
    step: usize,
}

impl Size {
    fn set(&mut self, nodes: usize) {
        self.nodes = nodes;
        while STEPS.get(self.step).is_some_and(|(_, most, _)| nodes > *most) {
            self.step += 1;
        }
        while STEPS.get(self.step).is_some_and(|(least, _, _)| nodes < *least) {
            self.step -= 1;
        }
    }

    fn seconds(&self) -> u32 {
        STEPS.get(self.step).map_or(0, |(_, _, seconds)| *seconds)
    }
}

struct Ttl {
    client: Client,
    nodes: Informer<Node>,
    size: Arc<Mutex<Size>>,
    own_writes: OwnWrites<Key>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = Ttl {
        client: setting.client(ACCOUNT),
        nodes: setting.informers.of(),
        size: Arc::default(),
        own_writes: own_writes.clone(),
    };
    controller.nodes.synced_or_stopped().await;
    let (on_node, size) = (queue.clone(), controller.size.clone());
    controller.nodes.on_change(move |change| {
        let mut size = size.lock().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::Applied { old: None, .. } => {
                let nodes = size.nodes + 1;
                size.set(nodes);
            }
            Change::Deleted(_) => {
                let nodes = size.nodes.saturating_sub(1);
                size.set(nodes);
            }
            Change::Applied { .. } => {}
        }
        on_node.add(Key::of(&**change.object()));
    });
    controller_runtime::run(Arc::new(controller), queue, own_writes, 1, stop).await;
}

impl Controller for Ttl {
    type Key = Key;

    fn name(&self) -> &'static str {
        ACCOUNT
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(node) = self.nodes.get(key) else { return Ok(Next::WhenChanged) };
        let wanted = self.size.lock().unwrap_or_else(PoisonError::into_inner).seconds().to_string();
        let said = node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
        if said == Some(&wanted) {
            return Ok(Next::WhenChanged);
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let change = Patch::Strategic(json!({"metadata": {"annotations": {ANNOTATION: wanted}}}));
        match nodes.patch(&key.name, &PatchParams::default(), &change).await {
            Ok(written) => self.own_writes.wrote(key, &self.nodes, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::WhenChanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_cluster_the_longer() {
        let mut size = Size::default();
        let seconds = |size: &mut Size, nodes: usize| {
            size.set(nodes);
            size.seconds()
        };
        let found: Vec<u32> = [1, 100, 101, 95, 89, 5000, 1700, 0].map(|nodes| seconds(&mut size, nodes)).into();
        assert_eq!(found, [0, 0, 15, 15, 0, 300, 60, 0]);
    }
}
