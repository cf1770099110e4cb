//! Services, endpoints, ingresses and addresses.

use std::collections::BTreeSet;

use object_model::meta::Meta;
use object_model::value::Fields;
use serde_json::Value;

use super::cells::{age, at, filled_or, first_of, int, items, joined, labels, name, selector, text, text_or};
use super::{AGE, Column, Columns, NAME, docs};

pub static SERVICE: Columns = Columns::new(
    &[
        NAME,
        Column::text("Type", docs::SERVICE_TYPE),
        Column::text("Cluster-IP", docs::SERVICE_CLUSTER_IP),
        Column::text("External-IP", docs::SERVICE_EXTERNAL_IPS),
        Column::text("Port(s)", docs::SERVICE_PORTS),
        AGE,
        Column::text("Selector", docs::SERVICE_SELECTOR).wide(),
    ],
    |service, now| {
        let ip = items(service, "spec.clusterIPs").first().and_then(Value::as_str).unwrap_or("<none>");
        let ports: Vec<String> = items(service, "spec.ports").iter().map(service_port).collect();
        vec![
            name(service),
            text(service, "spec.type").into(),
            ip.into(),
            external_ips(service).into(),
            filled_or(&ports.join(","), "<none>").into(),
            age(service, now),
            labels(service, "spec.selector").into(),
        ]
    },
);

fn service_port(port: &Value) -> String {
    let (number, protocol) = (int(port, "port"), port.text("protocol"));
    match int(port, "nodePort") {
        0 => format!("{number}/{protocol}"),
        node_port => format!("{number}:{node_port}/{protocol}"),
    }
}

/// Where a service is reached from outside.
fn external_ips(service: &Value) -> String {
    let external = joined(service, "spec.externalIPs");
    match text(service, "spec.type") {
        "ClusterIP" | "NodePort" => filled_or(&external, "<none>").to_owned(),
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if balancer.is_empty() => filled_or(&external, "<pending>").to_owned(),
            (balancer, external) if external.is_empty() => balancer,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => text(service, "spec.externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses or else names of a load balancer, sorted.
fn load_balancer(object: &Value) -> String {
    let points = items(object, "status.loadBalancer.ingress").iter();
    let addresses: BTreeSet<&str> = points.map(|p| filled_or(p.text("ip"), p.text("hostname"))).collect();
    addresses.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>().join(",")
}

pub static ENDPOINTS: Columns =
    Columns::new(&[NAME, Column::text("Endpoints", docs::ENDPOINTS), AGE], |object, now| {
        let subsets = object.items("subsets");
        let all: Vec<String> = subsets.iter().flat_map(endpoints).collect();
        let shown = if subsets.is_empty() { "<none>".to_owned() } else { first_of(&all, 3, ",") };
        vec![name(object), shown.into(), age(object, now)]
    });

/// Every address with every port; a headless service may have no ports.
fn endpoints(subset: &Value) -> Vec<String> {
    let addresses = || subset.items("addresses").iter().map(|address| address.text("ip"));
    let ports = subset.items("ports");
    if ports.is_empty() {
        return addresses().map(str::to_owned).collect();
    }
    let with_port = |ip: &str, port: &Value| match (ip.contains(':'), int(port, "port")) {
        (true, port) => format!("[{ip}]:{port}"),
        (false, port) => format!("{ip}:{port}"),
    };
    ports.iter().flat_map(|port| addresses().map(move |ip| with_port(ip, port))).collect()
}

pub static ENDPOINT_SLICE: Columns = Columns::new(
    &[
        NAME,
        Column::text("AddressType", docs::SLICE_ADDRESS_TYPE),
        Column::text("Ports", docs::SLICE_PORTS),
        Column::text("Endpoints", docs::SLICE_ENDPOINTS),
        AGE,
    ],
    |object, now| {
        let port = |port: &Value| match at(port, "port") {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        };
        let ports: Vec<String> = object.items("ports").iter().map(port).collect();
        let addresses = object.items("endpoints").iter().flat_map(|endpoint| endpoint.items("addresses"));
        let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
        vec![
            name(object),
            text(object, "addressType").into(),
            filled_or(&first_of(&ports, 3, ","), "<unset>").into(),
            filled_or(&first_of(&addresses, 3, ","), "<unset>").into(),
            age(object, now),
        ]
    },
);

pub static INGRESS: Columns = Columns::new(
    &[
        NAME,
        Column::text("Class", "The name of the IngressClass resource that should be used for additional configuration"),
        Column::text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
        Column::text("Address", "Address is a list containing ingress points for the load-balancer"),
        Column::text("Ports", "Ports of TLS configurations that open"),
        AGE,
    ],
    |ingress, now| {
        let ports = if items(ingress, "spec.tls").is_empty() { "80" } else { "80, 443" };
        vec![
            name(ingress),
            text_or(ingress, "spec.ingressClassName", "<none>").into(),
            ingress_hosts(ingress).into(),
            load_balancer(ingress).into(),
            ports.into(),
            age(ingress, now),
        ]
    },
);

/// The first three hosts. Once they are found, every further rule counts, with a host or without.
fn ingress_hosts(ingress: &Value) -> String {
    let rules = items(ingress, "spec.rules");
    let with_host = || rules.iter().enumerate().filter(|(_, rule)| !rule.text("host").is_empty());
    let hosts: Vec<&str> = with_host().map(|(_, rule)| rule.text("host")).take(3).collect();
    let more = with_host().nth(2).is_some_and(|(third, _)| third + 1 < rules.len());
    match hosts.join(",") {
        hosts if hosts.is_empty() => "*".to_owned(),
        hosts if more => format!("{hosts} + {} more...", rules.len() - 3),
        hosts => hosts,
    }
}

pub static INGRESS_CLASS: Columns = Columns::new(
    &[
        NAME,
        Column::text("Controller", "Controller that is responsible for handling this class"),
        Column::text("Parameters", "A reference to a resource with additional parameters"),
        AGE,
    ],
    |object, now| {
        let parameters = match at(object, "spec.parameters") {
            None => "<none>".to_owned(),
            Some(to) => match at(to, "apiGroup").and_then(Value::as_str) {
                Some(group) => format!("{}.{group}/{}", to.text("kind"), to.text("name")),
                None => format!("{}/{}", to.text("kind"), to.text("name")),
            },
        };
        vec![
            name_of_default(object, &["ingressclass.kubernetes.io/is-default-class"]),
            text(object, "spec.controller").into(),
            parameters.into(),
            age(object, now),
        ]
    },
);

/// A class is the default if an annotation says so.
pub fn name_of_default(class: &Value, annotations: &[&str]) -> Value {
    let meta = Meta::of(class);
    let is_default = annotations.iter().any(|annotation| meta.annotation(annotation) == Some("true"));
    if is_default { format!("{} (default)", meta.name()).into() } else { meta.name().into() }
}

pub static NETWORK_POLICY: Columns =
    Columns::new(&[NAME, Column::text("Pod-Selector", docs::POLICY_POD_SELECTOR), AGE], |object, now| {
        vec![name(object), selector(object, "spec.podSelector").into(), age(object, now)]
    });

pub static SERVICE_CIDR: Columns =
    Columns::new(&[NAME, Column::text("CIDRs", docs::SERVICE_CIDRS), AGE], |object, now| {
        vec![name(object), joined(object, "spec.cidrs").into(), age(object, now)]
    });

/// Kubernetes sends the age although it has no column.
pub static IP_ADDRESS: Columns =
    Columns::new(&[NAME, Column::text("ParentRef", docs::ADDRESS_PARENT)], |object, now| {
        vec![name(object), parent(object).into(), age(object, now)]
    });

fn parent(address: &Value) -> String {
    let Some(parent) = at(address, "spec.parentRef") else { return "<none>".to_owned() };
    let resource = match parent.text("group") {
        "" => parent.text("resource").to_lowercase(),
        group => format!("{}.{group}", parent.text("resource")).to_lowercase(),
    };
    match parent.text("namespace") {
        "" => format!("{resource}/{}", parent.text("name")),
        namespace => format!("{resource}/{namespace}/{}", parent.text("name")),
    }
}
