//! A pod as an endpoint of a Service.

use k8s_openapi::api::{
    core::v1::{Node, Pod, Service},
    discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone},
};

use crate::{pods, service_pods};

const ZONE: &str = "topology.kubernetes.io/zone";
/// How a Service asks for hints by the sizes of zones. The older name counts before the other.
const TOPOLOGY_MODE: [&str; 2] = ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// `None` if the pod has no address of the family.
pub fn of(pod: &Pod, node: Option<&Node>, service: &Service, six: bool) -> Option<Endpoint> {
    let addresses: Vec<String> = service_pods::addresses(pod, six).map(|address| address.to_string()).collect();
    if addresses.is_empty() {
        return None;
    }
    let spec = service.spec.as_ref();
    let serving = pods::ready(pod).is_some();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    // One that ends is never ready, for those who look at nothing else, unless the Service wants all.
    let ready = spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true) || (serving && !terminating);
    let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|name| !name.is_empty());
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned()).filter(|zone| !zone.is_empty());
    let near = spec.and_then(|spec| spec.traffic_distribution.as_deref()).filter(|_| !has_topology_mode(service));
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: near.filter(|_| ready).and_then(|near| hints(near, zone.as_deref(), node_name.as_deref())),
        hostname: service_pods::hostname(pod, service),
        target_ref: Some(service_pods::reference(pod)),
        node_name,
        zone,
        ..Endpoint::default()
    })
}

/// Whether a Service asks for hints by the sizes of zones, which count before `trafficDistribution`. They are not made here, so it
/// has none.
fn has_topology_mode(service: &Service) -> bool {
    let said = |name: &&str| service.metadata.annotations.as_ref()?.get(*name);
    TOPOLOGY_MODE.iter().find_map(said).is_some_and(|mode| matches!(mode.as_str(), "Auto" | "auto"))
}

/// Who should use an endpoint, if the Service would have its traffic stay near.
fn hints(near: &str, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let of_zone = matches!(near, "PreferClose" | "PreferSameZone" | "PreferSameNode");
    let zone = zone.filter(|_| of_zone).map(|name| vec![ForZone { name: name.to_owned() }]);
    let node = node.filter(|_| near == "PreferSameNode").map(|name| vec![ForNode { name: name.to_owned() }]);
    (zone.is_some() || node.is_some()).then_some(EndpointHints { for_zones: zone, for_nodes: node })
}

/// The ports of a pod that a Service leads to. One that the pod does not have is left out.
pub fn ports(pod: &Pod, service: &Service) -> Vec<EndpointPort> {
    let ports = service.spec.iter().filter_map(|spec| spec.ports.as_ref()).flatten();
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(service_pods::target_port(pod, port)?),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoint(pod: Value, service: Value) -> Value {
        let node = json!({"metadata": {"name": "n", "labels": {ZONE: "z"}}});
        let (pod, node, service): (Pod, Node, Service) = (
            serde_json::from_value(pod).expect("a pod"),
            serde_json::from_value(node).expect("a node"),
            serde_json::from_value(service).expect("a service"),
        );
        serde_json::to_value(of(&pod, Some(&node), &service, false)).expect("an endpoint")
    }

    fn pod(ready: &str) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "nodeName": "n", "hostname": "h", "subdomain": "s"},
            "status": {
                "podIP": "10.0.0.1",
                "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": ready}],
            },
        })
    }

    #[test]
    fn a_ready_pod_serves_and_one_that_ends_may_still() {
        let service = json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {}});
        let expected = json!({
            "addresses": ["10.0.0.1"],
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hostname": "h",
            "nodeName": "n",
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p", "uid": "u"},
            "zone": "z",
        });
        assert_eq!(endpoint(pod("True"), service.clone()), expected);
        let mut ending = pod("True");
        ending["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let conditions = json!({"ready": false, "serving": true, "terminating": true});
        assert_eq!(endpoint(ending, service)["conditions"], conditions);
        let all = json!({"metadata": {"name": "t"}, "spec": {"publishNotReadyAddresses": true}});
        let found = endpoint(pod("False"), all);
        assert_eq!(found["conditions"], json!({"ready": true, "serving": false, "terminating": false}));
        assert_eq!(found["hostname"], Value::Null, "it belongs to another service");
    }

    #[test]
    fn traffic_stays_near_if_the_service_says_so() {
        let hints = |near: &str, ready: &str| {
            let service = json!({"metadata": {"name": "s"}, "spec": {"trafficDistribution": near}});
            endpoint(pod(ready), service)["hints"].clone()
        };
        assert_eq!(hints("PreferClose", "True"), json!({"forZones": [{"name": "z"}]}));
        let both = json!({"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]});
        assert_eq!(hints("PreferSameNode", "True"), both);
        assert_eq!(hints("PreferSameZone", "False"), Value::Null);
        assert_eq!(hints("Elsewhere", "True"), Value::Null);
    }

    #[test]
    fn the_annotation_counts_before_the_traffic_distribution() {
        let has_hints = |annotations: Value| {
            let metadata = json!({"name": "s", "annotations": annotations});
            let service = json!({"metadata": metadata, "spec": {"trafficDistribution": "PreferClose"}});
            endpoint(pod("True"), service)["hints"].is_object()
        };
        let [older, newer] = TOPOLOGY_MODE;
        assert!(!has_hints(json!({newer: "Auto"})));
        assert!(!has_hints(json!({older: "auto"})));
        assert!(has_hints(json!({newer: "Disabled"})));
        assert!(has_hints(json!({older: "Disabled", newer: "Auto"})), "the older name counts");
    }
}
