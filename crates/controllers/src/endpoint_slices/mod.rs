//! EndpointSlices: where the pods of a Service can be reached, a hundred in each slice at most.

mod endpoint;
pub mod plan;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controller_runtime::{
    Change, Controller, Error, Informer, Key, Next, OwnWrites, WorkQueue,
    adoption::controller_reference,
    events::{EventType, Recorder, about},
    refuses_new_objects,
};
use k8s_openapi::{
    api::{
        core::v1::{Node, Pod, Service},
        discovery::v1::EndpointSlice,
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, PostParams, Preconditions},
};
use plan::{Group, MANAGED_BY, Plan, PortsKey, SERVICE_NAME, Template};
use tokio_util::sync::CancellationToken;

use crate::{
    Setting, pods,
    service_pods::{self, HEADLESS, TriggerTimes},
};

const ACCOUNT: &str = "endpointslice-controller";
const COMPONENT: &str = "endpoint-slice-controller";
const MANAGER: &str = "endpointslice-controller.k8s.io";
const WORKERS: usize = 5;
const MOST: usize = 100;
/// A change of slices is mostly our own: there is no hurry.
const AFTER_SLICES: Duration = Duration::from_secs(1);
/// The index of slices by who manages them for which Service.
pub const MANAGED: &str = "managed endpoint slices";

struct EndpointSlices {
    client: Client,
    services: Informer<Service>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    slices: Informer<EndpointSlice>,
    own_writes: OwnWrites<Key>,
    recorder: Recorder,
    causes: TriggerTimes,
}

pub async fn run(setting: Arc<Setting>, stop: CancellationToken) {
    let (queue, own_writes) = (WorkQueue::default(), OwnWrites::default());
    let controller = EndpointSlices {
        client: setting.client(ACCOUNT),
        services: setting.informers.of(),
        pods: setting.informers.of(),
        nodes: setting.informers.of(),
        slices: setting.informers.of(),
        own_writes: own_writes.clone(),
        recorder: setting.recorder(ACCOUNT, COMPONENT),
        causes: TriggerTimes::default(),
    };
    controller.slices.index(MANAGED, managed);
    let on_service = queue.clone();
    controller.services.on_change(move |change| on_service.add(Key::of(&**change.object())));
    let (on_pod, services) = (queue.clone(), controller.services.clone());
    controller.pods.on_change(move |change| {
        service_pods::concerned(change, &services).into_iter().for_each(|service| on_pod.add(service));
    });
    let on_slice = queue.clone();
    controller.slices.on_change(move |change| {
        services_of(change, MANAGER).into_iter().for_each(|service| on_slice.add_after(service, AFTER_SLICES));
    });
    controller.pods.index(pods::NODE, pods::by_node);
    let (on_node, services, pods) = (queue.clone(), controller.services.clone(), controller.pods.clone());
    // Pods of a node that was not known were left out.
    controller.nodes.on_change(move |change| {
        if let Change::Applied { old: None, new } = change {
            let there = pods.by_index(pods::NODE, new.metadata.name.as_deref().unwrap_or_default());
            let served = there.iter().flat_map(|pod| service_pods::served_by(pod, &services));
            served.for_each(|service| on_node.add(service));
        }
    });
    controller.services.synced_or_stopped().await;
    controller.pods.synced_or_stopped().await;
    controller.nodes.synced_or_stopped().await;
    controller.slices.synced_or_stopped().await;
    controller_runtime::run(Arc::new(controller), queue, own_writes, WORKERS, stop).await;
}

/// For [`MANAGED`].
pub fn managed(slice: &EndpointSlice) -> Vec<String> {
    let label = |name: &str| slice.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let (Some(manager), Some(service)) = (label(MANAGED_BY), label(SERVICE_NAME)) else { return Vec::new() };
    vec![managed_by(manager, &Key::new(slice.metadata.namespace.clone().unwrap_or_default(), service))]
}

/// Under which value [`MANAGED`] has the slices of a Service.
pub fn managed_by(manager: &str, service: &Key) -> String {
    format!("{manager} {service}")
}

/// The Services whose slices, of one manager, a change is about: before and after it.
pub fn services_of(change: &Change<EndpointSlice>, manager: &str) -> Vec<Key> {
    let (old, new) = match change {
        Change::Applied { old, new } => (old.as_ref(), new),
        Change::Deleted(last) => (None, last),
    };
    let both = || old.into_iter().chain([new]);
    let label = |slice: &Arc<EndpointSlice>, name: &str| slice.metadata.labels.as_ref()?.get(name).cloned();
    if !both().any(|slice| label(slice, MANAGED_BY).as_deref() == Some(manager)) {
        return Vec::new();
    }
    let key = |slice: &Arc<EndpointSlice>| {
        Some(Key::new(slice.metadata.namespace.clone().unwrap_or_default(), label(slice, SERVICE_NAME)?))
    };
    let mut keys: Vec<Key> = both().filter_map(key).collect();
    keys.dedup();
    keys
}

impl Controller for EndpointSlices {
    type Key = Key;

    fn name(&self) -> &'static str {
        "endpointslice-controller"
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(service) = self.services.get(key) else {
            self.causes.forget(key);
            return Ok(Next::WhenChanged);
        };
        let Some(selector) = service_pods::selector(&service) else { return Ok(Next::WhenChanged) };
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| service_pods::selects(selector, pod));
        let cause = self.causes.since_last(key, &service, &pods);
        let done = self.bring_about(key, &service, &pods, cause).await;
        if let Err(error) = &done {
            let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
            self.recorder.event(&about(&*service), EventType::Warning, "FailedToUpdateEndpointSlices", message);
        }
        done.map(|()| Next::WhenChanged)
    }
}

impl EndpointSlices {
    async fn bring_about(
        &self,
        key: &Key,
        service: &Service,
        pods: &[Arc<Pod>],
        cause: Option<Timestamp>,
    ) -> Result<(), Error> {
        let mut existing = self.slices.by_index(MANAGED, &managed_by(MANAGER, key));
        existing.retain(|slice| slice.metadata.deletion_timestamp.is_none());
        let (template, mut missing) = (template(key, service), Vec::new());
        let mut plans = Vec::new();
        for family in families(service) {
            let of_family = existing.extract_if(.., |slice| slice.address_type == family).collect();
            let wanted = self.wanted(service, pods, family == "IPv6", &mut missing);
            plans.push(plan::plan(&template, family, of_family, wanted));
        }
        // Families that the Service no longer has.
        plans.push(Plan { delete: existing, ..Plan::default() });
        for plan in plans {
            let writes = Writes {
                client: &self.client,
                slices: &self.slices,
                own_writes: &self.own_writes,
                key,
                owner_goes: service.metadata.deletion_timestamp.is_some(),
            };
            writes.carry_out(plan, |slice| service_pods::annotate(&mut slice.metadata.annotations, cause)).await?;
        }
        // The cache may know of the node soon, or the pod will be collected.
        if missing.is_empty() { Ok(()) } else { Err(Error::Other(missing.join("; "))) }
    }

    /// What should be in slices of one family. Pods whose node is not known are left out and told.
    fn wanted(
        &self,
        service: &Service,
        pods: &[Arc<Pod>],
        six: bool,
        missing: &mut Vec<String>,
    ) -> BTreeMap<PortsKey, Group> {
        let all = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
        let mut groups: BTreeMap<PortsKey, Group> = BTreeMap::new();
        for pod in pods.iter().filter(|pod| service_pods::has_a_part(pod, true)) {
            let ports = endpoint::ports(pod, service);
            let group = groups.entry(plan::ports_key(&ports)).or_insert_with(|| Group { ports, ..Group::default() });
            let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
            let node = self.nodes.get(&Key::new("", on));
            if node.is_none() && !all {
                let (pod, service) = (pod.metadata.name.as_deref().unwrap_or_default(), Key::of(service));
                let told = format!("skipping Pod {pod} for Service {service}: Node {on} Not Found");
                if !missing.contains(&told) {
                    missing.push(told);
                }
                continue;
            }
            group.endpoints.extend(endpoint::of(pod, node.as_deref(), service, six));
        }
        groups
    }
}

/// The families of a Service. An old one may not say: then by its address, and one without has both.
fn families(service: &Service) -> Vec<&'static str> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let said: Vec<&str> = spec.ip_families.iter().flatten().map(String::as_str).collect();
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    let has = |family: &str, by_address: bool| match said.is_empty() {
        false => said.contains(&family),
        true => !service_pods::has_address(spec) || by_address,
    };
    let both = [("IPv4", has("IPv4", !address.contains(':'))), ("IPv6", has("IPv6", address.contains(':')))];
    both.into_iter().filter(|(_, has)| *has).map(|(family, _)| family).collect()
}

fn template(key: &Key, service: &Service) -> Template {
    let mut labels = service.meta().labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if service.spec.as_ref().is_some_and(|spec| !service_pods::has_address(spec)) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), key.name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    Template {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        owner: controller_reference(service),
        labels,
        annotations: None,
        most: MOST,
        never_none: true,
    }
}

/// How slices are written, for this controller and for the one that mirrors.
pub struct Writes<'a> {
    pub client: &'a Client,
    pub slices: &'a Informer<EndpointSlice>,
    pub own_writes: &'a OwnWrites<Key>,
    pub key: &'a Key,
    /// Who is being deleted gets no new slices, for the garbage collector takes them away.
    pub owner_goes: bool,
}

impl Writes<'_> {
    /// What is made first serves first; what goes, goes last.
    pub async fn carry_out(&self, plan: Plan, last_touch: impl Fn(&mut EndpointSlice)) -> Result<(), Error> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.key.namespace);
        for mut slice in plan.create.into_iter().filter(|_| !self.owner_goes) {
            last_touch(&mut slice);
            match api.create(&PostParams::default(), &slice).await {
                Ok(made) => self.own_writes.wrote(self.key, self.slices, &made),
                Err(kube::Error::Api(status)) if refuses_new_objects(&status) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        for mut slice in plan.update {
            last_touch(&mut slice);
            let name = slice.metadata.name.clone().unwrap_or_default();
            match api.replace(&name, &PostParams::default(), &slice).await {
                Ok(written) => self.own_writes.wrote(self.key, self.slices, &written),
                // That it is gone will be told, and then another is made.
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for slice in plan.delete {
            let exactly = Preconditions { uid: slice.metadata.uid.clone(), resource_version: None };
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            match api.delete(name, &DeleteParams::default().preconditions(exactly)).await {
                Ok(_) => self.own_writes.deleted(self.key, self.slices, &*slice),
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
