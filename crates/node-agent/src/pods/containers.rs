//! The containers of a pod, whatever list of the pod they are in, and whether they run again.

use k8s_openapi::api::core::v1::{Container, Pod};

/// Which list a container is in, and so what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Runs to its end before the next starts.
    Init,
    /// An init container that goes on: started in its turn, stopped after the main containers.
    Sidecar,
    Main,
    Ephemeral,
}

/// Of a container in `initContainers`.
pub fn kind_of_init(container: &Container) -> Kind {
    if container.restart_policy.as_deref() == Some("Always") { Kind::Sidecar } else { Kind::Init }
}

pub fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

pub fn main_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

/// Ephemeral containers as ordinary ones, with the name of the container whose processes each wants to see.
pub fn ephemeral_containers(pod: &Pod) -> Vec<(Container, Option<String>)> {
    let ephemeral = pod.spec.as_ref().and_then(|spec| spec.ephemeral_containers.as_deref()).unwrap_or_default();
    let ordinary = ephemeral.iter().filter_map(|container| {
        // Every field but the target has the name and the type it has there.
        let value = serde_json::to_value(container).ok()?;
        Some((serde_json::from_value(value).ok()?, container.target_container_name.clone()))
    });
    ordinary.collect()
}

/// A container of the pod by its name.
pub fn find(pod: &Pod, name: &str) -> Option<(Kind, Container)> {
    if let Some(container) = main_containers(pod).iter().find(|container| container.name == name) {
        return Some((Kind::Main, container.clone()));
    }
    if let Some(container) = init_containers(pod).iter().find(|container| container.name == name) {
        return Some((kind_of_init(container), container.clone()));
    }
    let ephemeral = ephemeral_containers(pod).into_iter().find(|(container, _)| container.name == name);
    ephemeral.map(|(container, _)| (Kind::Ephemeral, container))
}

pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

pub fn namespace(pod: &Pod) -> &str {
    pod.metadata.namespace.as_deref().unwrap_or_default()
}

pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn is_final(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

pub fn is_on_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network).unwrap_or(false)
}

pub fn restart_policy(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always")
}

/// What a rule of the container says about an exit code, if one matches.
pub fn matching_rule(container: &Container, exit_code: i32) -> Option<&str> {
    let mut rules = container.restart_policy_rules.iter().flatten();
    let rule = rules.find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.as_ref().is_some_and(|values| values.contains(&exit_code));
            match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    })?;
    Some(&rule.action)
}

/// Whether a container that ended like this is started again: its rules first, then its policy, then the pod's.
pub fn restarts_after(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let by_policy = |policy: &str| match policy {
        "Never" => false,
        "OnFailure" => exit_code != 0,
        _ => true,
    };
    match container.restart_policy.as_deref() {
        Some(policy) => match matching_rule(container, exit_code) {
            Some("Restart" | "RestartAllContainers") => true,
            _ => by_policy(policy),
        },
        None => by_policy(restart_policy(pod)),
    }
}

/// Whether a container that is stopped for a failed probe is started again. Rules are about exit codes, and there is none yet.
pub fn restarts_after_failed_probe(pod: &Pod, container: &Container) -> bool {
    container.restart_policy.as_deref().unwrap_or_else(|| restart_policy(pod)) != "Never"
}
