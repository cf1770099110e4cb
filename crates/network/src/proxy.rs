//! Services in nftables: ClusterIP, NodePort and the others, by maps in a table of our own.
//!
//! Changes of Services and EndpointSlices only note whose they are; one task works out what each of these Services means
//! ([`plan`]), what that changes among all elements ([`book`]), and changes them in one transaction ([`table`]). What
//! comes in meanwhile is the next transaction. Everything is written anew, in one step, only at the start and when the
//! kernel did not take a change.

mod book;
mod health;
mod plan;
mod stale;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use controller_runtime::{Change, Informer, Informers, Key};
use k8s_openapi::api::{
    core::v1::{Node as NodeObject, Service},
    discovery::v1::EndpointSlice,
    networking::v1::ServiceCIDR,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use self::{
    book::{Book, Changes},
    health::Health,
    plan::{Node, Plan},
    stale::Stale,
    table::Table,
};
use crate::{
    Error, LOOK_EVERY, connections,
    slices::{SERVICE, by_service, service_of},
};

const AFTER_FAILURE: Duration = Duration::from_secs(1);
const ZONE: &str = "topology.kubernetes.io/zone";

/// What the service proxy of a node is told.
pub struct Setting {
    /// Read as `system:kube-proxy`; Services, EndpointSlices, the blocks of Services and the node are
    /// followed.
    pub informers: Informers,
    pub node_name: String,
    /// The addresses of the node that node ports are reached at.
    pub node_addresses: Vec<IpAddr>,
    /// The block of all pods of the cluster.
    pub cluster_cidr: String,
}

/// Keeps the table up to date until it is told to stop. It stays in the kernel when it stops; [`purge`] removes it.
pub async fn run(setting: Setting, stop: CancellationToken) {
    stop.run_until_cancelled(async {
        loop {
            let Err(error) = follow(&setting).await;
            tracing::error!(%error, "Services are not kept up to date; trying again");
            sleep(AFTER_FAILURE).await;
        }
    })
    .await;
}

/// Removes the table.
pub async fn purge() -> Result<(), Error> {
    table::remove().await
}

/// The Services that changed since they were last looked at.
#[derive(Default)]
struct Changed {
    services: Mutex<BTreeSet<Key>>,
    some: Notify,
}

impl Changed {
    fn note(&self, service: Key) {
        self.services.lock().unwrap_or_else(PoisonError::into_inner).insert(service);
        self.some.notify_one();
    }

    fn take(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.services.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns only when the kernel or the settings do not allow it.
async fn follow(setting: &Setting) -> Result<std::convert::Infallible, Error> {
    let (services, slices) = (setting.informers.of::<Service>(), setting.informers.of::<EndpointSlice>());
    slices.index(SERVICE, by_service);
    let changed = Arc::new(Changed::default());
    services.on_change({
        let changed = Arc::downgrade(&changed);
        move |change: &Change<Service>| {
            if let Some(changed) = changed.upgrade() {
                changed.note(Key::of(&**change.object()));
            }
        }
    });
    slices.on_change({
        let changed = Arc::downgrade(&changed);
        move |change: &Change<EndpointSlice>| {
            let Some(changed) = changed.upgrade() else { return };
            let before = match change {
                Change::Applied { old, .. } => old.as_deref(),
                Change::Deleted(_) => None,
            };
            for slice in before.into_iter().chain([&**change.object()]) {
                service_of(slice).into_iter().for_each(|service| changed.note(service));
            }
        }
    });
    let blocks = setting.informers.of::<ServiceCIDR>();
    blocks.on_change({
        let changed = Arc::downgrade(&changed);
        move |_: &Change<ServiceCIDR>| changed.upgrade().into_iter().for_each(|changed| changed.note(blocks_key()))
    });
    let nodes = setting.informers.of::<NodeObject>();
    nodes.on_change({
        let (changed, own) = (Arc::downgrade(&changed), Key::new("", setting.node_name.clone()));
        move |change: &Change<NodeObject>| {
            let moved = match change {
                Change::Applied { old, new } => old.as_deref().and_then(zone_of) != zone_of(new),
                Change::Deleted(_) => false,
            };
            if let Some(changed) = changed.upgrade().filter(|_| moved && Key::of(&**change.object()) == own) {
                changed.some.notify_one();
            }
        }
    });
    services.synced().await;
    slices.synced().await;
    blocks.synced().await;
    nodes.synced().await;
    let known = Known { services, slices, blocks, nodes };
    let mut proxy = Proxy::open(setting, known)?;
    loop {
        proxy.work(changed.take()).await;
        if timeout(LOOK_EVERY, changed.some.notified()).await.is_err() {
            proxy.in_step = proxy.table.is_there().await?;
        }
    }
}

fn zone_of(node: &NodeObject) -> Option<&String> {
    node.metadata.labels.as_ref()?.get(ZONE)
}

/// Under what the blocks of all Services are noted. No Service is called that.
fn blocks_key() -> Key {
    Key::new("", "")
}

/// What there is in the cluster.
struct Known {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    blocks: Informer<ServiceCIDR>,
    nodes: Informer<NodeObject>,
}

impl Known {
    fn plan(&self, key: &Key, node: &Node) -> Plan {
        if *key == blocks_key() {
            return Plan::of_blocks(&self.blocks.all());
        }
        match self.services.get(key) {
            Some(service) => Plan::of(&service, &self.slices.by_index(SERVICE, &key.to_string()), node),
            None => Plan::default(),
        }
    }
}

struct Proxy {
    known: Known,
    node: Node,
    book: Book,
    table: Table,
    health: Health,
    stale: Stale,
    /// Whether the kernel has what the book has.
    in_step: bool,
}

impl Proxy {
    fn open(setting: &Setting, known: Known) -> Result<Self, Error> {
        let addresses = setting.node_addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        });
        Ok(Self {
            known,
            node: Node { name: setting.node_name.clone(), zone: None, addresses: addresses.collect() },
            book: Book::default(),
            table: Table::open(setting.cluster_cidr.parse()?)?,
            health: Health::default(),
            stale: Stale::default(),
            in_step: false,
        })
    }

    /// Brings what changed into the kernel, however long that takes.
    async fn work(&mut self, mut changed: BTreeSet<Key>) {
        let own = self.known.nodes.get(&Key::new("", self.node.name.clone()));
        let zone = own.as_deref().and_then(zone_of).cloned();
        if zone != self.node.zone {
            // What is near is another matter now, for every Service.
            self.node.zone = zone;
            changed.extend(self.known.services.all().iter().map(|service| Key::of(&**service)));
        }
        let mut changes = Changes::default();
        for key in changed {
            let plan = self.known.plan(&key, &self.node);
            self.health.note(&key, plan.health);
            self.book.note(&key, plan, &mut changes);
        }
        let edit = self.book.edit(&mut changes);
        if self.in_step {
            match self.table.edit(&edit).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(%error, "writing all Services anew");
                    self.in_step = false;
                }
            }
        }
        while !self.in_step {
            match self.table.replace(&self.book.all()).await {
                Ok(()) => self.in_step = true,
                Err(error) => {
                    tracing::error!(%error, "Services cannot be reached by what changed; trying again");
                    sleep(AFTER_FAILURE).await;
                }
            }
        }
        self.stale.note(changes.udp);
        if !self.stale.is_empty() {
            let forgotten = connections::forget(|datagrams| self.stale.holds(datagrams)).await;
            self.stale.settle(forgotten);
        }
    }
}
