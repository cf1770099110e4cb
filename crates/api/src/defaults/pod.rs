//! Defaults of pods and of the pod templates in controllers.

use serde_json::{Map, Value, json};

use super::{Defaults, claim_spec, pull_policy, resource_list, resources};
use crate::validation::pod::{CONTAINER_LISTS, aggregate};
use crate::validation::resources::{is_huge_page, is_overcommit_allowed, is_pod_level};

const FILE_MODE: i64 = 0o644;
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// A Pod: what only a running pod needs, then what templates have too.
pub fn pod(pod: &mut Value) {
    let Some(spec) = pod.child("spec") else { return };
    for list in ["containers", "initContainers"] {
        for container in spec.each(list) {
            requests_from_limits(container);
        }
    }
    pod_level_resources(spec);
    spec.default_if_absent("enableServiceLinks", true);
    if spec["hostNetwork"] == true {
        for list in ["containers", "initContainers"] {
            for port in spec.each(list).flat_map(|container| container.each("ports")) {
                let number = port["containerPort"].as_i64().unwrap_or_default();
                if number != 0 {
                    port.default_to("hostPort", number);
                }
            }
        }
    }
    pod_spec(spec);
}

/// The template in `owner` (`template`, or nested deeper by the caller).
pub fn pod_template(owner: &mut Value) {
    if let Some(spec) = owner.child("template").and_then(|template| template.child("spec")) {
        pod_spec(spec);
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else { return };
    if let Some(resources) = container.child("resources") {
        resources.default_if_absent("requests", json!({}));
        for (name, limit) in limits {
            resources["requests"].default_if_absent(&name, limit);
        }
    }
}

/// Requests and limits of the pod as a whole follow from its containers', once any are given.
fn pod_level_resources(spec: &mut Value) {
    let given = |spec: &Value, which: &str| spec["resources"][which].as_object().cloned().unwrap_or_default();
    if !spec["resources"].is_object() {
        return;
    }
    let (mut limits, mut requests) = (given(spec, "limits"), given(spec, "requests"));
    if limits.is_empty() && requests.is_empty() {
        return;
    }
    for (name, sum) in aggregate(spec, "limits") {
        if is_huge_page(&name) && !requests.contains_key(&name) && !limits.contains_key(&name) {
            limits.insert(name, Value::from(sum.to_string()));
        }
    }
    if !limits.is_empty() {
        for (name, sum) in aggregate(spec, "requests") {
            if is_pod_level(&name) && is_overcommit_allowed(&name) && !requests.contains_key(&name) {
                requests.insert(name, Value::from(sum.to_string()));
            }
        }
        for (name, limit) in limits.iter().filter(|(name, _)| is_pod_level(name)) {
            requests.entry(name).or_insert_with(|| limit.clone());
        }
    }
    for (which, list) in [("limits", limits), ("requests", requests)] {
        if !list.is_empty() {
            spec["resources"][which] = Value::Object(list);
        }
    }
}

fn pod_spec(spec: &mut Value) {
    service_account(spec);
    spec.default_to("dnsPolicy", "ClusterFirst");
    spec.default_to("restartPolicy", "Always");
    spec.default_if_absent("securityContext", json!({}));
    spec.default_if_absent("terminationGracePeriodSeconds", 30);
    spec.default_to("schedulerName", "default-scheduler");
    spec.each("volumes").for_each(volume);
    for list in CONTAINER_LISTS {
        spec.each(list).for_each(container);
    }
    resource_list(spec, "overhead");
    resources(spec);
}

/// The account has an old name beside its new one; both always say the same.
pub fn service_account(spec: &mut Value) {
    let name = ["serviceAccountName", "serviceAccount"].iter().filter_map(|name| spec[*name].as_str());
    if let Some(name) = name.into_iter().find(|name| !name.is_empty()).map(str::to_owned) {
        spec["serviceAccountName"] = Value::from(name.as_str());
        spec["serviceAccount"] = Value::from(name);
    }
}

fn container(container: &mut Value) {
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    container.default_to("imagePullPolicy", policy);
    container.default_to("terminationMessagePath", "/dev/termination-log");
    container.default_to("terminationMessagePolicy", "File");
    container.each("ports").for_each(|port| port.default_to("protocol", "TCP"));
    for source in container.each("env").filter_map(|variable| variable.child("valueFrom")) {
        field_ref(source);
        if let Some(file) = source.child("fileKeyRef") {
            file.default_if_absent("optional", false);
        }
    }
    resources(container);
    for probe in PROBES {
        if let Some(probe) = container.child(probe) {
            for (name, value) in
                [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
            {
                probe.default_to(name, value);
            }
            http_get(probe);
            if let Some(grpc) = probe.child("grpc") {
                grpc.default_if_absent("service", "");
            }
        }
    }
    if let Some(lifecycle) = container.child("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = lifecycle.child(hook) {
                http_get(hook);
            }
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(action) = handler.child("httpGet") {
        action.default_to("path", "/");
        action.default_to("scheme", "HTTP");
    }
}

fn field_ref(owner: &mut Value) {
    if let Some(selector) = owner.child("fieldRef") {
        selector.default_to("apiVersion", "v1");
    }
}

fn volume(volume: &mut Value) {
    let sources =
        volume.as_object().map_or(0, |fields| fields.iter().filter(|(k, v)| *k != "name" && !v.is_null()).count());
    if sources == 0 && volume.is_object() {
        volume["emptyDir"] = Value::Object(Map::new());
    }
    if let Some(image) = volume.child("image") {
        let policy = pull_policy(image["reference"].as_str().unwrap_or_default());
        image.default_to("pullPolicy", policy);
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.child(kind) {
            source.default_if_absent("defaultMode", FILE_MODE);
        }
    }
    if let Some(files) = volume.child("downwardAPI") {
        files.each("items").for_each(field_ref);
    }
    if let Some(projected) = volume.child("projected") {
        for source in projected.each("sources") {
            if let Some(files) = source.child("downwardAPI") {
                files.each("items").for_each(field_ref);
            }
            if let Some(token) = source.child("serviceAccountToken") {
                token.default_if_absent("expirationSeconds", 3600);
            }
        }
    }
    if let Some(spec) = volume
        .child("ephemeral")
        .and_then(|source| source.child("volumeClaimTemplate"))
        .and_then(|template| template.child("spec"))
    {
        claim_spec(spec);
    }
    declared(volume);
}

/// Defaults of volume sources that pods and persistent volumes share.
pub fn declared(volume: &mut Value) {
    if let Some(host_path) = volume.child("hostPath") {
        host_path.default_if_absent("type", "");
    }
    if let Some(iscsi) = volume.child("iscsi") {
        iscsi.default_to("iscsiInterface", "default");
    }
    if let Some(rbd) = volume.child("rbd") {
        for (name, value) in [("pool", "rbd"), ("user", "admin"), ("keyring", "/etc/ceph/keyring")] {
            rbd.default_to(name, value);
        }
    }
    if let Some(disk) = volume.child("azureDisk") {
        for (name, value) in [("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("kind", "Shared")] {
            disk.default_if_absent(name, value);
        }
        disk.default_if_absent("readOnly", false);
    }
    if let Some(scale_io) = volume.child("scaleIO") {
        scale_io.default_to("storageMode", "ThinProvisioned");
        scale_io.default_to("fsType", "xfs");
    }
}
