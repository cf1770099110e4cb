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
    /// Keeps both as they should be.
    pub async fn keep(&self) {
        let changed = Arc::new(Notify::new());
        let (service, mut slice) = (service(self.service_address), slice(self.listen, self.node_name.clone()));
        wake_on_change(self.informers, Key::of(&service), &changed, |_: &Change<Service>| true);
        wake_on_change(self.informers, Key::of(&slice), &changed, |_: &Change<EndpointSlice>| true);
        let own_node = Key::new("", self.node_name.clone());
        wake_on_change(self.informers, own_node.clone(), &changed, |change: &Change<Node>| {
            !matches!(change, Change::Applied { old: Some(_), .. })
        });
        let nodes = self.informers.of::<Node>();
        nodes.synced().await;
        loop {
            // It goes with its node, which at the first start comes later.
            let owner = nodes.get(&own_node).and_then(|node| node.owner_ref(&()));
            slice.metadata.owner_references = owner.map(|owner| vec![owner]);
            match self.ensure_both(&service, &slice).await {
                Ok(()) => changed.notified().await,
                Err(error) => {
                    tracing::warn!(%error, "pods do not find the name server yet; trying again");
                    sleep(AFTER_FAILURE).await;
                }
            }
        }
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
        let all = self.informers.of::<EndpointSlice>().by_index(SERVICE, &Key::new(NAMESPACE, NAME).to_string());
        let is_ready = |endpoint: &Endpoint| endpoint.conditions.as_ref().is_none_or(|now| now.ready != Some(false));
        let answers = |slice: &EndpointSlice| slice.endpoints.iter().flatten().any(is_ready);
        if !all.iter().any(|slice| Key::of(&**slice) != own && answers(slice)) {
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

fn wake_on_change<K>(
    informers: &Informers,
    key: Key,
    changed: &Arc<Notify>,
    matters: impl Fn(&Change<K>) -> bool + Send + Sync + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let changed = Arc::downgrade(changed);
    informers.of::<K>().on_change(move |change| {
        if let Some(changed) = changed.upgrade().filter(|_| Key::of(&**change.object()) == key && matters(change)) {
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
            labels: labels(&[
                ("kubernetes.io/service-name", NAME),
                ("endpointslice.kubernetes.io/managed-by", "dns.ferry"),
                ("k8s-app", NAME),
            ]),
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
