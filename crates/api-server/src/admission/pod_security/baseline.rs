//! What no pod may do that is not trusted with its node.

use std::collections::BTreeSet;

use object_model::value::Fields;
use serde_json::Value;

use super::checks::{Pod, Violation, containers_named, in_context, plural, quoted, setters, violation};

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// From which version on which settings of the kernel are harmless.
const SYSCTLS: &[(u32, &str)] = &[
    (0, "kernel.shm_rmid_forced"),
    (0, "net.ipv4.ip_local_port_range"),
    (0, "net.ipv4.tcp_syncookies"),
    (0, "net.ipv4.ping_group_range"),
    (0, "net.ipv4.ip_unprivileged_port_start"),
    (27, "net.ipv4.ip_local_reserved_ports"),
    (29, "net.ipv4.tcp_keepalive_time"),
    (29, "net.ipv4.tcp_fin_timeout"),
    (29, "net.ipv4.tcp_keepalive_intvl"),
    (29, "net.ipv4.tcp_keepalive_probes"),
    (32, "net.ipv4.tcp_rmem"),
    (32, "net.ipv4.tcp_wmem"),
];

const SELINUX_BEFORE_31: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t"];
const SELINUX: &[&str] = &["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

/// The values of a field in the contexts of the pod and of its containers that are not allowed, and who has them.
pub struct Bad<'a> {
    pub pod: bool,
    pub containers: Vec<&'a str>,
    pub values: BTreeSet<String>,
}

impl<'a> Bad<'a> {
    pub fn texts(pod: &Pod<'a>, path: &[&str], allowed: impl Fn(&str) -> bool) -> Self {
        let mut values = BTreeSet::new();
        let mut is_bad = |owner: &Value| {
            // Where the object that holds the field is there, the field is judged even if it is empty.
            let Some((last, holder)) = path.split_last() else { return false };
            let Some(text) = in_context(owner, holder).map(|holder| holder.text(last)) else { return false };
            let bad = !allowed(text);
            if bad {
                values.insert(text.to_owned());
            }
            bad
        };
        let of_pod = is_bad(pod.spec);
        let containers = pod.named(|container| is_bad(container));
        Self { pod: of_pod, containers, values }
    }

    pub fn setters(&self) -> Option<String> {
        setters(self.pod, &self.containers)
    }
}

pub fn app_armor_profile(pod: &Pod<'_>) -> Option<Violation> {
    let bad = Bad::texts(pod, &["appArmorProfile", "type"], |kind| matches!(kind, "RuntimeDefault" | "Localhost"));
    let allowed = |profile: &str| matches!(profile, "" | "runtime/default") || profile.starts_with("localhost/");
    let annotations = pod.annotations.iter().filter(|(key, value)| key.starts_with(APP_ARMOR) && !allowed(value));
    let annotations: BTreeSet<String> = annotations.map(|(key, value)| format!("{key}={value:?}")).collect();
    let mut who: Vec<String> = bad.setters().into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", annotations.len()));
    }
    if who.is_empty() {
        return None;
    }
    let values: Vec<String> = bad.values.into_iter().chain(annotations).collect();
    let detail = format!("{} must not set AppArmor profile type to {}", who.join(" and "), quoted(&values));
    violation(plural("forbidden AppArmor profile", values.len()), detail)
}

pub fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let mut added = BTreeSet::new();
    let bad = pod.named(|container| {
        let own = items_in(container, &["capabilities"], "add").filter(|c| !CAPABILITIES.contains(c));
        let own: Vec<&str> = own.collect();
        added.extend(own.iter().copied());
        !own.is_empty()
    });
    if bad.is_empty() {
        return None;
    }
    let who = containers_named(&bad);
    let detail = format!("{who} must not include {} in securityContext.capabilities.add", quoted(added));
    violation("non-default capabilities", detail)
}

/// The texts of a list in a security context.
pub fn items_in<'a>(owner: &'a Value, path: &[&str], list: &str) -> impl Iterator<Item = &'a str> {
    let items = in_context(owner, path).map(|holder| holder.items(list)).unwrap_or_default();
    items.iter().filter_map(Value::as_str)
}

pub fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let fields = ["hostNetwork", "hostPID", "hostIPC"];
    let set: Vec<String> =
        fields.iter().filter(|f| pod.spec.flag(f) == Some(true)).map(|field| format!("{field}=true")).collect();
    if set.is_empty() { None } else { violation("host namespaces", set.join(", ")) }
}

pub fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec.items("volumes").iter().filter(|volume| volume.has("hostPath"));
    let names: Vec<&str> = volumes.map(|volume| volume.text("name")).collect();
    if names.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", names.len()), quoted(&names)))
}

pub fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    // As texts, since that is how they are sorted.
    let mut ports = BTreeSet::new();
    let bad = pod.named(|container| {
        let own = container.items("ports").iter().filter_map(|port| port.int("hostPort")).filter(|port| *port != 0);
        let own: Vec<String> = own.map(|port| port.to_string()).collect();
        let any = !own.is_empty();
        ports.extend(own);
        any
    });
    uses("hostPort", &bad, "hostPort", &ports, ports.iter().cloned().collect::<Vec<_>>().join(", "))
}

pub fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let mut hosts = BTreeSet::new();
    let mut bad = pod.named(|container| {
        let own: Vec<String> = HANDLERS
            .iter()
            .filter_map(|path| container.at(path))
            .flat_map(|handler| [handler.text_at(&["httpGet", "host"]), handler.text_at(&["tcpSocket", "host"])])
            .filter(|host| !host.is_empty())
            .map(str::to_owned)
            .collect();
        let any = !own.is_empty();
        hosts.extend(own);
        any
    });
    bad.sort_unstable();
    bad.dedup();
    uses("probe or lifecycle host", &bad, "probe or lifecycle host", &hosts, quoted(&hosts))
}

/// Containers use things that they must not.
fn uses(reason: &str, containers: &[&str], word: &str, things: &BTreeSet<String>, shown: String) -> Option<Violation> {
    if containers.is_empty() {
        return None;
    }
    let verb = if containers.len() == 1 { "uses" } else { "use" };
    let who = containers_named(containers);
    violation(reason, format!("{who} {verb} {} {shown}", plural(word, things.len())))
}

pub fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = pod.named(|container| in_context(container, &["privileged"]) == Some(&Value::Bool(true)));
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers_named(&bad)))
}

pub fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let bad = pod.named(|container| {
        let kind = in_context(container, &["procMount"]).and_then(Value::as_str).filter(|kind| *kind != "Default");
        kinds.extend(kind);
        kind.is_some()
    });
    if bad.is_empty() {
        return None;
    }
    let who = containers_named(&bad);
    violation("procMount", format!("{who} must not set securityContext.procMount to {}", quoted(kinds)))
}

pub fn selinux_before_31(pod: &Pod<'_>) -> Option<Violation> {
    selinux_options(pod, SELINUX_BEFORE_31)
}

pub fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    selinux_options(pod, SELINUX)
}

fn selinux_options(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut is_bad = |owner: &Value| {
        let Some(options) = in_context(owner, &["seLinuxOptions"]) else { return false };
        let kind = options.text("type");
        let bad_type = !allowed.contains(&kind);
        if bad_type {
            types.insert(kind.to_owned());
        }
        let (has_user, has_role) = (!options.text("user").is_empty(), !options.text("role").is_empty());
        user |= has_user;
        role |= has_role;
        bad_type || has_user || has_role
    };
    let of_pod = is_bad(pod.spec);
    let containers = pod.named(|container| is_bad(container));
    let who = setters(of_pod, &containers)?;
    let mut wrong = Vec::new();
    if !types.is_empty() {
        wrong.push(format!("{} {}", plural("type", types.len()), quoted(&types)));
    }
    if user {
        wrong.push("user may not be set".to_owned());
    }
    if role {
        wrong.push("role may not be set".to_owned());
    }
    let detail = format!("{who} set forbidden securityContext.seLinuxOptions: {}", wrong.join("; "));
    violation("seLinuxOptions", detail)
}

pub fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let allowed =
        |profile: &str| matches!(profile, "runtime/default" | "docker/default") || profile.starts_with("localhost/");
    let containers = pod.containers().map(|container| format!("{SECCOMP_CONTAINER}{}", container.text("name")));
    let keys = std::iter::once(SECCOMP_POD.to_owned()).chain(containers);
    let values = keys.filter_map(|key| pod.annotations.get(&key).map(|value| (key, value)));
    let bad = values.filter(|(_, value)| !allowed(value)).map(|(key, value)| format!("{key}={value:?}"));
    let bad: BTreeSet<String> = bad.collect();
    if bad.is_empty() {
        return None;
    }
    let shown = bad.iter().cloned().collect::<Vec<_>>().join(", ");
    violation("seccompProfile", format!("forbidden {} {shown}", plural("annotation", bad.len())))
}

pub fn is_seccomp_confined(kind: &str) -> bool {
    matches!(kind, "Localhost" | "RuntimeDefault")
}

pub fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    let bad = Bad::texts(pod, &["seccompProfile", "type"], is_seccomp_confined);
    let who = bad.setters()?;
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {}", quoted(&bad.values));
    violation("seccompProfile", detail)
}

pub fn sysctls(pod: &Pod<'_>, version: u32) -> Option<Violation> {
    let allowed = |name: &str| SYSCTLS.iter().any(|(from, known)| *from <= version && *known == name);
    let set = pod.spec.field("securityContext").map(|context| context.items("sysctls")).unwrap_or_default();
    let bad: Vec<&str> = set.iter().map(|sysctl| sysctl.text("name")).filter(|name| !allowed(name)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

pub fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_set = |owner: &Value| in_context(owner, &["windowsOptions", "hostProcess"]) == Some(&Value::Bool(true));
    let who = setters(is_set(pod.spec), &pod.named(|container| is_set(container)))?;
    violation("hostProcess", format!("{who} must not set securityContext.windowsOptions.hostProcess=true"))
}
