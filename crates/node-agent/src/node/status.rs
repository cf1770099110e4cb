//! What a node's status is, and what of it has to be written.

use std::collections::BTreeMap;

use container_runtime::services::Image;
use k8s_openapi::{
    api::core::v1::{
        ContainerImage, DaemonEndpoint, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeFeatures,
        NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus, NodeSystemInfo,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use serde_json::{Map, Value, json};

use super::facts::Facts;
use crate::{Settings, eviction::Pressure};

/// The version of Kubernetes that this agent is like, with its own as the server gives it.
const VERSION: &str = concat!("v1.36.4+ferry", env!("CARGO_PKG_VERSION"));
/// What it can do that others may not.
const DECLARED_FEATURES: &[&str] = &["ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits"];
/// The largest are told.
const MOST_IMAGES: usize = 50;
const MOST_NAMES: usize = 5;

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub fn labels(settings: &Settings) -> BTreeMap<String, String> {
    let mut labels = settings.labels.clone();
    for (key, value) in
        [("hostname", settings.node_name.as_str()), ("os", std::env::consts::OS), ("arch", architecture())]
    {
        labels.insert(format!("kubernetes.io/{key}"), value.to_owned());
        if key != "hostname" {
            labels.insert(format!("beta.kubernetes.io/{key}"), value.to_owned());
        }
    }
    labels
}

pub async fn status(settings: &Settings, facts: &Facts, pressure: Pressure, before: &NodeStatus) -> NodeStatus {
    let with_pods = |resources: &BTreeMap<String, Quantity>| {
        let mut resources = resources.clone();
        resources.insert("pods".to_owned(), Quantity(settings.max_pods.to_string()));
        resources
    };
    let mut addresses: Vec<NodeAddress> = settings
        .addresses
        .iter()
        .map(|address| NodeAddress { type_: "InternalIP".to_owned(), address: address.to_string() })
        .collect();
    addresses.push(NodeAddress { type_: "Hostname".to_owned(), address: settings.node_name.clone() });
    let runtime = settings.runtime.version().await.ok();
    let runtime = runtime.map(|version| format!("{}://{}", version.runtime_name, version.runtime_version));
    let features = NodeRuntimeHandlerFeatures { recursive_read_only_mounts: Some(true), user_namespaces: Some(false) };
    NodeStatus {
        addresses: Some(addresses),
        capacity: Some(with_pods(&facts.capacity)),
        allocatable: Some(with_pods(&facts.allocatable)),
        conditions: Some(conditions(settings, pressure, before).await),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: i32::from(settings.port) }),
        }),
        declared_features: Some(DECLARED_FEATURES.iter().map(|name| (*name).to_owned()).collect()),
        features: Some(NodeFeatures { supplemental_groups_policy: Some(true) }),
        images: Some(images(settings.images.list_images(None).await.unwrap_or_default())),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: facts.boot_id.clone(),
            container_runtime_version: runtime.unwrap_or_default(),
            kernel_version: facts.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: VERSION.to_owned(),
            machine_id: facts.machine_id.clone(),
            operating_system: std::env::consts::OS.to_owned(),
            os_image: facts.os_image.clone(),
            swap: None,
            system_uuid: facts.system_uuid.clone(),
        }),
        runtime_handlers: Some(vec![NodeRuntimeHandler { name: Some(String::new()), features: Some(features) }]),
        ..NodeStatus::default()
    }
}

fn images(mut images: Vec<Image>) -> Vec<ContainerImage> {
    images.sort_by_key(|image| std::cmp::Reverse(image.size));
    let told = images.into_iter().take(MOST_IMAGES).map(|image| {
        let names: Vec<String> = image.repo_digests.into_iter().chain(image.repo_tags).take(MOST_NAMES).collect();
        ContainerImage { names: Some(names), size_bytes: i64::try_from(image.size).ok() }
    });
    told.collect()
}

/// Why the node is not ready, all reasons at once.
async fn problems(settings: &Settings) -> Vec<String> {
    let mut problems = Vec::new();
    match settings.runtime.status().await {
        Err(error) => problems.push(format!("container runtime status check failed: {error}")),
        Ok(conditions) => {
            for condition in conditions.into_iter().filter(|condition| !condition.status) {
                let what = match condition.r#type.as_str() {
                    "NetworkReady" => "container runtime network not ready",
                    _ => "container runtime not ready",
                };
                let (type_, reason, message) = (condition.r#type, condition.reason, condition.message);
                problems.push(format!("{what}: {type_}=false reason:{reason} message:{message}"));
            }
        }
    }
    // A runtime that knows the network has said so already.
    let is_told = problems.iter().any(|problem| problem.contains("NetworkReady=false"));
    if let (Err(why), false) = (&*settings.network.borrow(), is_told) {
        let reason = "NetworkPluginNotReady";
        problems.push(format!("container runtime network not ready: NetworkReady=false reason:{reason} message:{why}"));
    }
    problems
}

async fn conditions(settings: &Settings, pressure: Pressure, before: &NodeStatus) -> Vec<NodeCondition> {
    let now = settings.clock.time();
    let condition = |type_: &str, holds: bool, reason: &str, message: &str| {
        let status = if holds { "True" } else { "False" };
        let mut same = before.conditions.iter().flatten().filter(|old| old.type_ == type_ && old.status == status);
        let since = same.next().and_then(|old| old.last_transition_time.clone());
        NodeCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: since.or_else(|| Some(now.clone())),
        }
    };
    let pick = |holds: bool, yes: (&'static str, &'static str), no: (&'static str, &'static str)| {
        let (reason, message) = if holds { yes } else { no };
        (holds, reason, message)
    };
    let memory = pick(
        pressure.memory,
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    );
    let disk = pick(
        pressure.disk,
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    );
    let problems = problems(settings).await;
    let all = match problems.as_slice() {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    let ready = match problems.is_empty() {
        true => condition("Ready", true, "KubeletReady", "kubelet is posting ready status"),
        false => condition("Ready", false, "KubeletNotReady", &all),
    };
    vec![
        condition("MemoryPressure", memory.0, memory.1, memory.2),
        condition("DiskPressure", disk.0, disk.1, disk.2),
        // Kubernetes has no limit here unless one is set.
        condition("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ready,
    ]
}

pub fn is_ready(status: &NodeStatus) -> bool {
    status.conditions.iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn fields(status: &NodeStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Whether nothing has changed but the time.
pub fn is_same(before: &NodeStatus, wants: &NodeStatus) -> bool {
    let timeless = |status: &NodeStatus| {
        let own = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"];
        let mut status = status.clone();
        status.volumes_attached = None;
        status.volumes_in_use = None;
        // Others' conditions, such as those of a network plugin, are theirs.
        status.conditions.iter_mut().for_each(|list| list.retain(|condition| own.contains(&condition.type_.as_str())));
        status.conditions.iter_mut().flatten().for_each(|condition| condition.last_heartbeat_time = None);
        fields(&status)
    };
    timeless(before) == timeless(wants)
}

/// What has to be written. Conditions are merged with those of others.
pub fn difference(before: &NodeStatus, wants: &NodeStatus) -> Value {
    let (mut before, wants) = (fields(before), fields(wants));
    let mut change = Map::new();
    for (field, value) in wants {
        if before.remove(&field).as_ref() == Some(&value) {
            continue;
        }
        let value = match (field.as_str(), value) {
            // A list that would be merged otherwise.
            ("addresses", Value::Array(mut list)) => {
                list.insert(0, json!({"$patch": "replace"}));
                Value::Array(list)
            }
            (_, value) => value,
        };
        change.insert(field, value);
    }
    json!({"status": change})
}
