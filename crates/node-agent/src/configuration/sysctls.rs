//! Kernel settings of pods: those that belong to the pod's own namespaces and do not reach other pods.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

/// The safe ones. All of them are in namespaces in every kernel that this agent runs on.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Why a pod is refused for its sysctls (`SysctlForbidden`), if it is.
pub fn refusal(pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let (host_network, host_ipc) = (spec.host_network.unwrap_or(false), spec.host_ipc.unwrap_or(false));
    let problem = wanted(pod).into_keys().find_map(|name| {
        let shared = if name.starts_with("net.") { host_network.then_some("net") } else { host_ipc.then_some("ipc") };
        match shared {
            _ if !SAFE.contains(&name.as_str()) => Some(format!("{name:?} not allowlisted")),
            Some(namespace) => Some(format!("{name:?} not allowed with host {namespace} enabled")),
            None => None,
        }
    })?;
    Some(format!("forbidden sysctl: {problem}"))
}

/// What a pod asks for, with dots between the parts of names.
pub(super) fn wanted(pod: &Pod) -> BTreeMap<String, String> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let sysctls = context.and_then(|context| context.sysctls.as_ref());
    sysctls.into_iter().flatten().map(|sysctl| (dotted(&sysctl.name), sysctl.value.clone())).collect()
}

/// With slashes between parts, dots belong to a part: `net/ipv4/conf/eth0.1/forwarding`.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']).and_then(|at| name.as_bytes().get(at)) {
        Some(b'/') => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(name: &str, host_network: bool) -> Option<String> {
        let pod = json!({"metadata": {"name": "a"}, "spec": {
            "containers": [], "hostNetwork": host_network,
            "securityContext": {"sysctls": [{"name": name, "value": "1"}]},
        }});
        refusal(&serde_json::from_value(pod).expect("a pod"))
    }

    #[test]
    fn only_what_is_the_pods_own_is_allowed() {
        assert_eq!(refused("kernel.shm_rmid_forced", true), None);
        assert_eq!(refused("kernel/shm_rmid_forced", false), None);
        assert_eq!(refused("kernel.msgmax", false), Some("forbidden sysctl: \"kernel.msgmax\" not allowlisted".into()));
        assert_eq!(
            refused("net.ipv4.tcp_syncookies", true),
            Some("forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled".into())
        );
    }

    #[test]
    fn slashes_become_dots() {
        assert_eq!(dotted("net/ipv4/conf/eth0.1/forwarding"), "net.ipv4.conf.eth0/1.forwarding");
        assert_eq!(dotted("net.ipv4.conf.eth0/1.forwarding"), "net.ipv4.conf.eth0/1.forwarding");
    }
}
