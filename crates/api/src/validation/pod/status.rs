//! The status of a Pod, written by its node.

use std::collections::HashSet;

use serde_json::Value;

use super::{Options, annotations};
use crate::validation::{Field, addresses, meta};

const STATUS_LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];

pub fn update(pod: &Field, old: &Value) {
    let null = Value::Null;
    let (metadata, spec, status) = (pod.at("metadata"), pod.at("spec"), pod.at("status"));
    let old_meta = old.get("metadata").unwrap_or(&null);
    let old_status = old.get("status").unwrap_or(&null);
    let annotations = metadata.at("annotations");
    meta::builtin_meta_update(&metadata, old_meta);
    annotations::pod_annotation_updates(&annotations, old_meta.get("annotations").unwrap_or(&null));
    annotations::pod_annotations(&annotations, &spec, Options::of_pod(Some(old)).invalid_deletion_cost);
    for condition in status.at("conditions").each() {
        observed_generation(&condition);
        if !condition.at("type").is_one_of(&["PodScheduled", "Ready", "Initialized"]) {
            condition.at("Type").with(condition.at("type").value()).qualified_name();
        }
    }
    nominated_node(&status, old, old_status);
    observed_generation(&status);
    let class = status.at("qosClass").with_text();
    class.immutable(&Value::from(old_status.get("qosClass").and_then(Value::as_str).unwrap_or_default()));
    for (list, containers) in STATUS_LISTS {
        no_resurrection(&status.at(list), old_status.get(list), old, containers);
    }
    resource_claim_statuses(&status.at("resourceClaimStatuses"), &spec);
    extended_resource_claim(&status.at("extendedResourceClaimStatus"), &spec);
    addresses_of(&status, "podIPs", old_status);
    host_ip_is_first(&status);
    addresses_of(&status, "hostIPs", old_status);
    let windows = spec.at("os").at("name").is("windows");
    for (list, _) in STATUS_LISTS {
        users(&status.at(list), windows);
    }
    for (list, containers) in STATUS_LISTS {
        allocated_resources(&status.at(list), &spec.at(containers), containers == "ephemeralContainers");
    }
}

fn observed_generation(owner: &Field) {
    if owner.at("observedGeneration").number() < 0 {
        owner.at("observedGeneration").invalid("must be a non-negative integer");
    }
}

fn nominated_node(status: &Field, old: &Value, old_status: &Value) {
    let node = status.at("nominatedNodeName");
    let before = old_status.get("nominatedNodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() || node.is(before) {
        return;
    }
    node.dns_subdomain();
    if old.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|name| !name.is_empty()) {
        node.forbidden("may not be set on pods that are already bound to a node");
    }
}

/// A container that has ended stays ended unless its pod restarts it.
fn no_resurrection(statuses: &Field, old: Option<&Value>, pod: &Value, containers: &str) {
    let null = Value::Null;
    let spec = pod.get("spec").unwrap_or(&null);
    if containers != "ephemeralContainers" && any_rule_restarts_all(spec) {
        return;
    }
    for (i, before) in old.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let Some(ended) = before.pointer("/state/terminated").filter(|t| !t.is_null()) else { continue };
        let name = before.get("name").and_then(Value::as_str).unwrap_or_default();
        let Some(now) = statuses.each().find(|s| s.at("name").is(name)) else { continue };
        if now.at("state").at("terminated").is_set() {
            continue;
        }
        let container = spec.get(containers).and_then(Value::as_array).into_iter().flatten();
        let mut container = container.filter(|c| c.get("name").and_then(Value::as_str) == Some(name));
        let code = ended.get("exitCode").and_then(Value::as_i64).unwrap_or_default();
        let restarts = containers != "ephemeralContainers" && container.next().is_some_and(|c| restarts(c, spec, code));
        if !restarts {
            statuses.index(i).at("state").forbidden("may not be transitioned to non-terminated state");
        }
    }
}

fn any_rule_restarts_all(spec: &Value) -> bool {
    ["initContainers", "containers"].iter().any(|list| {
        spec.get(list).and_then(Value::as_array).into_iter().flatten().any(|container| {
            let rules = container.get("restartPolicyRules").and_then(Value::as_array).into_iter().flatten();
            rules.into_iter().any(|r| r.get("action").and_then(Value::as_str) == Some("RestartAllContainers"))
        })
    })
}

/// Does a container that ended with this code start again?
fn restarts(container: &Value, spec: &Value, code: i64) -> bool {
    for rule in container.get("restartPolicyRules").and_then(Value::as_array).into_iter().flatten() {
        let codes = rule.get("exitCodes");
        let values = codes.and_then(|c| c.get("values")?.as_array()).into_iter().flatten();
        let listed = values.into_iter().any(|v| v.as_i64() == Some(code));
        let applies = match codes.and_then(|c| c.get("operator")?.as_str()) {
            Some("In") => listed,
            Some("NotIn") => !listed,
            _ => false,
        };
        if applies && container.get("restartPolicy").is_some() {
            return true;
        }
    }
    let policy = container.get("restartPolicy").or(spec.get("restartPolicy")).and_then(Value::as_str);
    match policy {
        Some("OnFailure") => code != 0,
        Some("Never") => false,
        _ => true,
    }
}

fn resource_claim_statuses(statuses: &Field, spec: &Field) {
    let mut seen = HashSet::new();
    for status in statuses.each() {
        let name = status.at("name");
        if !spec.at("resourceClaims").each().any(|c| c.at("name").is(name.text())) {
            name.invalid("must match the name of an entry in `spec.resourceClaims`");
        }
        if seen.contains(&name.text()) {
            name.duplicate();
        }
        seen.insert(name.text());
        if status.at("resourceClaimName").is_set() {
            status.at("resourceClaimName").dns_subdomain();
        }
    }
}

fn extended_resource_claim(status: &Field, spec: &Field) {
    if !status.is_set() {
        return;
    }
    let mappings = status.at("requestMappings");
    if mappings.is_empty() {
        mappings.missing("at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for mapping in mappings.each() {
        let (container, resource, request) =
            (mapping.at("containerName"), mapping.at("resourceName"), mapping.at("requestName"));
        let requests = ["containers", "initContainers"].iter().find_map(|list| {
            let all = spec.value().get(list).and_then(Value::as_array)?;
            let found = all.iter().find(|c| c.get("name").and_then(Value::as_str) == Some(container.text()))?;
            Some(found.pointer("/resources/requests").and_then(|r| r.get(resource.text())).is_some())
        });
        match requests {
            None => {
                container.invalid("must match the name of an entry in spec.initContainers.name or spec.containers.name")
            }
            Some(false) => resource.invalid(
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or \
                 spec.containers.resources.requests",
            ),
            Some(true) => {}
        }
        status.at("requestName").with(request.value()).dns_label();
        let this = (container.text(), resource.text(), request.text());
        if seen.contains(&this) {
            [container, resource, request].iter().for_each(Field::duplicate);
        }
        seen.insert(this);
    }
    if status.at("resourceClaimName").required() {
        status.at("resourceClaimName").dns_subdomain();
    }
}

/// At most one valid address of each family; what the node once wrote may stay.
fn addresses_of(status: &Field, name: &str, old_status: &Value) {
    let list = status.at(name);
    let old = old_status.get(name).and_then(Value::as_array).into_iter().flatten();
    let kept: Vec<&str> = old.filter_map(|entry| entry.get("ip")?.as_str()).collect();
    for entry in list.each() {
        addresses::legacy_ip(&entry.with(entry.at("ip").value()), &kept);
    }
    if list.len() > 1 {
        let ips: Vec<&str> = list.each().map(|entry| entry.at("ip").text()).collect();
        if addresses::is_dual_stack(ips.iter().copied()) != Some(true) || ips.len() > 2 {
            list.invalid("may specify no more than one IP for each IP family");
        }
    }
}

fn host_ip_is_first(status: &Field) {
    let list = status.at("hostIPs");
    let first = list.index(0);
    if !list.is_empty() && !first.at("ip").is(status.at("hostIP").text()) {
        first.at("ip").with_text().invalid("must be equal to `hostIP`");
    }
}

fn users(statuses: &Field, windows: bool) {
    for status in statuses.each() {
        let user = status.at("user");
        let linux = user.at("linux");
        if !linux.is_set() {
            continue;
        }
        if windows {
            linux.forbidden("cannot be set for a windows pod");
            continue;
        }
        linux.at("uid").id_if_set();
        linux.at("gid").id_if_set();
        for group in linux.at("supplementalGroups").each() {
            group.id_if_set();
        }
    }
}

fn allocated_resources(statuses: &Field, containers: &Field, forbidden: bool) {
    for status in statuses.each() {
        let allocated = status.at("allocatedResourcesStatus");
        if forbidden {
            if !allocated.is_empty() {
                allocated.forbidden("must not be specified in container status");
            }
            continue;
        }
        let container = containers.each().find(|c| c.at("name").is(status.at("name").text()));
        for entry in allocated.each() {
            let name = entry.at("name");
            if let Some(container) = &container {
                let resources = container.at("resources");
                let claim = name.text().strip_prefix("claim:");
                let found = match claim {
                    Some(claim) => resources.at("claims").each().any(|c| match c.at("request").text() {
                        "" => c.at("name").is(claim),
                        request => claim == format!("{}/{request}", c.at("name").text()),
                    }),
                    None => resources.at("requests").key(name.text()).is_set(),
                };
                if !found {
                    name.invalid(match claim {
                        Some(_) => {
                            "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' \
                             or 'claim:<claimName>' if request is empty"
                        }
                        None => "must match one of the container's resource requests",
                    });
                }
            }
            health(&entry.at("resources"));
        }
    }
}

fn health(resources: &Field) {
    let mut seen = HashSet::new();
    for resource in resources.each() {
        resource.at("health").one_of(&["Healthy", "Unhealthy", "Unknown"]);
        let message = resource.at("message");
        if message.is_set() && message.is_empty() {
            message.missing("must be non-empty if specified");
        } else if message.text().len() > 1024 {
            message.too_long(1024);
        }
        let id = resource.at("resourceID");
        if seen.contains(&id.text()) {
            id.duplicate();
        }
        seen.insert(id.text());
    }
}
