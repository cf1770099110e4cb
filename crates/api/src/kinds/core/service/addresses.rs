//! The addresses of a Service: cluster IPs, their families, and the ports that go with its type.

use std::collections::{HashMap, HashSet};

use object_model::field::Errors;
use serde_json::{Value, json};

use super::is_headless;
use crate::defaults::Defaults;
use crate::kinds::prepare;
use crate::validation::addresses::{is_dual_stack, legacy_ip, parse_ip};
use crate::validation::{Field, same_at};

const V4: &str = "IPv4";
const V6: &str = "IPv6";

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().map(text).collect()
}

fn needs_cluster_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

fn needs_node_port(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

fn family_of(ip: &str) -> &'static str {
    if parse_ip(ip).is_some_and(|ip| ip.is_ipv6()) { V6 } else { V4 }
}

/// What is completed before cluster IPs and ports are allocated. `families` are those of the cluster, the default one
/// first. `old` is null for a new Service.
pub fn before_allocation(service: &mut Value, old: &Value, families: &[&str]) -> Result<(), Errors> {
    let old_spec = &old["spec"];
    if let Some(spec) = service.child("spec") {
        keep_allocated(spec, old_spec);
        mirror_cluster_ips(spec, old_spec);
        return complete_families(spec, old_spec, families);
    }
    Ok(())
}

/// A client that leaves out what was allocated means to keep it.
fn keep_allocated(spec: &mut Value, old: &Value) {
    if !old.is_object() {
        return;
    }
    if needs_cluster_ip(old) && needs_cluster_ip(spec) {
        if let Some(ip) = old.get("clusterIP") {
            spec.default_to("clusterIP", ip.clone());
        }
        if texts(&spec["clusterIPs"]).is_empty() && !texts(&old["clusterIPs"]).is_empty() {
            spec["clusterIPs"] = old["clusterIPs"].clone();
        }
    }
    if needs_node_port(old) && needs_node_port(spec) {
        keep_node_ports(spec, old);
    }
    if super::needs_health_check(old) && super::needs_health_check(spec) && !old["healthCheckNodePort"].is_null() {
        spec.default_to("healthCheckNodePort", old["healthCheckNodePort"].clone());
    }
}

/// By the name of the port, unless another port of the new Service has taken the number.
fn keep_node_ports(spec: &mut Value, old: &Value) {
    fn ports(spec: &Value) -> impl Iterator<Item = &Value> {
        spec["ports"].as_array().into_iter().flatten()
    }
    let number = |port: &Value| port["nodePort"].as_i64().unwrap_or_default();
    let taken: HashSet<i64> = ports(spec).map(number).collect();
    let before: HashMap<&str, i64> = ports(old).map(|port| (text(&port["name"]), number(port))).collect();
    for port in spec.each("ports").filter(|port| number(port) == 0) {
        if let Some(n) = before.get(text(&port["name"])).filter(|n| **n != 0 && !taken.contains(n)) {
            port["nodePort"] = json!(n);
        }
    }
}

/// `clusterIP` and `clusterIPs` follow each other, whichever an old client changes.
fn mirror_cluster_ips(spec: &mut Value, old: &Value) {
    let single = text(&spec["clusterIP"]).to_owned();
    let many = |spec: &Value| spec["clusterIPs"].as_array().cloned().unwrap_or_default();
    if !old.is_object() {
        if !single.is_empty() && many(spec).is_empty() {
            spec["clusterIPs"] = json!([single]);
        }
        return;
    }
    let was = text(&old["clusterIP"]);
    if !many(old).is_empty() && many(spec).is_empty() && was == single {
        spec["clusterIPs"] = old["clusterIPs"].clone();
    }
    if was != single && many(spec) == many(old) {
        if single.is_empty() {
            spec.remove("clusterIPs");
        } else {
            spec["clusterIPs"] = json!([single]);
        }
    }
}

fn complete_families(spec: &mut Value, old: &Value, cluster: &[&str]) -> Result<(), Errors> {
    if !needs_cluster_ip(spec) || unchanged_preference(spec, old) {
        return Ok(());
    }
    let selectorless = spec["clusterIP"] == "None" && spec["selector"].as_object().is_none_or(|s| s.is_empty());
    let policy = match text(&old["ipFamilyPolicy"]) {
        "" if selectorless => "RequireDualStack",
        "" => "SingleStack",
        policy => policy,
    };
    spec.default_if_absent("ipFamilyPolicy", policy);
    let found = validate_alone(spec, old);
    if !found.is_empty() {
        return Err(found);
    }
    let single_stack = spec["ipFamilyPolicy"] == "SingleStack";
    if single_stack && old.is_object() {
        for name in ["clusterIPs", "ipFamilies"] {
            let same = same_at(spec, old, name) && (name != "clusterIPs" || same_at(spec, old, "clusterIP"));
            if let Some(list) = spec[name].as_array_mut().filter(|_| same) {
                list.truncate(1);
            }
        }
    }
    let found = told_at_spec(spec, |spec| policy_fits(spec, old, cluster));
    if !found.is_empty() {
        return Err(found);
    }
    let mut families: Vec<String> = texts(&spec["ipFamilies"]).into_iter().map(str::to_owned).collect();
    for ip in texts(&spec["clusterIPs"]).into_iter().skip(families.len()).take_while(|ip| *ip != "None") {
        families.push(family_of(ip).to_owned());
    }
    let default = cluster.first().copied().unwrap_or(V4);
    let other = |family: &str| if family == V4 { V6 } else { V4 }.to_owned();
    if !selectorless {
        let found = told_at_spec(spec, |spec| families_are_served(spec, &families, cluster));
        if !found.is_empty() {
            return Err(found);
        }
    }
    if families.is_empty() {
        families.push(default.to_owned());
    }
    if !single_stack && families.len() == 1 && (selectorless || cluster.len() == 2) {
        families.push(other(&families[0]));
    }
    spec["ipFamilies"] = json!(families);
    Ok(())
}

/// An update that repeats a preference for two stacks, which the cluster could not give, changes nothing.
fn unchanged_preference(spec: &Value, old: &Value) -> bool {
    old.is_object()
        && spec["ipFamilyPolicy"] == "PreferDualStack"
        && ["type", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"].iter().all(|n| same_at(spec, old, n))
}

fn validate_alone(spec: &Value, old: &Value) -> Errors {
    told_at_spec(spec, |spec| validate(spec, old))
}

fn told_at_spec(spec: &Value, rule: impl FnOnce(&Field)) -> Errors {
    let service = json!({ "spec": spec });
    Field::check(&service, |service| rule(&service.at("spec")))
}

fn policy_fits(spec: &Field, old: &Value, cluster: &[&str]) {
    let policy = spec.at("ipFamilyPolicy");
    let count = |name: &str| spec.at(name).len();
    let old_count = |name: &str| old[name].as_array().map_or(0, Vec::len);
    for (name, released, given) in
        [("clusterIPs", "cluster IP", "cluster IPs"), ("ipFamilies", "IP family", "IP families")]
    {
        if policy.is("SingleStack") {
            if count(name) == 2 {
                policy.invalid(format!(
                    "must be 'RequireDualStack' or 'PreferDualStack' when multiple {given} are specified"
                ));
            }
        } else if old.is_object() && count(name) > 0 && count(name) < old_count(name) {
            policy.invalid(format!("must be 'SingleStack' to release the secondary {released}"));
        }
    }
    let (ips, families) = (spec.at("clusterIPs"), count("ipFamilies"));
    for (i, ip) in ips.texts().enumerate().take_while(|(_, ip)| *ip != "None").filter(|(i, _)| *i >= families) {
        if !cluster.contains(&family_of(ip)) {
            ips.index(i)
                .invalid_value(ips.value().clone(), format!("{} is not configured on this cluster", family_of(ip)));
        }
    }
}

fn families_are_served(spec: &Field, families: &[String], cluster: &[&str]) {
    let policy = spec.at("ipFamilyPolicy");
    if policy.is("RequireDualStack") && cluster.len() < 2 {
        policy.invalid("this cluster is not configured for dual-stack services");
    }
    let told = spec.at("ipFamilies");
    for (i, family) in families.iter().enumerate().filter(|(_, family)| !cluster.contains(&family.as_str())) {
        told.index(i).invalid_value(family.as_str(), "not configured on this cluster");
    }
}

/// Cluster IPs, families and policy of one Service fit together.
pub fn validate(spec: &Field, old: &Value) {
    if !needs_cluster_ip(spec.value()) {
        return;
    }
    let (single, ips) = (spec.at("clusterIP"), spec.at("clusterIPs"));
    let (families, policy) = (spec.at("ipFamilies"), spec.at("ipFamilyPolicy"));
    match (single.is_empty(), ips.is_empty()) {
        (false, true) => ips.missing(""),
        (false, false) if !ips.index(0).is(single.text()) => ips.invalid("first value must match `clusterIP`"),
        (true, false) => ips.invalid("must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    for (i, family) in families.each().enumerate() {
        family.one_of(&[V4, V6]);
        if families.texts().take(i).any(|earlier| earlier == family.text()) {
            family.duplicate();
        }
    }
    policy.one_of_if_set(&["PreferDualStack", "RequireDualStack", "SingleStack"]);
    let before = spec.problem_count();
    let kept = texts(&old["clusterIPs"]);
    for (i, ip) in ips.each().enumerate() {
        if i == 0 && ip.is("None") {
            if ips.len() > 1 {
                ips.invalid("'None' must be the first and only value");
            }
            continue;
        }
        legacy_ip(&ip, &kept);
    }
    let all_valid = spec.problem_count() == before;
    if ips.len() > 2 {
        ips.invalid("may only hold up to 2 values");
    }
    if !all_valid {
        return;
    }
    if ips.len() > 1 && is_dual_stack(ips.texts()) != Some(true) {
        ips.invalid("may specify no more than one IP for each IP family");
    }
    if !is_headless(spec.value()) {
        for (i, (ip, family)) in ips.each().zip(families.texts()).enumerate() {
            if [V4, V6].contains(&family) && family_of(ip.text()) != family {
                ip.invalid(format!("expected an {family} value as indicated by `ipFamilies[{i}]`"));
            }
        }
    }
}

/// The first cluster IP and family stay; the second may come and, by policy, go.
pub fn validate_change(spec: &Field, old: &Value) {
    if !needs_cluster_ip(spec.value()) || !needs_cluster_ip(old) {
        return;
    }
    let (new_headless, old_headless) = (is_headless(spec.value()), is_headless(old));
    if !(new_headless && old_headless) {
        list_may_grow(spec, old, "clusterIPs", "primary clusterIP can not be unset", "clusterIP");
    }
    if new_headless == old_headless && !new_headless {
        list_may_grow(spec, old, "ipFamilies", "primary ipFamily can not be unset", "ipFamily");
    }
}

fn list_may_grow(spec: &Field, old: &Value, name: &str, unset: &str, what: &str) {
    const CHANGED: &str = "may not change once set";
    let (list, policy) = (spec.at(name), spec.at("ipFamilyPolicy"));
    let ips = spec.at("clusterIPs");
    let before = texts(&old[name]);
    let now: Vec<&str> = list.texts().collect();
    let first = list.index(0);
    let first_changed = !now.is_empty() && !before.is_empty() && now[0] != before[0];
    if now.len() == before.len() {
        for (i, _) in now.iter().zip(&before).enumerate().filter(|(_, (now, before))| now != before) {
            list.index(if name == "clusterIPs" { i } else { 0 }).invalid_value(list.value().clone(), CHANGED);
        }
        return;
    }
    if now.len() < before.len() && ips.is_empty() {
        first.invalid_value(list.value().clone(), unset);
    }
    if first_changed {
        first.invalid_value(ips.value().clone(), CHANGED);
    }
    if now.len() < before.len() && now.len() == 1 && !policy.is("SingleStack") {
        policy.invalid(format!("must be set to 'SingleStack' when releasing the secondary {what}"));
    }
}

/// When the type changes, what only the old type has goes, unless the client said something new about it.
pub fn drop_what_the_type_lacks(service: &mut Value, old: &Value) {
    let old = &old["spec"];
    if service["spec"]["type"] != "LoadBalancer" {
        prepare::put(service, &["status", "loadBalancer"], Some(&json!({})));
    }
    let Some(spec) = service.child("spec") else { return };
    if needs_cluster_ip(old) && !needs_cluster_ip(spec) {
        if same_at(spec, old, "clusterIP") && same_at(spec, old, "clusterIPs") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for name in ["ipFamilies", "ipFamilyPolicy"] {
            drop_if_same(spec, old, name);
        }
    }
    let node_ports = |spec: &Value| -> HashSet<i64> {
        let ports = spec["ports"].as_array().into_iter().flatten();
        ports.filter_map(|port| port["nodePort"].as_i64()).filter(|n| *n != 0).collect()
    };
    let kept = node_ports(old);
    if needs_node_port(old) && !needs_node_port(spec) && node_ports(spec).is_subset(&kept) {
        spec.each("ports").for_each(|port| port.remove("nodePort"));
    }
    if super::needs_health_check(old) && !super::needs_health_check(spec) {
        drop_if_same(spec, old, "healthCheckNodePort");
    }
    if old["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer" {
        drop_if_same(spec, old, "allocateLoadBalancerNodePorts");
        drop_if_same(spec, old, "loadBalancerClass");
    }
    if super::is_externally_accessible(old) && !super::is_externally_accessible(spec) {
        drop_if_same(spec, old, "externalTrafficPolicy");
    }
}

fn drop_if_same(spec: &mut Value, old: &Value, name: &str) {
    if same_at(spec, old, name) {
        spec.remove(name);
    }
}
