//! The pod specification as a whole, in Kubernetes' order.

use std::collections::HashSet;

use object_model::names;
use serde_json::Value;

use super::container::{self, Pod};
use super::{Options, affinity, each_container, os, pod_resources, security, tolerations, topology_spread, volumes};
use crate::validation::{Field, addresses, resources, selectors};

/// Holds a whole pod specification to the rules. `meta` is the pod's metadata; a template has none.
pub fn pod_spec(spec: &Field, meta: Option<&Value>, options: &Options) {
    spec.at("terminationGracePeriodSeconds").required();
    let volumes = volumes::volumes(&spec.at("volumes"), meta, options);
    let claims = spec.at("resourceClaims");
    resource_claims(&claims, meta);
    let pod = Pod {
        volumes,
        claim_names: claims
            .value()
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|c| c.get("name")?.as_str())
            .filter(|n| !n.is_empty())
            .collect(),
        grace_period: spec.at("terminationGracePeriodSeconds").int(),
        restart_policy: spec.at("restartPolicy").text(),
        host_users: spec.at("hostUsers").flag() != Some(false),
        options,
    };
    container::containers(spec, &pod);
    container::init_containers(spec, &pod);
    super::ephemeral_containers::in_spec(spec, &pod);
    pod_resources::pod_resources(spec, &pod.claim_names, options);
    host_ports_match(spec, options);
    spec.at("restartPolicy").required_one_of(&["Always", "OnFailure", "Never"]);
    spec.at("dnsPolicy").required_one_of(&["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]);
    selectors::labels(&spec.at("nodeSelector"));
    security::pod_security_context(spec, options);
    affinity::affinity(&spec.at("affinity"), options);
    dns_config(spec);
    for gate in spec.at("readinessGates").each() {
        gate.at("conditionType").qualified_name();
    }
    scheduling_gates(&spec.at("schedulingGates"));
    topology_spread::constraints(&spec.at("topologySpreadConstraints"), options);
    os::host_process_pod(spec);
    host_users(spec, options);
    hostname_override(spec);
    spec.at("serviceAccountName").dns_subdomain_if_any();
    spec.at("nodeName").dns_subdomain_if_any();
    if spec.at("activeDeadlineSeconds").is_set() {
        spec.at("activeDeadlineSeconds").in_range(1, i64::from(i32::MAX));
    }
    spec.at("hostname").dns_label_if_any();
    spec.at("subdomain").dns_label_if_any();
    tolerations(&spec.at("tolerations"));
    host_aliases(&spec.at("hostAliases"));
    spec.at("priorityClassName").dns_subdomain_if_any();
    if spec.at("runtimeClassName").is_set() {
        spec.at("runtimeClassName").dns_subdomain();
    }
    if spec.at("preemptionPolicy").is_set() {
        spec.at("preemptionPolicy").required_one_of(&["PreemptLowerPriority", "Never"]);
    }
    resources::overhead(&spec.at("overhead"), options.indivisible_huge_pages);
    os::os(spec);
    files_of_env(spec);
}

fn resource_claims(claims: &Field, meta: Option<&Value>) {
    let is_mirror = meta.is_some_and(|m| m.pointer("/annotations/kubernetes.io~1config.mirror").is_some());
    let mut seen = HashSet::new();
    for claim in claims.each() {
        if is_mirror {
            claims.push(object_model::field::FieldError {
                kind: object_model::field::ErrorKind::Forbidden,
                field: String::new(),
                value: None,
                detail: "static pods do not support resource claims".to_owned(),
            });
            continue;
        }
        let name = claim.at("name");
        if name.required() {
            if seen.contains(&name.text()) {
                name.duplicate();
            } else {
                name.dns_label();
                seen.insert(name.text());
            }
        }
        let (claim_name, template) = (claim.at("resourceClaimName"), claim.at("resourceClaimTemplateName"));
        match (claim_name.is_set(), template.is_set()) {
            (true, true) => claim.invalid_as(
                "PodResourceClaim",
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
            (false, false) => claim.invalid_as(
                "PodResourceClaim",
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => {}
        }
        for reference in [claim_name, template] {
            if reference.is_set() {
                reference.dns_subdomain();
            }
        }
    }
}

fn host_ports_match(spec: &Field, options: &Options) {
    if !spec.at("hostNetwork").is_true() {
        return;
    }
    for container in spec.at("containers").each() {
        for port in container.at("ports").each() {
            let (host, inside) = (port.at("hostPort").number(), port.at("containerPort").number());
            if (options.is_pod || host != 0) && host != inside {
                port.at("hostPort").invalid_value(host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

fn dns_config(spec: &Field) {
    let config = spec.at("dnsConfig");
    let (nameservers, searches) = (config.at("nameservers"), config.at("searches"));
    if spec.at("dnsPolicy").is("None") {
        if !config.is_set() {
            return config.missing("must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if nameservers.is_empty() {
            return nameservers.missing("must provide at least one DNS nameserver when `dnsPolicy` is None");
        }
    }
    if nameservers.len() > 3 {
        nameservers.invalid("must not have more than 3 nameservers");
    }
    for server in nameservers.each() {
        addresses::legacy_ip(&server, &[]);
    }
    if searches.len() > 32 {
        searches.invalid("must not have more than 32 search paths");
    }
    if searches.texts().map(|s| s.len() + 1).sum::<usize>() > 2048 + 1 {
        searches.invalid("must not have more than 2048 characters (including spaces) in the search list");
    }
    for search in searches.each().filter(|search| !search.is(".")) {
        let name = search.text().strip_suffix('.').unwrap_or(search.text());
        for message in names::dns_subdomain_with_underscore(name) {
            search.invalid_value(name, message);
        }
    }
    for option in config.at("options").each() {
        if option.at("name").is_empty() {
            option.missing("must not be empty");
        }
    }
}

fn scheduling_gates(gates: &Field) {
    let mut seen = HashSet::new();
    for gate in gates.each() {
        let name = gate.at("name").text();
        for message in names::qualified_name(name) {
            gate.invalid_value(name, message);
        }
        if seen.contains(&name) {
            gate.duplicate_value(name);
        }
        seen.insert(name);
    }
}

fn host_users(spec: &Field, options: &Options) {
    const DETAIL: &str = "when `hostUsers` is false";
    if spec.at("hostUsers").flag() != Some(false) {
        return;
    }
    if spec.at("hostNetwork").is_true() {
        spec.at("hostNetwork").forbidden(DETAIL);
    }
    for (field, told) in [("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.at(field).is_true() {
            spec.at(told).forbidden(DETAIL);
        }
    }
    if !options.user_namespaces_with_devices {
        each_container(spec, |container| {
            if !container.at("volumeDevices").is_empty() {
                container.at("volumeDevices").forbidden(DETAIL);
            }
        });
    }
}

fn hostname_override(spec: &Field) {
    let hostname = spec.at("hostnameOverride");
    if !hostname.is_set() {
        return;
    }
    if spec.at("setHostnameAsFQDN").is_true() {
        hostname.forbidden("may not be specified when setHostnameAsFQDN is true");
    }
    if spec.at("hostNetwork").is_true() {
        hostname.forbidden("may not be specified when hostNetwork is true");
    }
    if hostname.text().len() > 64 {
        hostname.too_long(64);
    }
    hostname.dns_subdomain();
}

fn host_aliases(aliases: &Field) {
    for alias in aliases.each() {
        addresses::legacy_ip(&alias.at("ip"), &[]);
        for hostname in alias.at("hostnames").each() {
            hostname.dns_subdomain();
        }
    }
}

/// A variable read from a file needs an emptyDir volume that holds it.
fn files_of_env(spec: &Field) {
    each_container(spec, |container| {
        for variable in container.at("env").each() {
            let source = variable.at("valueFrom");
            let file = source.at("fileKeyRef");
            if !file.is_set() {
                continue;
            }
            let volume = file.at("volumeName");
            match spec.at("volumes").each().filter(|v| v.at("name").is(volume.text())).last() {
                None => volume.not_found(),
                Some(v) if !v.at("emptyDir").is_set() => volume.invalid("referenced volume must be of type emptyDir"),
                Some(_) => {}
            }
        }
    });
}
