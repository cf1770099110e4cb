//! Endpoints: the older form of EndpointSlices, all in one object, a thousand addresses at most.

pub mod subsets;

use std::{collections::BTreeMap, sync::Arc};

use controller_runtime::{
    Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    events::{EventType, Recorder, about},
    refuses_new_objects,
};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use subsets::Entry;
use tokio_util::sync::CancellationToken;

use crate::{
    Setting, pods,
    service_pods::{self, HEADLESS, TriggerTimes},
};

const ACCOUNT: &str = "endpoint-controller";
const COMPONENT: &str = "endpoint-controller";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Who still elects leaders by Endpoints has them without a Service.
pub const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const WORKERS: usize = 5;

struct EndpointsController {
    client: Client,
    services: Informer<Service>,
    pods: Informer<Pod>,
    endpoints: Informer<Endpoints>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    causes: TriggerTimes,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = EndpointsController {
        client: setting.client(ACCOUNT),
        services: setting.informers.of(),
        pods: setting.informers.of(),
        endpoints: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
        causes: TriggerTimes::default(),
    };
    let on_service = queue.clone();
    controller.services.on_change(move |change| on_service.add(Key::of(&**change.object())));
    let (on_pod, services) = (queue.clone(), controller.services.clone());
    controller.pods.on_change(move |change| {
        service_pods::concerned(change, &services).into_iter().for_each(|service| on_pod.add(service));
    });
    let on_endpoints = queue.clone();
    controller.endpoints.on_change(move |change| {
        if let Change::Deleted(last) = change {
            on_endpoints.add(Key::of(&**last));
        }
    });
    controller.services.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    controller.endpoints.synced_or_stopped().await;
    // Some may be left of Services that went while nobody looked.
    let led = |one: &&Arc<Endpoints>| one.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
    controller.endpoints.all().iter().filter(|one| !led(one)).for_each(|one| queue.add(Key::of(&**one)));
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

impl Controller for EndpointsController {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpoints-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.namespace);
        let found = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            self.causes.forget(key);
            if found.is_some() {
                match api.delete(&key.name, &DeleteParams::default()).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {}
                    answer => drop(answer?),
                }
            }
            return Ok(Next::WhenChanged);
        };
        let Some(selector) = service_pods::selector(&service) else { return Ok(Next::WhenChanged) };
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| service_pods::selects(selector, pod));
        let cause = self.causes.since_last(key, &service, &pods);
        let mut wanted = wanted(key, &service, &pods, found.as_deref());
        if found.as_deref().is_some_and(|found| same(found, &wanted)) {
            return Ok(Next::WhenChanged);
        }
        service_pods::annotate(&mut wanted.metadata.annotations, cause);
        let answer = match &found {
            None => api.create(&PostParams::default(), &wanted).await,
            Some(_) => api.replace(&key.name, &PostParams::default(), &wanted).await,
        };
        match answer {
            Ok(written) => self.own_writes.wrote(key, &self.endpoints, &written),
            // Those that are gone will be told, and then others are made.
            Err(kube::Error::Api(status)) if refuses_new_objects(&status) || status.is_not_found() => {}
            Err(error) => {
                let (reason, what) = match found {
                    None => ("FailedToCreateEndpoint", "create endpoint for service"),
                    Some(_) => ("FailedToUpdateEndpoint", "update endpoint"),
                };
                let message = format!("Failed to {what} {key}: {}", crate::words(&error));
                self.recorder.event(&about(&wanted), EventType::Warning, reason, message);
                return Err(error.into());
            }
        }
        Ok(Next::WhenChanged)
    }
}

/// The Endpoints as they should be, made from what is there.
fn wanted(key: &Key, service: &Service, pods: &[Arc<Pod>], found: Option<&Endpoints>) -> Endpoints {
    let all = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
    let with_a_part = pods.iter().filter(|pod| service_pods::has_a_part(pod, all));
    let mut subsets = subsets::pack(with_a_part.flat_map(|pod| entries(pod, service, all)).collect());
    let too_many = subsets::truncate(&mut subsets);
    let fresh = || {
        let metadata = ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            ..ObjectMeta::default()
        };
        Endpoints { metadata, subsets: None }
    };
    let mut wanted = found.cloned().unwrap_or_else(fresh);
    wanted.subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(|spec| !service_pods::has_address(spec)) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(MANAGED_BY.to_owned(), COMPONENT.to_owned());
    wanted.metadata.labels = Some(labels);
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    match too_many {
        true => drop(annotations.insert(OVER_CAPACITY.to_owned(), "truncated".to_owned())),
        false => drop(annotations.remove(OVER_CAPACITY)),
    }
    wanted
}

/// A pod with each of the ports that it has for a Service.
fn entries(pod: &Pod, service: &Service, all: bool) -> Vec<Entry> {
    let (Some(address), Some(spec)) = (address(pod, service), &service.spec) else { return Vec::new() };
    let ready = all || pods::ready(pod).is_some();
    let entry = |port: Option<EndpointPort>| Entry { address: address.clone(), port, ready };
    let ports = spec.ports.as_deref().unwrap_or_default();
    if ports.is_empty() {
        // Only a Service without an address of its own may do without ports.
        let headless = spec.cluster_ip.as_deref() == Some("None");
        return headless.then(|| entry(None)).into_iter().collect();
    }
    let found = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: port.name.clone(),
            port: service_pods::target_port(pod, port)?,
            protocol: port.protocol.clone(),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.map(|port| entry(Some(port))).collect()
}

/// The address of a pod in the first family of a Service.
fn address(pod: &Pod, service: &Service) -> Option<EndpointAddress> {
    let spec = service.spec.as_ref()?;
    let six = match spec.ip_families.as_deref().and_then(<[String]>::first) {
        Some(family) => family == "IPv6",
        None if service_pods::has_address(spec) => spec.cluster_ip.as_ref().is_some_and(|ip| ip.contains(':')),
        None => pod.status.as_ref()?.pod_ip.as_ref().is_some_and(|ip| ip.contains(':')),
    };
    Some(EndpointAddress {
        ip: service_pods::addresses(pod, six).next()?.to_string(),
        hostname: service_pods::hostname(pod, service),
        node_name: pod.spec.as_ref()?.node_name.clone(),
        target_ref: Some(service_pods::reference(pod)),
    })
}

/// Whether nothing has to be written. Which order subsets have, and at which revision a pod was seen, is not told.
fn same(found: &Endpoints, wanted: &Endpoints) -> bool {
    let canonical = |endpoints: &Endpoints| -> Vec<EndpointSubset> {
        let mut entries = subsets::unpack(endpoints.subsets.as_deref().unwrap_or_default());
        let targets = entries.iter_mut().filter_map(|entry| entry.address.target_ref.as_mut());
        targets.for_each(|target| target.resource_version = None);
        subsets::pack(entries)
    };
    let none = BTreeMap::new();
    let truncated =
        |endpoints: &Endpoints| endpoints.metadata.annotations.as_ref().unwrap_or(&none).get(OVER_CAPACITY).is_some();
    found.metadata.labels == wanted.metadata.labels
        && truncated(found) == truncated(wanted)
        && canonical(found) == canonical(wanted)
}
