//! Service: a stable address for a set of pods.
//!
//! Before the strategy's own steps the server allocates: [`addresses::before_allocation`] completes what an old object
//! or the cluster decides (families, kept addresses and ports), then cluster IPs and node ports are allocated, then
//! the object is validated with them in it.

pub mod addresses;

use std::collections::HashSet;

use object_model::field::ErrorKind;
use object_model::names;
use serde_json::{Value, json};

use crate::defaults::Defaults;
use crate::kinds::{Create, Selectable, Strategy, Update, prepare};
use crate::validation::addresses::{cidr_warnings, endpoint_ip, ip_warning, legacy_cidr, legacy_ip};
use crate::validation::{Field, go_form, meta, same_at, selectors};

const TOPOLOGY_HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const TYPES: &[&str] = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const MAX_AFFINITY_SECONDS: i64 = 86400;

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    create_on_update: true,
    defaults,
    create: Create {
        warnings,
        ..Create::new(
            |service, _| prepare::put(service, &["status"], Some(&json!({"loadBalancer": {}}))),
            |service| {
                meta::builtin_meta(&service.at("metadata"), true, names::name_is_dns_label);
                validate(service, &Value::Null);
            },
        )
    },
    update: Update {
        warnings: |service, _| warnings(service),
        ..Update::of_spec(
            |service, old, _| {
                prepare::keep(service, old, "status");
                addresses::drop_what_the_type_lacks(service, old);
            },
            validate_update,
        )
    },
    subresources: &[(
        "status",
        Update { warnings: |service, _| status_warnings(service), ..Update::of_status(validate_status) },
    )],
    fields: &[
        Selectable { name: "spec.clusterIP", read: |service| text(&service["spec"]["clusterIP"]).to_owned() },
        Selectable { name: "spec.type", read: |service| text(&service["spec"]["type"]).to_owned() },
    ],
    ..Strategy::new("", "Service")
};

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn defaults(service: &mut Value) {
    let is_balancer = service["spec"]["type"] == "LoadBalancer";
    for ingress in service.pointer_mut("/status/loadBalancer").into_iter().flat_map(|status| status.each("ingress")) {
        if is_balancer && !text(&ingress["ip"]).is_empty() {
            ingress.default_if_absent("ipMode", "VIP");
        }
    }
    let Some(spec) = service.child("spec") else { return };
    spec.default_to("sessionAffinity", "None");
    if spec["sessionAffinity"] == "None" {
        spec.remove("sessionAffinityConfig");
    }
    if spec["sessionAffinity"] == "ClientIP" && spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null() {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": 10800}});
    }
    spec.default_to("type", "ClusterIP");
    for port in spec.each("ports") {
        port.default_to("protocol", "TCP");
        let number = port["port"].clone();
        port.default_to("targetPort", number);
    }
    if is_externally_accessible(spec) {
        spec.default_to("externalTrafficPolicy", "Cluster");
    }
    if ["NodePort", "LoadBalancer", "ClusterIP"].contains(&text(&spec["type"])) {
        spec.default_if_absent("internalTrafficPolicy", "Cluster");
    }
    if is_balancer {
        spec.default_if_absent("allocateLoadBalancerNodePorts", true);
    }
}

fn is_externally_accessible(spec: &Value) -> bool {
    match text(&spec["type"]) {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty()),
        _ => false,
    }
}

/// A load balancer that sends traffic to local endpoints only asks the nodes which they are.
pub fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

pub fn is_headless(spec: &Value) -> bool {
    spec["clusterIPs"].as_array().is_some_and(|ips| ips.len() == 1 && ips[0] == "None")
}

fn validate(service: &Field, old: &Value) {
    let (metadata, spec) = (service.at("metadata"), service.at("spec"));
    let annotations = metadata.at("annotations");
    let (hints, mode) = (annotations.key(TOPOLOGY_HINTS), annotations.key(TOPOLOGY_MODE));
    if hints.is_set() && mode.is_set() && hints.text() != mode.text() {
        mode.invalid(format!("must match annotations[{TOPOLOGY_HINTS}] when both are specified"));
    }
    let headless = is_headless(spec.value());
    let kind = spec.at("type");
    if spec.at("ports").is_empty() && !headless && !kind.is("ExternalName") {
        spec.at("ports").missing("");
    }
    match kind.text() {
        "LoadBalancer" | "NodePort" if headless => {
            let ips = spec.at("clusterIPs");
            ips.index(0).invalid(format!("may not be set to 'None' for {} services", kind.text()));
        }
        "ExternalName" => external_name(&spec),
        _ => {}
    }
    ports(&spec.at("ports"));
    selectors::labels(&spec.at("selector"));
    session_affinity(&spec);
    addresses::validate(&spec, &old["spec"]);
    external_ips(&spec.at("externalIPs"), &old["spec"]);
    kind.required_one_of(TYPES);
    node_ports(&spec);
    source_ranges(service, &spec, old);
    let allocate = spec.at("allocateLoadBalancerNodePorts");
    if allocate.is_set() && !kind.is("LoadBalancer") {
        allocate.forbidden("may only be used when `type` is 'LoadBalancer'");
    }
    if kind.is("LoadBalancer") && !allocate.is_set() {
        service.at("allocateLoadBalancerNodePorts").missing("");
    }
    load_balancer_class(&spec);
    external_traffic(&spec);
    let internal = spec.at("internalTrafficPolicy");
    if kind.is_one_of(&["NodePort", "LoadBalancer", "ClusterIP"]) && !internal.is_set() {
        internal.missing("");
    }
    internal.one_of_if_set(&["Cluster", "Local"]);
    spec.at("trafficDistribution").one_of_if_set(&["PreferClose", "PreferSameZone", "PreferSameNode"]);
}

fn external_name(spec: &Field) {
    for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec.at(name).is_empty() {
            spec.at(name).forbidden("may not be set for ExternalName services");
        }
    }
    let name = spec.at("externalName");
    let host = name.text().strip_suffix('.').unwrap_or(name.text());
    if host.is_empty() {
        name.missing("");
    }
    for message in names::dns_subdomain(host).into_iter().filter(|_| !host.is_empty()) {
        name.invalid_value(host, message);
    }
}

fn ports(ports: &Field) {
    let mut seen = HashSet::new();
    for port in ports.each() {
        let name = port.at("name");
        if ports.len() > 1 && name.is_empty() {
            name.missing("");
        } else if !name.is_empty() {
            name.dns_label();
            if seen.contains(&name.text()) {
                name.duplicate();
            } else {
                seen.insert(name.text());
            }
        }
        port.at("port").port_number();
        port.at("protocol").required_one_of(&["SCTP", "TCP", "UDP"]);
        port.at("targetPort").port();
        port.at("appProtocol").qualified_name_if_set();
    }
}

fn session_affinity(spec: &Field) {
    let (affinity, config) = (spec.at("sessionAffinity"), spec.at("sessionAffinityConfig"));
    affinity.required_one_of(&["ClientIP", "None"]);
    if affinity.is("None") && config.is_set() {
        config.forbidden("must not be set when session affinity is None");
    }
    if affinity.is("ClientIP") {
        let client = config.at("clientIP");
        let timeout = client.at("timeoutSeconds");
        match [&config, &client, &timeout].into_iter().find(|field| !field.is_set()) {
            Some(field) => field.missing("when session affinity type is ClientIP"),
            None if !(1..=MAX_AFFINITY_SECONDS).contains(&timeout.number()) => {
                timeout.invalid(format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"))
            }
            None => {}
        }
    }
}

fn external_ips(ips: &Field, old_spec: &Value) {
    let kept: Vec<&str> = old_spec["externalIPs"].as_array().into_iter().flatten().map(text).collect();
    for ip in ips.each() {
        let before = ip.problem_count();
        legacy_ip(&ip, &kept);
        if ip.problem_count() == before {
            endpoint_ip(&ip);
        }
    }
}

fn node_ports(spec: &Field) {
    let ports = spec.at("ports");
    if spec.at("type").is("ClusterIP") {
        for port in ports.each().filter(|port| port.at("nodePort").number() != 0) {
            port.at("nodePort").forbidden("may not be used when `type` is 'ClusterIP'");
        }
    }
    for (number, told_at_port) in [("nodePort", false), ("port", true)] {
        let mut seen = HashSet::new();
        for port in ports.each() {
            let key = (port.at("protocol").text(), port.at(number).number());
            if seen.contains(&key) {
                if told_at_port {
                    let shown = go_form::shown("ServicePort", &json!({"protocol": key.0, "port": key.1}));
                    port.tell(ErrorKind::Duplicate, None, shown);
                } else {
                    port.at(number).duplicate();
                }
            }
            if told_at_port || key.1 != 0 {
                seen.insert(key);
            }
        }
    }
}

fn source_ranges(service: &Field, spec: &Field, old: &Value) {
    const BALANCERS_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let ranges = spec.at("LoadBalancerSourceRanges").with(spec.at("loadBalancerSourceRanges").value());
    let is_balancer = spec.at("type").is("LoadBalancer");
    let metadata = service.at("metadata");
    let annotations = metadata.at("annotations");
    let annotation = annotations.key(SOURCE_RANGES);
    if !ranges.is_empty() {
        if !is_balancer {
            ranges.forbidden(BALANCERS_ONLY);
        }
        let kept: Vec<&str> =
            old["spec"]["loadBalancerSourceRanges"].as_array().into_iter().flatten().map(|r| text(r).trim()).collect();
        for range in ranges.each() {
            trimmed_cidr(&range, range.text(), &kept);
        }
    } else if annotation.is_set() {
        if !is_balancer {
            annotation.forbidden(BALANCERS_ONLY);
        }
        if old["metadata"]["annotations"][SOURCE_RANGES] != *annotation.value() && !annotation.text().trim().is_empty()
        {
            for range in annotation.text().trim().split(',') {
                trimmed_cidr(&annotation, range, &[]);
            }
        }
    }
}

/// A block as Kubernetes reads it here: without the spaces around it.
fn trimmed_cidr(told: &Field, range: &str, kept: &[&str]) {
    let at = told.path().to_string();
    for mut error in Field::check(&Value::from(range.trim()), |range| legacy_cidr(range, kept)) {
        error.field.clone_from(&at);
        told.push(error);
    }
}

fn load_balancer_class(spec: &Field) {
    let class = spec.at("loadBalancerClass");
    if !class.is_set() {
        return;
    }
    if spec.at("type").is("LoadBalancer") {
        class.qualified_name();
    } else {
        class.forbidden("may only be used when `type` is 'LoadBalancer'");
    }
}

fn external_traffic(spec: &Field) {
    let (policy, port) = (spec.at("externalTrafficPolicy"), spec.at("healthCheckNodePort"));
    if is_externally_accessible(spec.value()) {
        policy.required_one_of(&["Cluster", "Local"]);
    } else if !policy.is_empty() {
        policy.invalid("may only be set for externally-accessible services");
    }
    match (needs_health_check(spec.value()), port.number()) {
        (true, 0) => port.missing(""),
        (true, _) => port.port_number(),
        (false, 0) => {}
        (false, _) => {
            port.invalid("may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'")
        }
    }
}

fn validate_update(service: &Field, old: &Value) {
    let (spec, old_spec) = (service.at("spec"), &old["spec"]);
    meta::builtin_meta_update(&service.at("metadata"), &old["metadata"]);
    addresses::validate_change(&spec, old_spec);
    let is_balancer = |spec: &Value| spec["type"] == "LoadBalancer";
    if is_balancer(spec.value()) && is_balancer(old_spec) && !same_at(spec.value(), old_spec, "loadBalancerClass") {
        spec.at("loadBalancerClass").invalid("may not change once set");
    }
    load_balancer_class(&spec);
    let both_checked = needs_health_check(spec.value()) && needs_health_check(old_spec);
    if both_checked && !same_at(spec.value(), old_spec, "healthCheckNodePort") {
        spec.at("healthCheckNodePort").forbidden("field is immutable");
    }
    validate(service, old);
}

fn validate_status(service: &Field, old: &Value) {
    meta::builtin_meta_update(&service.at("metadata"), &old["metadata"]);
    let (spec, status) = (service.at("spec"), service.at("status"));
    let balancer = status.at("loadBalancer");
    let ingress = balancer.at("ingress");
    if !spec.at("type").is("LoadBalancer") && !ingress.is_empty() {
        return ingress.forbidden("may only be used when `spec.type` is 'LoadBalancer'");
    }
    let kept = old["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten();
    load_balancer_ingress(&ingress, &kept.map(|entry| text(&entry["ip"])).collect::<Vec<_>>());
}

/// The addresses a load balancer answers at.
pub fn load_balancer_ingress(ingress: &Field, kept: &[&str]) {
    for entry in ingress.each() {
        let (ip, mode, hostname) = (entry.at("ip"), entry.at("ipMode"), entry.at("hostname"));
        if !ip.is_empty() {
            legacy_ip(&ip, kept);
        }
        match (mode.is_set(), ip.is_empty()) {
            (false, false) => mode.missing("must be specified when `ip` is set"),
            (true, true) => mode.forbidden("may not be specified when `ip` is not set"),
            _ => mode.one_of_if_set(&["Proxy", "VIP"]),
        }
        if !hostname.is_empty() {
            hostname.dns_subdomain();
            if crate::validation::addresses::parse_ip(hostname.text()).is_some() {
                hostname.invalid("must be a DNS name, not an IP address");
            }
        }
    }
}

fn status_warnings(service: &Value) -> Vec<String> {
    let ingress = service["status"]["loadBalancer"]["ingress"].as_array().into_iter().flatten().enumerate();
    ingress
        .filter_map(|(i, entry)| ip_warning(format_args!("status.loadBalancer.ingress[{i}]"), text(&entry["ip"])))
        .collect()
}

fn warnings(service: &Value) -> Vec<String> {
    let spec = &service["spec"];
    let mut all = Vec::new();
    let list = |name: &'static str| {
        spec[name]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .map(move |(i, v)| (format!("spec.{name}[{i}]"), text(v)))
    };
    if service["metadata"]["annotations"].get(TOPOLOGY_HINTS).is_some() {
        all.push(format!("annotation {TOPOLOGY_HINTS} is deprecated, please use {TOPOLOGY_MODE} instead"));
    }
    let cluster_ip = text(&spec["clusterIP"]);
    if !cluster_ip.is_empty() && cluster_ip != "None" {
        all.extend(list("clusterIPs").filter_map(|(path, ip)| ip_warning(path, ip)));
    }
    let headless = spec["type"] == "ClusterIP" && cluster_ip == "None";
    let external_ips = list("externalIPs").next().is_some();
    if headless {
        if !text(&spec["loadBalancerIP"]).is_empty() {
            all.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if external_ips {
            all.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if spec["sessionAffinity"] != "None" {
            all.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    all.extend(list("externalIPs").filter_map(|(path, ip)| ip_warning(path, ip)));
    let is_name = spec["type"] == "ExternalName";
    if external_ips && !headless && !is_name {
        all.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    all.extend(ip_warning("spec.loadBalancerIP", text(&spec["loadBalancerIP"])));
    all.extend(list("loadBalancerSourceRanges").flat_map(|(path, range)| cidr_warnings(path, range)));
    if is_name && external_ips {
        all.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if !is_name && !text(&spec["externalName"]).is_empty() {
        all.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        all.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    all
}
