//! The Service by which pods find the name server, and the EndpointSlice that leads to it.

use std::{collections::BTreeMap, fmt::Debug, net::IpAddr, net::SocketAddr, sync::Arc, time::Duration};

use controller_runtime::{Change, Informers, Key};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{Node, Service, ServicePort, ServiceSpec},
        discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
    },
    apimachinery::pkg::{apis::meta::v1::ObjectMeta, util::intstr::IntOrString},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{sync::Notify, time::sleep};

use crate::slices::SERVICE;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "kube-dns";
const PORT: i32 = 53;
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "dns.ferry";
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// What is said of a name server, and to whom.
pub(super) struct Announcement<'a> {
    pub informers: &'a Informers,
    pub client: Client,
    pub service_address: IpAddr,
    pub listen: SocketAddr,
    pub node_name: String,
}

impl Announcement<'_> {
    /// Keeps both as they should be, and leads pods away from name servers whose nodes are lost.
    pub async fn keep(&self) {
        let changed = Arc::new(Notify::new());
        let (service, mut slice) = (service(self.service_address), slice(self.listen, self.node_name.clone()));
        let (service_key, slice_key) = (Key::of(&service), Key::of(&slice));
        let own_node = Key::new("", self.node_name.clone());
        wake_on_change(self.informers, &changed, move |_: &Change<Service>, key| key == service_key);
        wake_on_change(self.informers, &changed, move |change: &Change<EndpointSlice>, key| {
            key == slice_key || is_ours(change.object())
        });
        wake_on_change(self.informers, &changed, {
            let own_node = own_node.clone();
            move |change: &Change<Node>, key| match change {
                Change::Applied { old: Some(old), new } => is_lost(old) != is_lost(new),
                _ => key == own_node,
            }
        });
        let nodes = self.informers.of::<Node>();
        nodes.synced().await;
        loop {
            // It goes with its node, which at the first start comes later.
            let owner = nodes.get(&own_node).and_then(|node| node.owner_ref(&()));
            slice.metadata.owner_references = owner.map(|owner| vec![owner]);
            match self.bring_about(&service, &mut slice).await {
                Ok(()) => changed.notified().await,
                Err(error) => {
                    tracing::warn!(%error, "pods do not find the name server yet; trying again");
                    sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    /// A server whose node is lost is not to be asked, unless all are lost: one of them may still answer. All servers judge alike, this
    /// one also about itself.
    async fn bring_about(&self, service: &Service, own: &mut EndpointSlice) -> kube::Result<()> {
        let is_lost = |slice: &EndpointSlice| {
            let mut nodes = slice.endpoints.iter().flatten().filter_map(|endpoint| endpoint.node_name.clone());
            nodes.any(|name| self.informers.of::<Node>().get(&Key::new("", name)).is_some_and(|node| is_lost(&node)))
        };
        let others = self.others(&Key::of(own)).into_iter().filter(|slice| is_ours(slice));
        let (lost, found): (Vec<_>, Vec<_>) = others.partition(|slice| is_lost(slice));
        let some_found = !is_lost(own) || !found.is_empty();
        set_answers(own, !is_lost(own) || !some_found);
        self.ensure_both(service, own).await?;
        for slice in lost.iter().filter(|slice| some_found && answers(slice)) {
            self.lead_away_from(slice).await?;
        }
        Ok(())
    }

    async fn lead_away_from(&self, slice: &EndpointSlice) -> kube::Result<()> {
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), NAMESPACE);
        let Some(mut there) = slices.get_opt(&Key::of(slice).name).await? else { return Ok(()) };
        set_answers(&mut there, false);
        match slices.replace(&Key::of(slice).name, &PostParams::default(), &there).await {
            // A change by somebody else, of which we hear.
            Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
            replaced => replaced.map(drop),
        }
    }

    /// The slices of the others.
    fn others(&self, own: &Key) -> Vec<Arc<EndpointSlice>> {
        let mut all = self.informers.of::<EndpointSlice>().by_index(SERVICE, &Key::new(NAMESPACE, NAME).to_string());
        all.retain(|slice| Key::of(&**slice) != *own);
        all
    }

    async fn ensure_both(&self, service: &Service, slice: &EndpointSlice) -> kube::Result<()> {
        ensure(&self.client, service, |there: &mut Service| {
            let spec = there.spec.get_or_insert_default();
            let wanted = service.spec.clone().unwrap_or_default();
            let same = same_ports(&spec.ports, &wanted.ports) && spec.selector.is_none();
            spec.ports = wanted.ports;
            spec.selector = None;
            same
        })
        .await?;
        ensure(&self.client, slice, |there: &mut EndpointSlice| {
            let (owners, wanted) = (&mut there.metadata.owner_references, &slice.metadata.owner_references);
            let same = there.endpoints == slice.endpoints && there.ports == slice.ports && owners == wanted;
            owners.clone_from(wanted);
            there.endpoints.clone_from(&slice.endpoints);
            there.ports.clone_from(&slice.ports);
            same
        })
        .await
    }

    /// Leads pods to the other name servers. If there are none, nobody would answer either way, and the way here is kept for when
    /// this one is back.
    pub async fn withdraw(&self) {
        let own = Key::of(&slice(self.listen, self.node_name.clone()));
        if !self.others(&own).iter().any(|slice| answers(slice)) {
            return;
        }
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), NAMESPACE);
        match slices.delete(&own.name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(error) => tracing::warn!(%error, "pods may still ask the name server of this node, which has stopped"),
            Ok(_) => {}
        }
    }
}

/// Whether a node is not heard of any more. Its machine may be off.
fn is_lost(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

/// Whether a slice is that of a name server, here or on another node.
fn is_ours(slice: &EndpointSlice) -> bool {
    slice.metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_BY)).is_some_and(|manager| manager == MANAGER)
}

fn answers(slice: &EndpointSlice) -> bool {
    let is_ready = |endpoint: &Endpoint| endpoint.conditions.as_ref().is_none_or(|now| now.ready != Some(false));
    slice.endpoints.iter().flatten().any(is_ready)
}

fn set_answers(slice: &mut EndpointSlice, answers: bool) {
    for endpoint in slice.endpoints.iter_mut().flatten() {
        let conditions = endpoint.conditions.get_or_insert_default();
        (conditions.ready, conditions.serving) = (Some(answers), Some(answers));
    }
}

fn wake_on_change<K>(
    informers: &Informers,
    changed: &Arc<Notify>,
    matters: impl Fn(&Change<K>, Key) -> bool + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let changed = Arc::downgrade(changed);
    informers.of::<K>().on_change(move |change| {
        if let Some(changed) = changed.upgrade().filter(|_| matters(change, Key::of(&**change.object()))) {
            changed.notify_one();
        }
    });
}

/// Creates an object, or corrects the one that is there; `correct` says whether it was right already.
async fn ensure<K>(client: &Client, wanted: &K, correct: impl FnOnce(&mut K) -> bool) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Serialize + Debug,
{
    let api = Api::<K>::namespaced(client.clone(), NAMESPACE);
    let name = wanted.meta().name.clone().unwrap_or_default();
    match api.get_opt(&name).await? {
        None => api.create(&PostParams::default(), wanted).await.map(drop),
        Some(mut there) => {
            let labels = there.meta_mut().labels.get_or_insert_default();
            let missing: Vec<_> =
                wanted.meta().labels.iter().flatten().filter(|(key, value)| labels.get(*key) != Some(value)).collect();
            let labelled = missing.is_empty();
            labels.extend(missing.into_iter().map(|(key, value)| (key.clone(), value.clone())));
            if correct(&mut there) && labelled {
                return Ok(());
            }
            api.replace(&name, &PostParams::default(), &there).await.map(drop)
        }
    }
}

fn same_ports(there: &Option<Vec<ServicePort>>, wanted: &Option<Vec<ServicePort>>) -> bool {
    let essence = |port: &ServicePort| (port.name.clone(), port.port, port.protocol.clone());
    let of = |ports: &Option<Vec<ServicePort>>| ports.iter().flatten().map(essence).collect::<Vec<_>>();
    of(there) == of(wanted)
}

fn labels(own: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
    Some(own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

fn service(address: IpAddr) -> Service {
    let port = |name: &str, protocol: &str| ServicePort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        port: PORT,
        target_port: Some(IntOrString::Int(PORT)),
        ..ServicePort::default()
    };
    Service {
        metadata: ObjectMeta {
            namespace: Some(NAMESPACE.to_owned()),
            name: Some(NAME.to_owned()),
            labels: labels(&[
                ("k8s-app", NAME),
                ("kubernetes.io/cluster-service", "true"),
                ("kubernetes.io/name", "CoreDNS"),
            ]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some(address.to_string()),
            cluster_ips: Some(vec![address.to_string()]),
            ports: Some(vec![port("dns", "UDP"), port("dns-tcp", "TCP")]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Every node that answers has a slice of its own.
fn slice(listen: SocketAddr, node_name: String) -> EndpointSlice {
    let port = |name: &str, protocol: &str| EndpointPort {
        name: Some(name.to_owned()),
        protocol: Some(protocol.to_owned()),
        port: Some(listen.port().into()),
        ..EndpointPort::default()
    };
    EndpointSlice {
        metadata: ObjectMeta {
            namespace: Some(NAMESPACE.to_owned()),
            name: Some(format!("{NAME}-{node_name}")),
            labels: labels(&[("kubernetes.io/service-name", NAME), (MANAGED_BY, MANAGER), ("k8s-app", NAME)]),
            ..ObjectMeta::default()
        },
        address_type: if listen.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned(),
        endpoints: Some(vec![Endpoint {
            addresses: vec![listen.ip().to_string()],
            conditions: Some(EndpointConditions { ready: Some(true), serving: Some(true), terminating: Some(false) }),
            node_name: Some(node_name),
            ..Endpoint::default()
        }]),
        ports: Some(vec![port("dns", "UDP"), port("dns-tcp", "TCP")]),
    }
}
