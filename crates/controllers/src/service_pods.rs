//! Which pods serve a Service, where and since when: what Endpoints and EndpointSlices have in common.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use controller_runtime::{Change, Informer, Key};
use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
    jiff::Timestamp,
};

use crate::pods;

/// Where a Service says that it has no address of its own.
pub const HEADLESS: &str = "service.kubernetes.io/headless";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The labels of the pods that serve. A Service without any is served by whatever somebody else says.
pub fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    spec.selector.as_ref().filter(|selector| !selector.is_empty())
}

pub fn selects(selector: &BTreeMap<String, String>, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector.iter().all(|(name, value)| labels.and_then(|labels| labels.get(name)) == Some(value))
}

pub fn has_address(spec: &ServiceSpec) -> bool {
    !matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
}

/// The Services that must look again because of a pod, all of its namespace.
pub fn concerned(change: &Change<Pod>, services: &Informer<Service>) -> BTreeSet<Key> {
    let (old, new) = match change {
        Change::Applied { old, new } => (old.as_deref(), Some(&**new)),
        Change::Deleted(last) => (Some(&**last), None),
    };
    if let (Some(old), Some(new)) = (old, new)
        && !differ(old, new)
    {
        return BTreeSet::new();
    }
    old.into_iter().chain(new).flat_map(|pod| served_by(pod, services)).collect()
}

/// The Services that a pod serves.
pub fn served_by(pod: &Pod, services: &Informer<Service>) -> Vec<Key> {
    let around = services.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
    let selected = |service: &&Arc<Service>| selector(service).is_some_and(|selector| selects(selector, pod));
    around.iter().filter(selected).map(|service| Key::of(&**service)).collect()
}

/// In what endpoints are made of.
fn differ(old: &Pod, new: &Pod) -> bool {
    fn facts(pod: &Pod) -> impl PartialEq + use<'_> {
        let spec = pod.spec.as_ref();
        (
            pod.metadata.labels.as_ref(),
            pod.metadata.deletion_timestamp.is_some(),
            spec.and_then(|spec| spec.hostname.as_ref()),
            spec.and_then(|spec| spec.subdomain.as_ref()),
            spec.and_then(|spec| spec.node_name.as_ref()),
            pods::is_finished(pod),
            pods::ready(pod).is_some(),
            pod.status.as_ref().and_then(|status| status.pod_ips.as_ref()),
        )
    }
    facts(old) != facts(new)
}

/// Whether a pod can be reached at all, or will be.
pub fn has_a_part(pod: &Pod, with_terminating: bool) -> bool {
    let status = pod.status.as_ref();
    let addressed = status.is_some_and(|status| {
        status.pod_ip.as_ref().is_some_and(|ip| !ip.is_empty()) || status.pod_ips.iter().flatten().next().is_some()
    });
    addressed && !pods::is_finished(pod) && (with_terminating || pod.metadata.deletion_timestamp.is_none())
}

/// The addresses of a pod in one family.
pub fn addresses(pod: &Pod, six: bool) -> impl Iterator<Item = IpAddr> + '_ {
    let all = pod.status.iter().filter_map(|status| status.pod_ips.as_ref()).flatten();
    all.filter_map(|ip| ip.ip.parse::<IpAddr>().ok()).filter(move |ip| ip.is_ipv6() == six)
}

/// The name that DNS has for a pod beside its Service's.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let named = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|hostname| named && !hostname.is_empty())
}

/// Which port of a pod a port of a Service leads to. Pods may have different ports of the same name.
pub fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let mut ports = ports.filter(|found| found.name.as_ref() == Some(name));
    ports.find(|found| protocol(&found.protocol) == protocol(&port.protocol)).map(|found| found.container_port)
}

pub fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// When what is written now was caused, so that it can be measured how long that takes. It is remembered what was there
/// before: only what is newer is a cause.
#[derive(Default)]
pub struct TriggerTimes(Mutex<HashMap<Key, HashMap<Option<String>, Timestamp>>>);

impl TriggerTimes {
    pub fn forget(&self, service: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(service);
    }

    /// The earliest change of the Service and its pods since the last call.
    pub fn since_last(&self, key: &Key, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let of_service = service.metadata.creation_timestamp.as_ref().map(|time| (None, time.0));
        let of_pod = |pod: &Arc<Pod>| Some((pod.metadata.name.clone(), readiness_changed(pod)?));
        let now: HashMap<_, _> = of_service.into_iter().chain(pods.iter().filter_map(of_pod)).collect();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.insert(key.clone(), now.clone()).unwrap_or_default();
        let newer = now.into_iter().filter(|(name, time)| before.get(name).is_none_or(|before| time > before));
        newer.map(|(_, time)| time).min()
    }
}

fn readiness_changed(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Says in annotations what caused a write, or no longer says it.
pub fn annotate(annotations: &mut Option<BTreeMap<String, String>>, cause: Option<Timestamp>) {
    match cause {
        Some(time) => drop(annotations.get_or_insert_default().insert(TRIGGER_TIME.to_owned(), time.to_string())),
        None => drop(annotations.as_mut().and_then(|annotations| annotations.remove(TRIGGER_TIME))),
    }
}

/// Annotations that concern one object only, not what is made from it.
pub fn is_of_one_object(annotation: &str) -> bool {
    matches!(annotation, TRIGGER_TIME | "kubectl.kubernetes.io/last-applied-configuration")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).expect("a pod")
    }

    #[test]
    fn ports_are_found_by_number_name_and_protocol() {
        let pod = pod(json!({"spec": {
            "containers": [
                {"name": "a", "ports": [{"name": "web", "containerPort": 80}, {"name": "dns", "containerPort": 53}]},
                {"name": "b", "ports": [{"name": "dns", "containerPort": 54, "protocol": "UDP"}]},
            ],
            "initContainers": [
                {"name": "c", "ports": [{"name": "late", "containerPort": 1}]},
                {"name": "d", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 2}]},
            ],
        }}));
        let port = |value: Value| target_port(&pod, &serde_json::from_value(value).expect("a port"));
        assert_eq!(port(json!({"port": 1, "targetPort": 8080})), Some(8080));
        assert_eq!(port(json!({"port": 7})), Some(7));
        assert_eq!(port(json!({"port": 1, "targetPort": "web"})), Some(80));
        assert_eq!(port(json!({"port": 1, "targetPort": "dns", "protocol": "UDP"})), Some(54));
        assert_eq!(port(json!({"port": 1, "targetPort": "side"})), Some(2));
        assert_eq!(port(json!({"port": 1, "targetPort": "late"})), None);
    }

    #[test]
    fn a_cause_is_what_is_newer_than_before() {
        let ready = |name: &str, second: u8| {
            let time = format!("2026-01-01T00:00:0{second}Z");
            let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": time});
            Arc::new(pod(json!({"metadata": {"name": name}, "status": {"conditions": [condition]}})))
        };
        let service = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:02Z"}});
        let service: Service = serde_json::from_value(service).expect("a service");
        let (times, key) = (TriggerTimes::default(), Key::new("a", "b"));
        let second = |time: Option<Timestamp>| time.map(|time| time.as_second() % 60);
        assert_eq!(second(times.since_last(&key, &service, &[ready("a", 3)])), Some(2));
        assert_eq!(second(times.since_last(&key, &service, &[ready("a", 3)])), None);
        assert_eq!(second(times.since_last(&key, &service, &[ready("a", 3), ready("b", 5), ready("c", 4)])), Some(4));
        times.forget(&key);
        assert_eq!(second(times.since_last(&key, &service, &[ready("a", 3)])), Some(2));
    }
}
