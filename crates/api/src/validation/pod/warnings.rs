//! What is valid in a pod or template but probably not meant.

mod paths;
mod ports;

use std::collections::HashSet;

use object_model::names;
use serde_json::Value;

use super::annotations::APP_ARMOR;
use super::{CONTAINER_LISTS, app_armor_profile_of_annotation};
use crate::kinds::core::persistent_volume_claim;
use crate::validation::{addresses, quantity};
use crate::warnings::Warnings;

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    ("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
];

const DEPRECATED_NODE_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

const DEPRECATED_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// What a node label should be replaced by, if it is an old one.
pub fn deprecated_node_label(key: &str) -> Option<&'static str> {
    DEPRECATED_NODE_LABELS.iter().find(|(label, _)| *label == key).map(|(_, message)| *message)
}

/// A name that is no DNS label makes a surprising hostname.
pub fn hostname_warning(used_in: &str, meta: &Value) -> Vec<String> {
    let wrong = names::dns_label(text(&meta["name"]));
    if wrong.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        wrong.join(" ")
    )]
}

pub fn pod_warnings(pod: &Value) -> Vec<String> {
    warnings("", &pod["metadata"], &pod["spec"])
}

/// The same for a template at this path.
pub fn template_warnings(path: &str, template: &Value) -> Vec<String> {
    warnings(&format!("{path}."), &template["metadata"], &template["spec"])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

/// `at` is the path of the template with a dot, or empty for a Pod.
fn warnings(at: &str, meta: &Value, spec: &Value) -> Vec<String> {
    let mut all = Warnings::default();
    let annotations = &meta["annotations"];
    for (key, _) in spec["nodeSelector"].as_object().into_iter().flatten() {
        all.extend(deprecated_node_label(key).map(|message| format!("{at}spec.nodeSelector[{key}]: {message}")));
    }
    node_affinity(at, &spec["affinity"]["nodeAffinity"], &mut all);
    for (i, constraint) in items(&spec["topologySpreadConstraints"]) {
        let (at, key) = (format!("{at}spec.topologySpreadConstraints[{i}]"), text(&constraint["topologyKey"]));
        all.extend(deprecated_node_label(key).map(|message| format!("{at}.topologyKey: {key} is {message}")));
        if constraint["labelSelector"].is_null() {
            all.push(format!("{at}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if annotations.get(key).is_some() {
            all.push(format!("{at}metadata.annotations[{key}]: {message}"));
        }
    }
    volumes(at, &spec["volumes"], &mut all);
    duplicates(&format!("{at}spec.hostAliases"), &spec["hostAliases"], "ip", &mut all);
    duplicates(&format!("{at}spec.imagePullSecrets"), &spec["imagePullSecrets"], "name", &mut all);
    for (i, _) in items(&spec["imagePullSecrets"]).filter(|(_, secret)| text(&secret["name"]).is_empty()) {
        all.push(format!("{at}spec.imagePullSecrets[{i}].name: invalid empty name \"\""));
    }
    fractional_bytes(&format!("{at}spec.overhead"), &spec["overhead"], &mut all);
    let seccomp_key = "seccomp.security.alpha.kubernetes.io/pod";
    if spec["securityContext"]["seccompProfile"].is_null() && annotations.get(seccomp_key).is_some() {
        all.push(seccomp_annotation(at, seccomp_key));
    }
    for (path, container) in containers(at, spec) {
        container_warnings(at, &path, container, annotations, spec, &mut all);
    }
    ports::meeting(&containers(at, spec), &mut all);
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        all.push(format!(
            "{at}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    pod_affinity(at, &spec["affinity"], &mut all);
    for (i, server) in items(&spec["dnsConfig"]["nameservers"]) {
        all.extend(addresses::ip_warning(format_args!("{at}spec.dnsConfig.nameservers[{i}]"), text(server)));
    }
    for (i, alias) in items(&spec["hostAliases"]) {
        all.extend(addresses::ip_warning(format_args!("{at}spec.hostAliases[{i}].ip"), text(&alias["ip"])));
    }
    all.into_whole()
}

fn containers<'v>(at: &str, spec: &'v Value) -> Vec<(String, &'v Value)> {
    let list = |list: &'static str| items(&spec[list]).map(move |(i, c)| (format!("{at}spec.{list}[{i}]"), c));
    CONTAINER_LISTS.into_iter().flat_map(list).collect()
}

fn node_affinity(at: &str, affinity: &Value, all: &mut Warnings) {
    let at = format!("{at}spec.affinity.nodeAffinity");
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in items(&affinity[required]["nodeSelectorTerms"]) {
        all.extend(node_selector_term_warnings(&format!("{at}.{required}.nodeSelectorTerms[{i}]"), term, false));
    }
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    for (i, term) in items(&affinity[preferred]) {
        all.extend(node_selector_term_warnings(
            &format!("{at}.{preferred}[{i}].preference"),
            &term["preference"],
            true,
        ));
    }
}

/// Old labels, and (where they are not refused) values that no label can have.
pub fn node_selector_term_warnings(path: &str, term: &Value, check_values: bool) -> Vec<String> {
    let mut all = Vec::new();
    for (i, expression) in items(&term["matchExpressions"]) {
        let (at, key) = (format!("{path}.matchExpressions[{i}]"), text(&expression["key"]));
        all.extend(deprecated_node_label(key).map(|message| format!("{at}.key: {key} is {message}")));
        for (j, value) in items(&expression["values"]).filter(|_| check_values) {
            let wrong = names::label_value(text(value));
            all.extend(wrong.iter().map(|m| format!("{at}.values[{j}]: {} is invalid, {m}", text(value))));
        }
    }
    all
}

fn pod_affinity(at: &str, affinity: &Value, all: &mut Warnings) {
    let null = |path: String| format!("{path}labelSelector: a null labelSelector results in matching no pod");
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (list, inner) in [
            ("requiredDuringSchedulingIgnoredDuringExecution", None),
            ("preferredDuringSchedulingIgnoredDuringExecution", Some("podAffinityTerm")),
        ] {
            for (i, term) in items(&affinity[kind][list]) {
                let at = format!("{at}spec.affinity.{kind}.{list}[{i}].");
                match inner {
                    None if term["labelSelector"].is_null() => all.push(null(at)),
                    Some(inner) if term[inner]["labelSelector"].is_null() => all.push(null(format!("{at}{inner}."))),
                    _ => {}
                }
            }
        }
    }
}

fn duplicates(at: &str, list: &Value, field: &str, all: &mut Warnings) {
    let mut seen = HashSet::new();
    for (i, item) in items(list) {
        let value = text(&item[field]);
        if seen.contains(&value) {
            all.push(format!("{at}[{i}].{field}: duplicate {field} {value:?}"));
        }
        seen.insert(value);
    }
}

fn fractional_bytes(at: &str, list: &Value, all: &mut Warnings) {
    for name in ["memory", "ephemeral-storage"] {
        let amount = quantity(&list[name]);
        if amount.milli_value() % 1000 != 0 {
            all.push(format!("{at}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"));
        }
    }
}

fn seccomp_annotation(at: &str, key: &str) -> String {
    format!("{at}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead")
}

fn container_warnings(at: &str, path: &str, container: &Value, annotations: &Value, spec: &Value, all: &mut Warnings) {
    let (name, context) = (text(&container["name"]), &container["securityContext"]);
    let key = format!("container.seccomp.security.alpha.kubernetes.io/{name}");
    if context["seccompProfile"].is_null() && annotations.get(&key).is_some() {
        all.push(seccomp_annotation(at, &key));
    }
    let key = format!("{APP_ARMOR}{name}");
    if let Some(annotation) = annotations[key.as_str()].as_str().filter(|_| context["appArmorProfile"].is_null()) {
        // A Pod's annotation becomes a field and is told of only if that field says something new.
        let of_pod = &spec["securityContext"]["appArmorProfile"];
        if app_armor_profile_of_annotation(annotation).as_ref() != Some(of_pod) {
            all.push(format!(
                "{at}metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
            ));
        }
    }
    for name in ["memory", "ephemeral-storage"] {
        for which in ["limits", "requests"] {
            let amount = quantity(&container["resources"][which][name]);
            if amount.milli_value() % 1000 != 0 {
                all.push(format!(
                    "{path}.resources.{which}[{name}]: fractional byte value \"{amount}\" is invalid, must be an integer"
                ));
            }
        }
    }
    let mut seen = HashSet::new();
    for (i, variable) in items(&container["env"]) {
        let (name, value) = (text(&variable["name"]), text(&variable["value"]));
        let reference = format!("$({name})");
        if seen.contains(&name)
            && (!variable["valueFrom"].is_null() || value == reference || !value.contains(&reference))
        {
            all.push(format!(
                "{path}.env[{i}]: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
        seen.insert(name);
    }
}

fn volumes(at: &str, volumes: &Value, all: &mut Warnings) {
    for (i, volume) in items(volumes) {
        let at = format!("{at}spec.volumes[{i}]");
        for (field, told, message) in DEPRECATED_VOLUMES {
            if field == "cephfs" {
                let template = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
                let path = format!("{at}.ephemeral.volumeClaimTemplate.spec");
                all.extend(persistent_volume_claim::spec_warnings(&path, template));
            }
            if volume[field].is_object() {
                all.push(format!("{at}.{told}: {message}"));
            }
        }
    }
    for (_, volume) in items(volumes) {
        paths::overlapping(volume, all);
    }
}

#[cfg(test)]
mod tests;
