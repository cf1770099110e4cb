//! Pod: containers that run together on a node.

use serde_json::{Value, json};

use crate::defaults::{self, Defaults};
use crate::kinds::{Context, Create, Reset, Selectable, Strategy, Update, prepare};
use crate::validation::{Field, addresses, pod, quantity, same};

pub static STRATEGY: Strategy = Strategy {
    returns_deleted: true,
    defaults: |pod| {
        defaults::pod(pod);
        addresses_of(pod);
    },
    create: Create {
        warnings: |pod| {
            let mut warnings = pod::hostname_warning("the Pod's hostname", &pod["metadata"]);
            warnings.extend(pod::pod_warnings(pod));
            warnings
        },
        ..Create::new(prepare_create, pod::pod_object::create)
    },
    update: Update::of_spec(
        |pod, old, _| {
            prepare::keep(pod, old, "status");
            prepare_spec(pod, old);
        },
        pod::update::update,
    ),
    subresources: &[
        (
            "status",
            Update {
                warnings: |pod, _| status_warnings(pod),
                reset: Reset::Fields(&[
                    &["spec"],
                    &["metadata", "deletionTimestamp"],
                    &["metadata", "ownerReferences"],
                ]),
                ..Update::new(prepare_status, pod::status::update)
            },
        ),
        (
            "ephemeralcontainers",
            Update {
                reset: Reset::AllBut(&[&["spec", "ephemeralContainers"]]),
                ..Update::new(prepare_ephemeral_containers, pod::ephemeral_containers::update)
            },
        ),
        (
            "resize",
            Update {
                reset: Reset::AllBut(&[
                    &["spec", "containers", "*", "resources"],
                    &["spec", "containers", "*", "resizePolicy"],
                    &["spec", "initContainers", "*", "resources"],
                    &["spec", "initContainers", "*", "resizePolicy"],
                ]),
                ..Update::new(prepare_resize, pod::resize::update)
            },
        ),
    ],
    fields: FIELDS,
    grace_period: Some(grace_period),
    ..Strategy::new("", "Pod")
};

const FIELDS: &[Selectable] = &[
    Selectable { name: "spec.nodeName", read: |pod| text(&pod["spec"]["nodeName"]) },
    Selectable { name: "spec.restartPolicy", read: |pod| text(&pod["spec"]["restartPolicy"]) },
    Selectable { name: "spec.schedulerName", read: |pod| text(&pod["spec"]["schedulerName"]) },
    Selectable { name: "spec.serviceAccountName", read: |pod| text(&pod["spec"]["serviceAccountName"]) },
    Selectable { name: "spec.hostNetwork", read: |pod| (pod["spec"]["hostNetwork"] == true).to_string() },
    Selectable { name: "status.phase", read: |pod| text(&pod["status"]["phase"]) },
    Selectable { name: "status.podIP", read: |pod| text(&pod["status"]["podIPs"][0]["ip"]) },
    Selectable { name: "status.nominatedNodeName", read: |pod| text(&pod["status"]["nominatedNodeName"]) },
];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The pod's address has an old field for one beside the list; the old one decides if they differ.
fn addresses_of(pod: &mut Value) {
    let Some(status) = pod.child("status") else { return };
    let single = status["podIP"].as_str().filter(|ip| !ip.is_empty()).map(str::to_owned);
    match (single, status["podIPs"][0]["ip"].as_str().map(str::to_owned)) {
        (Some(single), first) if first.as_deref() != Some(&single) => status["podIPs"] = json!([{ "ip": single }]),
        (None, Some(first)) => status["podIP"] = json!(first),
        _ => {}
    }
}

fn prepare_create(pod: &mut Value, _: &Context) {
    prepare::first_generation(pod);
    let status = json!({"phase": "Pending", "qosClass": quality_of_service(&pod["spec"])});
    prepare::put(pod, &["status"], Some(&status));
    pod::drop_disabled(pod, &[], None);
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        let condition = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": null,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }]);
        prepare::put(pod, &["status", "conditions"], Some(&condition));
    }
    merge_label_keys(pod);
    app_armor_from_annotations(pod);
    if let Some(spec) = pod.child("spec") {
        defaults::service_account(spec);
    }
}

/// What every change of the specification has in common.
fn prepare_spec(pod: &mut Value, old: &Value) {
    pod::drop_disabled(pod, &[], Some(old));
    if let Some(spec) = pod.child("spec") {
        defaults::service_account(spec);
    }
    prepare::next_generation(pod, old, &["spec"]);
}

fn prepare_status(pod: &mut Value, old: &Value, _: &Context) {
    prepare::keep(pod, old, "spec");
    prepare::put(pod, &["metadata", "deletionTimestamp"], None);
    prepare::put(pod, &["metadata", "ownerReferences"], old["metadata"].get("ownerReferences"));
    pod.default_if_absent("status", json!({}));
    let Some(status) = pod.child("status") else { return };
    for name in ["qosClass", "observedGeneration"] {
        if let Some(before) = old["status"].get(name) {
            status.default_to(name, before.clone());
        }
    }
    let mut before: Vec<&Value> = old["status"]["conditions"].as_array().into_iter().flatten().collect();
    for condition in status.each("conditions") {
        let Some(i) = before.iter().position(|b| b["type"] == condition["type"]) else { continue };
        if let Some(generation) = before.remove(i).get("observedGeneration") {
            condition.default_to("observedGeneration", generation.clone());
        }
    }
    pod::drop_disabled_status(status, old);
}

fn prepare_ephemeral_containers(pod: &mut Value, old: &Value, _: &Context) {
    let containers = pod["spec"].get("ephemeralContainers").cloned();
    prepare::keep(pod, old, "spec");
    prepare::keep(pod, old, "status");
    prepare::keep_metadata_for_status(pod, old);
    prepare::put(pod, &["spec", "ephemeralContainers"], containers.as_ref());
    prepare_spec(pod, old);
}

/// Only resources and resize policies are taken, as long as the containers are the same.
fn prepare_resize(pod: &mut Value, old: &Value, _: &Context) {
    let names = |pod: &Value, list: &str| {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.map(|c| c["name"].clone()).collect::<Vec<_>>()
    };
    let lists = ["containers", "initContainers"];
    if lists.iter().any(|list| names(pod, list).len() != names(old, list).len()) {
        return;
    }
    let mut spec = old["spec"].clone();
    prepare::put(&mut spec, &["resources"], pod["spec"].get("resources"));
    for list in lists {
        if names(pod, list) != names(old, list) {
            prepare::put(&mut spec, &[list], pod["spec"].get(list));
            continue;
        }
        let new = pod["spec"][list].as_array().cloned().unwrap_or_default();
        for (container, new) in spec.each(list).zip(&new) {
            prepare::keep(container, new, "resources");
            prepare::keep(container, new, "resizePolicy");
        }
    }
    prepare::put(pod, &["spec"], Some(&spec));
    prepare::keep(pod, old, "status");
    prepare::keep_metadata_for_status(pod, old);
    prepare_spec(pod, old);
}

/// The values of the pod's own labels join the selectors that name the keys.
fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    let merge = |owner: &mut Value| {
        for (keys, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
            let keys = owner[keys].as_array().cloned().unwrap_or_default();
            let Some(selector) = owner.child("labelSelector") else { return };
            for key in keys {
                let Some(value) = key.as_str().and_then(|key| labels.get(key)) else { continue };
                selector.default_if_absent("matchExpressions", json!([]));
                if let Some(expressions) = selector["matchExpressions"].as_array_mut() {
                    expressions.push(json!({"key": key, "operator": operator, "values": [value]}));
                }
            }
        }
    };
    let Some(spec) = pod.child("spec") else { return };
    if let Some(affinity) = spec.child("affinity") {
        for kind in ["podAffinity", "podAntiAffinity"] {
            let Some(kind) = affinity.child(kind) else { continue };
            kind.each("requiredDuringSchedulingIgnoredDuringExecution").for_each(&merge);
            kind.each("preferredDuringSchedulingIgnoredDuringExecution")
                .filter_map(|weighted| weighted.child("podAffinityTerm"))
                .for_each(&merge);
        }
    }
    spec.each("topologySpreadConstraints").for_each(merge);
}

/// Old clients say a container's AppArmor profile by annotation: it becomes the field.
fn app_armor_from_annotations(pod: &mut Value) {
    if pod["spec"]["os"]["name"] == "windows" {
        return;
    }
    let annotations = pod["metadata"]["annotations"].clone();
    let of_pod = pod["spec"]["securityContext"]["appArmorProfile"].clone();
    let Some(spec) = pod.child("spec") else { return };
    for list in pod::CONTAINER_LISTS {
        for container in spec.each(list) {
            let key = format!("{}{}", pod::APP_ARMOR_ANNOTATION, container["name"].as_str().unwrap_or_default());
            let annotation = annotations[key.as_str()].as_str();
            if let Some(profile) = annotation.and_then(pod::app_armor_profile_of_annotation)
                && container["securityContext"]["appArmorProfile"].is_null()
                && !same(&profile, &of_pod)
            {
                container.default_if_absent("securityContext", json!({}));
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}

/// Guaranteed if every container's limits equal its requests, BestEffort if there are none, else Burstable.
pub fn quality_of_service(spec: &Value) -> &'static str {
    let containers =
        || ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let whole = &spec["resources"];
    let owners: Vec<&Value> =
        if whole.is_object() { vec![whole] } else { containers().map(|container| &container["resources"]).collect() };
    let positive = |list: &Value, name: &str| quantity(&list[name]).sign() > 0;
    let (mut any, mut guaranteed) = (false, true);
    for owner in owners {
        let (requests, limits) = (&owner["requests"], &owner["limits"]);
        for name in ["cpu", "memory"] {
            any |= positive(requests, name) || positive(limits, name);
            guaranteed &= positive(limits, name) && quantity(&requests[name]) == quantity(&limits[name]);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// As long as asked, or as the pod says; at once if nothing runs.
fn grace_period(pod: &Value, asked: Option<i64>) -> i64 {
    let period = asked.or_else(|| pod["spec"]["terminationGracePeriodSeconds"].as_i64()).unwrap_or_default();
    let unbound = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let ended = pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded";
    match period {
        _ if unbound || ended => 0,
        period if period < 0 => 1,
        period => period,
    }
}

fn status_warnings(pod: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for list in ["podIPs", "hostIPs"] {
        for (i, entry) in pod["status"][list].as_array().into_iter().flatten().enumerate() {
            let ip = entry["ip"].as_str().unwrap_or_default();
            warnings.extend(addresses::ip_warning(format_args!("status.{list}[{i}].ip"), ip));
        }
    }
    warnings
}

/// A Binding of a pod to a node (the `binding` subresource).
pub fn validate_binding(binding: &Field) {
    let target = binding.at("target");
    let kind = target.at("kind");
    if !kind.is_empty() && !kind.is("Node") {
        kind.not_supported(&["Node", "<empty>"]);
    }
    target.at("name").required();
}
