//! What the downward API tells a container of its pod: fields, and resources in units of a divisor.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use object_model::quantity::Quantity;

use super::{
    ConfigError,
    machine::Machine,
    resources::{amount, limits, requests},
};

/// A field that volumes and variables can have.
pub fn field(pod: &Pod, selector: &ObjectFieldSelector) -> Result<String, ConfigError> {
    if !matches!(selector.api_version.as_deref(), None | Some("" | "v1")) {
        let version = selector.api_version.as_deref().unwrap_or_default();
        return Err(ConfigError(format!("unsupported pod version: {version}")));
    }
    let metadata = &pod.metadata;
    let path = selector.field_path.as_str();
    if let Some((path, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        let map = match path {
            "metadata.annotations" => &metadata.annotations,
            "metadata.labels" => &metadata.labels,
            _ => return Err(ConfigError(format!("field label does not support subscript: {}", selector.field_path))),
        };
        return Ok(map.as_ref().and_then(|map| map.get(key)).cloned().unwrap_or_default());
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    match path {
        "metadata.name" => Ok(text(&metadata.name)),
        "metadata.namespace" => Ok(text(&metadata.namespace)),
        "metadata.uid" => Ok(text(&metadata.uid)),
        "metadata.labels" => Ok(lines(metadata.labels.iter().flatten())),
        "metadata.annotations" => Ok(lines(metadata.annotations.iter().flatten())),
        _ => Err(ConfigError(format!("unsupported fieldPath: {path}"))),
    }
}

/// Variables can have more: where the pod is, and its addresses.
pub(super) fn field_for_variable(
    pod: &Pod,
    selector: &ObjectFieldSelector,
    pod_ips: &[IpAddr],
    host_ips: &[IpAddr],
) -> Result<String, ConfigError> {
    let joined = |ips: &[IpAddr]| ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",");
    let first = |ips: &[IpAddr]| ips.first().map(IpAddr::to_string).unwrap_or_default();
    let spec = |of: fn(&k8s_openapi::api::core::v1::PodSpec) -> &Option<String>| {
        pod.spec.as_ref().and_then(|spec| of(spec).clone()).unwrap_or_default()
    };
    Ok(match selector.field_path.as_str() {
        "spec.nodeName" | "spec.host" => spec(|spec| &spec.node_name),
        "spec.serviceAccountName" => spec(|spec| &spec.service_account_name),
        "status.hostIP" => first(host_ips),
        "status.hostIPs" => joined(host_ips),
        "status.podIP" => first(pod_ips),
        "status.podIPs" => joined(pod_ips),
        _ => field(pod, selector)?,
    })
}

/// `key="value"` for each, with Go's escapes.
fn lines<'a>(map: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    map.map(|(key, value)| format!("{key}={}", object_model::go_text::quote(value))).collect::<Vec<_>>().join("\n")
}

/// A request or limit, counted in the divisor and rounded up. A limit that is not there is the pod's, or all of the node.
pub fn resource(
    pod: &Pod,
    own: Option<&Container>,
    selector: &ResourceFieldSelector,
    machine: &Machine,
) -> Result<String, ConfigError> {
    let container = match selector.container_name.as_deref().unwrap_or_default() {
        "" => own.ok_or_else(|| ConfigError("containerName is required".into()))?,
        name => by_name(pod, name).ok_or_else(|| ConfigError(format!("container {name} not found")))?,
    };
    let unsupported = || ConfigError(format!("unsupported container resource : {}", selector.resource));
    let (list, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let found = match list {
        "requests" => amount(requests(&container.resources), name),
        "limits" => amount(limits(&container.resources), name)
            .or_else(|| amount(pod.spec.as_ref().and_then(|spec| limits(&spec.resources)), name))
            .or_else(|| amount(Some(&machine.allocatable), name)),
        _ => return Err(unsupported()),
    };
    let divisor = selector.divisor.as_ref().and_then(|divisor| Quantity::parse(&divisor.0).ok());
    let divisor = divisor.filter(|divisor| !divisor.is_zero()).unwrap_or(Quantity::new(1, Default::default()));
    let found = found.unwrap_or(Quantity::ZERO);
    let (amount, unit) = match name {
        "cpu" => (found.milli_value(), divisor.milli_value()),
        _ => (found.value(), divisor.value()),
    };
    Ok((amount.max(0) as u64).div_ceil(unit.max(1) as u64).to_string())
}

fn by_name<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|container| container.name == name)
}
