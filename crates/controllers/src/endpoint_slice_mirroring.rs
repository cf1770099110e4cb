//! Endpoints that somebody else writes, for a Service without a selector, are mirrored into EndpointSlices: readers need to
//! look at one kind only.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use controller_runtime::{
    Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::controller_reference,
    events::{EventType, Recorder, about},
};
use k8s_openapi::api::{
    core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service},
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};
use kube::{Client, Resource};
use tokio_util::sync::CancellationToken;

use crate::{
    Setting,
    endpoint_slices::{
        MANAGED, Writes, managed, managed_by,
        plan::{self, Group, MANAGED_BY, Plan, PortsKey, SERVICE_NAME, Template},
        services_of,
    },
    endpoints::{LEADER, subsets},
    service_pods,
};

const ACCOUNT: &str = "endpointslicemirroring-controller";
const COMPONENT: &str = "endpoint-slice-mirroring-controller";
const MANAGER: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const WORKERS: usize = 5;
/// As many addresses of a subset are mirrored.
const MOST: usize = 1000;

struct Mirroring {
    client: Client,
    services: Informer<Service>,
    endpoints: Informer<Endpoints>,
    slices: Informer<EndpointSlice>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = Mirroring {
        client: setting.client(ACCOUNT),
        services: setting.informers.of(),
        endpoints: setting.informers.of(),
        slices: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
    };
    controller.slices.index(MANAGED, managed);
    let (on_service, on_endpoints, on_slice) = (queue.clone(), queue.clone(), queue.clone());
    controller.services.on_change(move |change| on_service.add(Key::of(&**change.object())));
    controller.endpoints.on_change(move |change| on_endpoints.add(Key::of(&**change.object())));
    controller.slices.on_change(move |change| {
        services_of(change, MANAGER).into_iter().for_each(|service| on_slice.add(service));
    });
    controller.services.synced_or_stopped().await;
    controller.endpoints.synced_or_stopped().await;
    controller.slices.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

impl Controller for Mirroring {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpointslice-mirroring-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let mut existing = self.slices.by_index(MANAGED, &managed_by(MANAGER, key));
        existing.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        let endpoints = self.endpoints.get(key).filter(|endpoints| self.is_mirrored(key, endpoints));
        let mut plans = Vec::new();
        if let Some(endpoints) = &endpoints {
            let (template, mut families) = (template(key, endpoints), self.families(endpoints));
            for family in ["IPv4", "IPv6"] {
                let of_family = existing.extract_if(.., |slice| slice.address_type == family).collect();
                let wanted = families.remove(family).unwrap_or_default();
                plans.push(plan::plan(&template, family, of_family, wanted));
            }
        }
        plans.push(Plan { delete: existing, ..Plan::default() });
        for plan in plans {
            let writes = Writes {
                client: &self.client,
                slices: &self.slices,
                own_writes: &self.own_writes,
                key,
                owner_goes: endpoints.as_ref().is_none_or(|owner| owner.metadata.deletion_timestamp.is_some()),
            };
            writes.carry_out(plan, |_| {}).await?;
        }
        Ok(Next::WhenChanged)
    }
}

impl Mirroring {
    fn is_mirrored(&self, key: &Key, endpoints: &Endpoints) -> bool {
        let (labels, annotations) = (&endpoints.metadata.labels, &endpoints.metadata.annotations);
        let skipped = labels.as_ref().is_some_and(|labels| labels.get(SKIP).is_some_and(|value| value == "true"))
            || annotations.as_ref().is_some_and(|annotations| annotations.contains_key(LEADER));
        let without_selector = |service: Arc<Service>| {
            service.spec.as_ref().and_then(|spec| spec.selector.as_ref()).is_none_or(|selector| selector.is_empty())
        };
        !skipped && self.services.get(key).is_some_and(without_selector)
    }

    /// What should be in slices, by family. What cannot be mirrored is told.
    fn families(&self, endpoints: &Endpoints) -> BTreeMap<&'static str, BTreeMap<PortsKey, Group>> {
        let mut families: BTreeMap<&'static str, BTreeMap<PortsKey, Group>> = BTreeMap::new();
        let (mut invalid, mut too_many) = (0, 0);
        for subset in subsets::pack(subsets::unpack(endpoints.subsets.as_deref().unwrap_or_default())) {
            let ports = ports(&subset);
            let ready = subset.addresses.iter().flatten().map(|address| (address, true));
            let all = ready.chain(subset.not_ready_addresses.iter().flatten().map(|address| (address, false)));
            let mut count = 0;
            for (address, ready) in all {
                let Ok(ip) = address.ip.parse::<IpAddr>() else {
                    invalid += 1;
                    continue;
                };
                if count == MOST {
                    too_many += 1;
                    continue;
                }
                count += 1;
                let of_family = families.entry(if ip.is_ipv4() { "IPv4" } else { "IPv6" }).or_default();
                let group = of_family.entry(plan::ports_key(&ports)).or_default();
                group.ports.clone_from(&ports);
                group.endpoints.push(endpoint(address, ip, ready));
            }
        }
        if invalid > 0 {
            let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
            self.recorder.event(&about(endpoints), EventType::Warning, "InvalidIPAddress", message);
        }
        if too_many > 0 {
            let message = format!(
                "A max of {MOST} addresses can be mirrored to EndpointSlices per Endpoints subset. {} addresses were \
                 skipped",
                too_many + invalid
            );
            self.recorder.event(&about(endpoints), EventType::Warning, "TooManyAddressesToMirror", message);
        }
        families
    }
}

fn ports(subset: &EndpointSubset) -> Vec<EndpointPort> {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
        app_protocol: port.app_protocol.clone(),
    });
    ports.collect()
}

fn endpoint(address: &EndpointAddress, ip: IpAddr, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![ip.to_string()],
        conditions: Some(EndpointConditions { ready: Some(ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

/// Slices have the labels and annotations of what they mirror.
fn template(key: &Key, endpoints: &Endpoints) -> Template {
    let mut labels = endpoints.meta().labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), key.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut annotations = endpoints.meta().annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !service_pods::is_of_one_object(name));
    Template {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        owner: controller_reference(endpoints),
        labels,
        annotations: Some(annotations),
        most: MOST,
        never_none: false,
    }
}
