use std::{collections::BTreeMap, net::Ipv4Addr};

use serde_json::{Value, json};

use super::*;

#[derive(Default)]
struct Fake {
    services: BTreeMap<Key, Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
}

impl Cluster for Fake {
    fn service(&self, key: &Key) -> Option<Arc<Service>> {
        self.services.get(key).cloned()
    }

    fn slices(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        self.slices.iter().filter(|slice| service_of(slice).as_ref() == Some(service)).cloned().collect()
    }

    fn has_services(&self, namespace: &str) -> bool {
        self.services.keys().any(|key| key.namespace == namespace)
    }

    fn services_at(&self, address: IpAddr) -> Vec<Arc<Service>> {
        let has = |service: &Service| {
            let addresses = service.spec.as_ref().and_then(|spec| spec.cluster_ips.clone()).unwrap_or_default();
            addresses.contains(&address.to_string())
        };
        self.services.values().filter(|service| has(service)).cloned().collect()
    }

    fn slices_at(&self, address: IpAddr) -> Vec<Arc<EndpointSlice>> {
        let has = |slice: &EndpointSlice| slice.endpoints.iter().flatten().any(|e| address_of(e) == Some(address));
        self.slices.iter().filter(|slice| has(slice)).cloned().collect()
    }
}

fn zone() -> Zone<Fake> {
    let mut fake = Fake::default();
    let mut service = |name: &str, spec: Value| {
        let value = json!({"metadata": {"namespace": "shop", "name": name}, "spec": spec});
        fake.services.insert(Key::new("shop", name), Arc::new(serde_json::from_value(value).unwrap()));
    };
    let ports = json!([{"name": "http", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    service("web", json!({"clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ports": ports}));
    service("db", json!({"clusterIP": "None", "clusterIPs": ["None"], "ports": [{"name": "sql", "port": 5432}]}));
    service("empty", json!({"clusterIP": "None", "clusterIPs": ["None"]}));
    service("far", json!({"type": "ExternalName", "externalName": "example.org"}));
    service("near", json!({"type": "ExternalName", "externalName": "web.shop.svc.cluster.local"}));
    service("round", json!({"type": "ExternalName", "externalName": "round.shop.svc.cluster.local"}));
    let slice = |service: &str, ports: Value, endpoints: Value| {
        let labels = json!({"kubernetes.io/service-name": service});
        let value = json!({"metadata": {"namespace": "shop", "name": service, "labels": labels}, "addressType": "IPv4",
            "ports": ports, "endpoints": endpoints});
        Arc::new(serde_json::from_value(value).unwrap())
    };
    fake.slices = vec![
        slice(
            "db",
            json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]),
            json!([
                {"addresses": ["10.244.0.5"], "hostname": "db-0", "conditions": {"ready": true}},
                {"addresses": ["10.244.0.6"], "conditions": {"ready": true}},
                {"addresses": ["10.244.0.7"], "hostname": "db-2", "conditions": {"ready": false}},
            ]),
        ),
        slice("web", json!([{"name": "http", "port": 8080}]), json!([{"addresses": ["10.244.0.9"]}])),
    ];
    Zone::new(fake, "cluster.local", Ipv4Addr::new(10, 96, 0, 10).into()).unwrap()
}

/// The answers in words, or what there is instead.
fn answers(name: &str, kind: RecordType) -> Vec<String> {
    match zone().look_up(&Name::from_ascii(name).unwrap(), kind) {
        Found::Records { answers, .. } => answers.iter().map(|record| record.data.to_string()).collect(),
        other => vec![format!("{other:?}").split([' ', '{']).next().unwrap().to_owned()],
    }
}

#[test]
fn addresses_of_services_and_endpoints() {
    use RecordType::{A, AAAA};
    for (name, kind, expected) in [
        ("web.shop.svc.cluster.local.", A, vec!["10.96.0.20"]),
        ("WEB.Shop.SVC.cluster.local.", A, vec!["10.96.0.20"]),
        ("web.shop.svc.cluster.local.", AAAA, vec!["Nothing"]),
        ("web.other.svc.cluster.local.", A, vec!["NoSuchName"]),
        ("other.shop.svc.cluster.local.", A, vec!["NoSuchName"]),
        ("db.shop.svc.cluster.local.", A, vec!["10.244.0.5", "10.244.0.6"]),
        ("empty.shop.svc.cluster.local.", A, vec!["NoSuchName"]),
        ("db-0.db.shop.svc.cluster.local.", A, vec!["10.244.0.5"]),
        ("10-244-0-6.db.shop.svc.cluster.local.", A, vec!["10.244.0.6"]),
        ("db-2.db.shop.svc.cluster.local.", A, vec!["NoSuchName"]),
        ("10-244-0-9.web.shop.svc.cluster.local.", A, vec!["10.244.0.9"]),
        ("10-1-2-3.shop.pod.cluster.local.", A, vec!["10.1.2.3"]),
        ("nonsense.shop.pod.cluster.local.", A, vec!["NoSuchName"]),
        ("ns.dns.cluster.local.", A, vec!["10.96.0.10"]),
    ] {
        assert_eq!(answers(name, kind), expected, "{name} {kind}");
    }
}

#[test]
fn names_in_between_exist_without_records() {
    for name in ["cluster.local.", "svc.cluster.local.", "shop.svc.cluster.local.", "pod.cluster.local."] {
        assert_eq!(answers(name, RecordType::A), ["Nothing"], "{name}");
    }
    assert_eq!(answers("nobody.svc.cluster.local.", RecordType::A), ["NoSuchName"]);
    assert_eq!(answers("example.org.", RecordType::A), ["NotOurs"]);
    assert_eq!(answers("cluster.local.example.org.", RecordType::A), ["NotOurs"]);
    assert_eq!(answers("cluster.local.", RecordType::NS), ["ns.dns.cluster.local."]);
    assert!(
        answers("cluster.local.", RecordType::SOA)[0].starts_with("ns.dns.cluster.local. hostmaster.cluster.local.")
    );
}

#[test]
fn ports_are_found_by_name_and_protocol() {
    use RecordType::{A, SRV};
    assert_eq!(answers("_http._tcp.web.shop.svc.cluster.local.", SRV), ["0 100 80 web.shop.svc.cluster.local."]);
    assert_eq!(answers("_dns._udp.web.shop.svc.cluster.local.", SRV), ["0 100 53 web.shop.svc.cluster.local."]);
    assert_eq!(answers("_http._udp.web.shop.svc.cluster.local.", SRV), ["NoSuchName"]);
    assert_eq!(answers("_http._tcp.web.shop.svc.cluster.local.", A), ["Nothing"]);
    assert_eq!(
        answers("_sql._tcp.db.shop.svc.cluster.local.", SRV),
        ["0 50 5432 db-0.db.shop.svc.cluster.local.", "0 50 5432 10-244-0-6.db.shop.svc.cluster.local."]
    );
    assert_eq!(answers("web.shop.svc.cluster.local.", SRV).len(), 2, "all ports");
    let name = Name::from_ascii("_sql._tcp.db.shop.svc.cluster.local.").unwrap();
    let Found::Records { beside, .. } = zone().look_up(&name, SRV) else { panic!("there are records") };
    let beside: Vec<String> = beside.iter().map(|record| format!("{} {}", record.name, record.data)).collect();
    assert_eq!(
        beside,
        ["db-0.db.shop.svc.cluster.local. 10.244.0.5", "10-244-0-6.db.shop.svc.cluster.local. 10.244.0.6"]
    );
}

#[test]
fn external_names_are_aliases() {
    use RecordType::{A, CNAME};
    assert_eq!(answers("far.shop.svc.cluster.local.", CNAME), ["example.org."]);
    assert_eq!(answers("far.shop.svc.cluster.local.", A), ["Elsewhere"], "others know its address");
    assert_eq!(answers("near.shop.svc.cluster.local.", A), ["web.shop.svc.cluster.local.", "10.96.0.20"]);
    assert_eq!(answers("round.shop.svc.cluster.local.", A), ["round.shop.svc.cluster.local."], "it ends");
}

#[test]
fn addresses_have_names() {
    use RecordType::{A, PTR};
    assert_eq!(answers("20.0.96.10.in-addr.arpa.", PTR), ["web.shop.svc.cluster.local."]);
    assert_eq!(answers("5.0.244.10.in-addr.arpa.", PTR), ["db-0.db.shop.svc.cluster.local."]);
    assert_eq!(answers("9.0.244.10.in-addr.arpa.", PTR), ["10-244-0-9.web.shop.svc.cluster.local."]);
    assert_eq!(answers("7.0.244.10.in-addr.arpa.", PTR), ["NotOurs"], "it is not ready");
    assert_eq!(answers("1.1.1.1.in-addr.arpa.", PTR), ["NotOurs"]);
    assert_eq!(answers("20.0.96.10.in-addr.arpa.", A), ["Nothing"]);
}
