//! ServiceCIDRs, the blocks that Services have their addresses from: one is ready as long as it is there, and goes only when
//! every address in it has a place in another.

use std::{net::IpAddr, sync::Arc, time::Duration};

use controller_runtime::{
    Change, Clock, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder, about},
};
use ipnet::IpNet;
use k8s_openapi::{
    api::networking::v1::{IPAddress, ServiceCIDR},
    jiff::SignedDuration,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::Setting;

const ACCOUNT: &str = "service-cidrs-controller";
const NAME: &str = "service-cidr-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// Who manages the addresses of Services.
const MANAGED_BY: (&str, &str) = ("ipaddress.kubernetes.io/managed-by", "ipallocator.k8s.io");
/// Other servers learn a little later that no more addresses may be taken.
const GRACE: SignedDuration = SignedDuration::from_secs(10);

struct ServiceCidrs {
    client: Client,
    blocks: Informer<ServiceCIDR>,
    addresses: Informer<IPAddress>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = ServiceCidrs {
        client: setting.client(ACCOUNT),
        blocks: setting.informers.of(),
        addresses: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, NAME),
        clock: setting.clock.clone(),
    };
    let (on_block, blocks) = (queue.clone(), controller.blocks.clone());
    // A block may be what another waits for.
    controller.blocks.on_change(move |change| {
        on_block.add(Key::of(&**change.object()));
        let own = ranges(change.object());
        let overlaps = |other: &&Arc<ServiceCIDR>| {
            ranges(other).iter().any(|a| own.iter().any(|b| a.contains(b) || b.contains(a)))
        };
        blocks.all().iter().filter(overlaps).for_each(|other| on_block.add(Key::of(&**other)));
    });
    let (on_address, blocks) = (queue.clone(), controller.blocks.clone());
    controller.addresses.on_change(move |change| {
        if let (Change::Deleted(_), Some(address)) = (change, of_a_service(change.object())) {
            let around = blocks.all();
            let around = around.iter().filter(|block| ranges(block).iter().any(|range| range.contains(&address)));
            around.for_each(|block| on_address.add(Key::of(&**block)));
        }
    });
    controller.blocks.synced_or_stopped().await;
    controller.addresses.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, 1, stop).await;
}

fn ranges(block: &ServiceCIDR) -> Vec<IpNet> {
    let ranges = block.spec.iter().filter_map(|spec| spec.cidrs.as_ref()).flatten();
    ranges.filter_map(|range| range.parse().ok()).collect()
}

fn of_a_service(address: &IPAddress) -> Option<IpAddr> {
    let labels = address.metadata.labels.as_ref()?;
    let ours = labels.get(MANAGED_BY.0).is_some_and(|manager| manager == MANAGED_BY.1);
    address.metadata.name.as_ref().filter(|_| ours)?.parse().ok()
}

/// Whether nothing would be lost with a block: it lies in others, or no address is in it alone.
fn may_go(block: &ServiceCIDR, others: &[Arc<ServiceCIDR>], addresses: &[Arc<IPAddress>]) -> bool {
    let own = ranges(block);
    let others: Vec<IpNet> = others
        .iter()
        .filter(|other| other.metadata.uid != block.metadata.uid)
        .flat_map(|other| ranges(other))
        .collect();
    let covered = own.iter().all(|range| others.iter().any(|other| other.contains(range)));
    let alone = |address: &IpAddr| {
        own.iter().any(|range| range.contains(address)) && !others.iter().any(|other| other.contains(address))
    };
    covered || !addresses.iter().filter_map(|address| of_a_service(address)).any(|address| alone(&address))
}

impl Controller for ServiceCidrs {
    type Key = Key;

    fn name(&self) -> &'static str {
        NAME
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(block) = self.blocks.get(key) else { return Ok(Next::WhenChanged) };
        let finalizers = block.metadata.finalizers.as_deref().unwrap_or_default();
        let protected = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
        let Some(deleted) = &block.metadata.deletion_timestamp else {
            if !protected {
                self.patch(key, json!({"metadata": {"finalizers": [FINALIZER]}})).await?;
            }
            let ready = self.condition(key, &block, "True", "", "Kubernetes Service CIDR is ready").await;
            if ready.is_err() {
                let message = "The ServiceCIDR Status can not be set to Ready=True";
                self.recorder.event(&about(&*block), EventType::Warning, "KubernetesServiceCIDRError", message);
            }
            return ready.map(|()| Next::WhenChanged);
        };
        if !may_go(&block, &self.blocks.all(), &self.addresses.all()) {
            let message = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new \
                           ServiceCIDR";
            self.condition(key, &block, "False", "Terminating", message).await?;
            return Ok(Next::WhenChanged);
        }
        let left = GRACE - self.clock.now().duration_since(deleted.0);
        if left > SignedDuration::ZERO {
            return Ok(Next::After(Duration::try_from(left).unwrap_or_default()));
        }
        if protected {
            self.patch(key, json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}})).await?;
        }
        Ok(Next::WhenChanged)
    }
}

impl ServiceCidrs {
    async fn patch(&self, key: &Key, change: Value) -> Result<(), Error> {
        let api: Api<ServiceCIDR> = Api::all(self.client.clone());
        match api.patch(&key.name, &PatchParams::default(), &Patch::Strategic(change)).await {
            Ok(written) => self.own_writes.wrote(key, &self.blocks, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn condition(
        &self,
        key: &Key,
        block: &ServiceCIDR,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<(), Error> {
        let conditions = block.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
        let said = conditions.into_iter().find(|condition| condition.type_ == "Ready");
        let facts = (status, reason, message);
        if said.is_some_and(|said| (said.status.as_str(), said.reason.as_str(), said.message.as_str()) == facts) {
            return Ok(());
        }
        let since = said.filter(|said| said.status == status).map(|said| said.last_transition_time.clone());
        let condition = json!({
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": since.unwrap_or_else(|| self.clock.time()),
        });
        let api: Api<ServiceCIDR> = Api::all(self.client.clone());
        let change = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        match api.patch_status(&key.name, &PatchParams::default(), &change).await {
            Ok(written) => self.own_writes.wrote(key, &self.blocks, &written),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_when_no_address_is_in_it_alone() {
        let block = |name: &str, range: &str| {
            let block = json!({"metadata": {"name": name, "uid": name}, "spec": {"cidrs": [range]}});
            Arc::new(serde_json::from_value::<ServiceCIDR>(block).expect("a block"))
        };
        let address = |name: &str, manager: &str| {
            let address = json!({"metadata": {"name": name, "labels": {MANAGED_BY.0: manager}}});
            Arc::new(serde_json::from_value::<IPAddress>(address).expect("an address"))
        };
        let (small, large) = (block("small", "10.1.0.0/24"), block("large", "10.1.0.0/16"));
        let used = [address("10.1.0.7", MANAGED_BY.1)];
        assert!(!may_go(&small, std::slice::from_ref(&small), &used));
        assert!(may_go(&small, std::slice::from_ref(&small), &[address("10.1.0.7", "other")]));
        assert!(may_go(&small, &[small.clone(), large.clone()], &used), "it lies in the other");
        assert!(may_go(&large, &[small.clone(), large.clone()], &used), "all that is used is in the other");
        assert!(!may_go(&large, &[small, large.clone()], &[address("10.1.1.1", MANAGED_BY.1)]));
    }
}
