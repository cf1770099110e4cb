use serde_json::{Value, json};

use super::*;

fn plan(spec: Value, status: Value, endpoints: Value) -> Plan {
    let service = json!({"metadata": {"namespace": "default", "name": "web"}, "spec": spec, "status": status});
    let slice = json!({"metadata": {"namespace": "default", "name": "web-1"}, "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints});
    let addresses = vec![Ipv4Addr::new(192, 0, 2, 1)];
    let node = Node { name: "here".into(), zone: Some("near".into()), addresses };
    Plan::of(&serde_json::from_value(service).unwrap(), &[Arc::new(serde_json::from_value(slice).unwrap())], &node)
}

fn endpoint(last: u8, node: &str, conditions: Value) -> Value {
    json!({"addresses": [format!("10.244.0.{last}")], "nodeName": node, "conditions": conditions})
}

fn with_ports(mut spec: Value) -> Value {
    spec["ports"] = json!([{"name": "http", "port": 80, "nodePort": spec["nodePort"].take()}]);
    spec["clusterIPs"] = json!([spec["clusterIP"]]);
    spec.as_object_mut().unwrap().remove("nodePort");
    spec
}

fn last_bytes(endpoints: &[Endpoint]) -> Vec<u8> {
    endpoints.iter().map(|endpoint| endpoint.address.octets()[3]).collect()
}

#[test]
fn services_without_addresses_have_no_plan() {
    for spec in [
        json!({"clusterIP": "None"}),
        json!({"clusterIP": ""}),
        json!({"clusterIP": "", "type": "ExternalName", "externalName": "example.org"}),
    ] {
        assert_eq!(plan(with_ports(spec), json!({}), json!([])), Plan::default());
    }
}

#[test]
fn every_entrance_has_its_front() {
    let spec = json!({"clusterIP": "10.96.0.1", "type": "LoadBalancer", "nodePort": 30080,
        "externalIPs": ["203.0.113.1", "fd00::1"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30999});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.2"}, {"ip": "203.0.113.3", "ipMode": "Proxy"},
        {"hostname": "example.org"}]}});
    let plan = plan(with_ports(spec), status, json!([endpoint(1, "here", json!({})), endpoint(2, "there", json!({}))]));
    let fronts: Vec<_> =
        plan.ports[0].fronts.iter().map(|(front, way)| (front.address.to_string(), front.port, *way)).collect();
    assert_eq!(
        fronts,
        [
            ("10.96.0.1".to_owned(), 80, Way::Inside),
            ("203.0.113.1".to_owned(), 80, Way::OutsideLocal),
            ("203.0.113.2".to_owned(), 80, Way::OutsideLocal),
            ("192.0.2.1".to_owned(), 30080, Way::OutsideLocal),
        ]
    );
    assert_eq!(plan.health, Some((30999, 1)));
    assert_eq!(plan.cluster_addresses, [Ipv4Addr::new(10, 96, 0, 1)]);
}

#[test]
fn ready_endpoints_come_first_and_ending_ones_if_there_are_no_others() {
    let spec = || with_ports(json!({"clusterIP": "10.96.0.1"}));
    let ending = json!({"ready": false, "serving": true, "terminating": true});
    let gone = json!({"ready": false, "serving": false, "terminating": true});
    let not_yet = json!({"ready": false, "serving": false, "terminating": false});
    let some = plan(
        spec(),
        json!({}),
        json!([
            endpoint(1, "here", ending.clone()),
            endpoint(2, "there", json!({"ready": true})),
            endpoint(3, "here", gone),
            endpoint(4, "here", not_yet),
            endpoint(2, "there", json!({"ready": true})),
        ]),
    );
    assert_eq!(last_bytes(&some.ports[0].all), [2]);
    assert_eq!(last_bytes(&some.ports[0].local), [1], "judged for the node by itself");
    let none = plan(spec(), json!({}), json!([endpoint(1, "there", ending)]));
    assert_eq!(last_bytes(&none.ports[0].all), [1]);
}

#[test]
fn balancers_hear_of_ready_endpoints_only_and_clients_may_stay_with_those_that_end() {
    let spec = json!({"clusterIP": "10.96.0.1", "type": "LoadBalancer", "externalTrafficPolicy": "Local",
        "healthCheckNodePort": 30999});
    let ending = json!({"ready": false, "serving": true, "terminating": true});
    let plan = plan(
        with_ports(spec),
        json!({}),
        json!([endpoint(1, "here", ending.clone()), endpoint(2, "there", json!({})), endpoint(3, "there", ending)]),
    );
    assert_eq!(last_bytes(&plan.ports[0].local), [1], "it still takes connections");
    assert_eq!(plan.health, Some((30999, 0)));
    assert_eq!(last_bytes(&plan.ports[0].all), [2]);
    assert_eq!(last_bytes(&plan.ports[0].serving), [1, 2, 3]);
}

#[test]
fn traffic_stays_near_if_every_endpoint_says_for_whom_it_is() {
    let hinted = |last: u8, node: Option<&str>, zone: Option<&str>| {
        let mut endpoint = endpoint(last, "there", json!({}));
        let named = |name: Option<&str>| name.map(|name| json!([{ "name": name }]));
        endpoint["hints"] = json!({"forNodes": named(node), "forZones": named(zone)});
        endpoint
    };
    let spec = || with_ports(json!({"clusterIP": "10.96.0.1"}));
    let taken = |endpoints: Value| last_bytes(&plan(spec(), json!({}), endpoints).ports[0].all);
    let (near, far) = (Some("near"), Some("far"));
    let (here, there) = (Some("here"), Some("there"));
    assert_eq!(taken(json!([hinted(1, None, near), hinted(2, None, far)])), [1]);
    assert_eq!(taken(json!([hinted(1, here, near), hinted(2, there, near)])), [1], "the node before the zone");
    assert_eq!(taken(json!([hinted(1, there, near), hinted(2, there, far)])), [1], "the zone if none is for the node");
    assert_eq!(taken(json!([hinted(1, None, far), hinted(2, None, far)])), [1, 2], "all if none is for us");
    assert_eq!(taken(json!([hinted(1, None, near), hinted(2, None, None)])), [1, 2], "all if one does not say");
}

#[test]
fn services_and_slices_of_others_are_left_alone() {
    for label in NOT_OURS {
        let spec = with_ports(json!({"clusterIP": "10.96.0.1"}));
        let labels = json!({label: ""});
        let service = json!({"metadata": {"name": "web", "labels": labels}, "spec": spec});
        let node = Node { name: "here".into(), zone: None, addresses: Vec::new() };
        assert_eq!(Plan::of(&serde_json::from_value(service).unwrap(), &[], &node), Plan::default(), "{label}");
    }
}

#[test]
fn affinity_has_a_default() {
    let mut spec = with_ports(json!({"clusterIP": "10.96.0.1", "sessionAffinity": "ClientIP"}));
    assert_eq!(plan(spec.clone(), json!({}), json!([])).ports[0].affinity, 10_800);
    spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 7}});
    assert_eq!(plan(spec.clone(), json!({}), json!([])).ports[0].affinity, 7);
    spec["sessionAffinity"] = "None".into();
    assert_eq!(plan(spec, json!({}), json!([])).ports[0].affinity, 0);
}

#[test]
fn who_may_enter_a_balanced_address_is_told_and_the_node_by_any_of_its_addresses() {
    let entered_from = |ranges: &[&str]| {
        let spec = json!({"clusterIP": "10.96.0.1", "type": "LoadBalancer", "nodePort": 30080,
            "loadBalancerSourceRanges": ranges});
        let status = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.2"}]}});
        let plan = plan(with_ports(spec), status, json!([]));
        let told = |(front, blocks): &(Front, Vec<Block>)| {
            (front.address.to_string(), blocks.iter().map(Block::to_string).collect::<Vec<_>>())
        };
        plan.guarded.iter().map(told).collect::<Vec<_>>()
    };
    let balanced = "203.0.113.2".to_owned();
    assert_eq!(entered_from(&["198.51.100.0/24"]), [(balanced.clone(), vec!["198.51.100.0/24".to_owned()])]);
    let with_node = ["192.0.2.0/24", "203.0.113.2/32"].map(str::to_owned).to_vec();
    assert_eq!(entered_from(&["192.0.2.0/24"]), [(balanced.clone(), with_node)]);
    // A range of IPv6 is about IPv6.
    let of_both = entered_from(&["2001:db8::/32", " 198.51.100.0/24"]);
    assert_eq!(of_both, [(balanced, vec!["198.51.100.0/24".to_owned()])]);
    assert_eq!(entered_from(&["2001:db8::/32"]), []);
}
