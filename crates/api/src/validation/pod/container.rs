//! Containers: what all have in common, and what init containers differ in.

use std::collections::{BTreeSet, HashSet};

use object_model::names;

use super::volumes::VolumeKinds;
use super::{Options, env, lifecycle, mounts, restart, security};
use crate::validation::{Field, resources};

pub const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
pub const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// What the rules for a container need to know of its pod.
pub struct Pod<'v, 'o> {
    /// The valid volumes by name.
    pub volumes: VolumeKinds<'v>,
    pub claim_names: BTreeSet<&'v str>,
    pub grace_period: Option<i64>,
    pub restart_policy: &'v str,
    pub host_users: bool,
    pub options: &'o Options,
}

pub fn containers(spec: &Field, pod: &Pod) {
    let list = spec.at("containers");
    if list.is_empty() {
        return list.missing("");
    }
    let mut seen = HashSet::new();
    for container in list.each() {
        common(&container, pod);
        let name = container.at("name");
        if seen.contains(&name.text()) {
            name.duplicate_value(name.text());
        }
        seen.insert(name.text());
        lifecycle::lifecycle(&container.at("lifecycle"), pod);
        lifecycle::probes(&container, pod);
        restart::policy(&container);
    }
    unique_host_ports(&list);
}

pub fn init_containers(spec: &Field, pod: &Pod) {
    const SIDECARS_ONLY: &str = "may not be set for init containers without restartPolicy=Always";
    let list = spec.at("initContainers");
    let mut seen: HashSet<&str> = spec.at("containers").each().map(|c| c.at("name").text()).collect();
    for container in list.each() {
        common(&container, pod);
        restart::init_policy(&container);
        let name = container.at("name");
        if seen.contains(&name.text()) {
            name.duplicate_value(name.text());
        } else if !name.is_empty() {
            seen.insert(name.text());
        }
        // Told as if this container were the first: that is how Kubernetes tells it.
        unique_host_ports_of(&container, &mut HashSet::new(), &list.index(0));
        let sidecar = super::is_sidecar(&container);
        if sidecar {
            lifecycle::lifecycle(&container.at("lifecycle"), pod);
            lifecycle::probes(&container, pod);
        } else {
            for part in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if container.at(part).is_set() {
                    container.at(part).forbidden(SIDECARS_ONLY);
                }
            }
            if !pod.options.restart_container_for_init {
                for policy in container.at("resizePolicy").each() {
                    if policy.at("restartPolicy").is("RestartContainer") {
                        policy
                            .at("restartPolicy")
                            .invalid("must not be set to 'RestartContainer' for non-sidecar initContainers");
                    }
                }
            }
        }
    }
}

/// What holds for every container.
pub fn common(container: &Field, pod: &Pod) {
    container.at("name").required_dns_label();
    container.at("image").required();
    container.at("terminationMessagePolicy").required_one_of(&["File", "FallbackToLogsOnError"]);
    ports(&container.at("ports"));
    env::env(&container.at("env"));
    env::env_from(&container.at("envFrom"));
    mounts::volume_mounts(container, &pod.volumes);
    mounts::volume_devices(container, &pod.volumes);
    container.at("imagePullPolicy").required_one_of(PULL_POLICIES);
    resources::requirements(
        &container.at("resources"),
        resources::Level::Container,
        &pod.claim_names,
        pod.options.indivisible_huge_pages,
    );
    resize_policy(&container.at("resizePolicy"), pod.restart_policy);
    security::security_context(&container.at("securityContext"), pod.host_users);
}

fn ports(ports: &Field) {
    let mut seen = HashSet::new();
    for port in ports.each() {
        let name = port.at("name");
        if !name.is_empty() {
            let wrong = names::port_name(name.text());
            if !wrong.is_empty() {
                name.invalid_for(wrong);
            } else if seen.contains(&name.text()) {
                name.duplicate();
            } else {
                seen.insert(name.text());
            }
        }
        let number = port.at("containerPort");
        if number.number() == 0 {
            number.missing("");
        } else {
            number.port_number();
        }
        if port.at("hostPort").number() != 0 {
            port.at("hostPort").port_number();
        }
        port.at("protocol").required_one_of(PROTOCOLS);
    }
}

fn resize_policy(policies: &Field, pod_restart_policy: &str) {
    let mut seen = HashSet::new();
    for policy in policies.each() {
        let (resource, restart) = (policy.at("resourceName"), policy.at("restartPolicy"));
        if seen.contains(&resource.text()) {
            policy.duplicate_value(resource.text());
        }
        seen.insert(resource.text());
        policies.with(resource.value()).required_one_of(&["cpu", "memory"]);
        policies.with(restart.value()).required_one_of(&["NotRequired", "RestartContainer"]);
        if pod_restart_policy == "Never" && !restart.is("NotRequired") {
            policies.invalid_value(restart.text(), "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// No two containers may ask for the same port of the node.
fn unique_host_ports(containers: &Field) {
    let mut seen = HashSet::new();
    for container in containers.each() {
        unique_host_ports_of(&container, &mut seen, &container);
    }
}

fn unique_host_ports_of(container: &Field, seen: &mut HashSet<String>, told_at: &Field) {
    let told = told_at.at("ports");
    for (i, port) in container.at("ports").each().enumerate() {
        let number = port.at("hostPort").number();
        if number == 0 {
            continue;
        }
        let key = format!("{}/{}/{number}", port.at("protocol").text(), port.at("hostIP").text());
        if seen.contains(&key) {
            told.index(i).at("hostPort").duplicate_value(key);
        } else {
            seen.insert(key);
        }
    }
}
