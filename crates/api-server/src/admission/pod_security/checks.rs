//! Which checks make up a level in a version of Kubernetes.

use object_model::{
    meta::{Meta, TextMap},
    value::Fields,
};
use serde_json::Value;

use super::{
    baseline as base,
    policy::{Level, Standard, Version},
    restricted as strict,
};
use crate::admission::CONTAINERS;

/// The newest version that changed a rule.
const NEWEST: u32 = 35;

/// A pod, or the template of one.
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pub annotations: TextMap<'a>,
    pub spec: &'a Value,
}

/// A rule that a pod breaks, in few words and in detail.
#[derive(Debug, PartialEq)]
pub struct Violation {
    pub reason: String,
    pub detail: String,
}

type Rule = fn(&Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    level: Level,
    /// From which version on which rule holds, oldest first.
    rules: &'static [(u32, Rule)],
    /// The check of the baseline that this one contains.
    instead_of: &'static str,
}

const fn baseline(id: &'static str, rules: &'static [(u32, Rule)]) -> Check {
    Check { id, level: Level::Baseline, rules, instead_of: "" }
}

const fn restricted(id: &'static str, rules: &'static [(u32, Rule)], instead_of: &'static str) -> Check {
    Check { id, level: Level::Restricted, rules, instead_of }
}

/// In the order in which violations are told.
const CHECKS: &[Check] = &[
    baseline("appArmorProfile", &[(0, base::app_armor_profile)]),
    baseline("capabilities_baseline", &[(0, base::capabilities)]),
    baseline("hostNamespaces", &[(0, base::host_namespaces)]),
    baseline("hostPathVolumes", &[(0, base::host_path_volumes)]),
    baseline("hostPorts", &[(0, base::host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, base::probe_hosts)]),
    baseline("privileged", &[(0, base::privileged)]),
    baseline("procMount", &[(0, base::proc_mount), (35, |pod| unless_own_users(pod, base::proc_mount))]),
    baseline("seLinuxOptions", &[(0, base::selinux_before_31), (31, base::selinux)]),
    baseline("seccompProfile_baseline", &[(0, base::seccomp_annotations), (19, base::seccomp_profile)]),
    baseline(
        "sysctls",
        &[
            (0, |pod| base::sysctls(pod, 0)),
            (27, |pod| base::sysctls(pod, 27)),
            (29, |pod| base::sysctls(pod, 29)),
            (32, |pod| base::sysctls(pod, 32)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, base::windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[(8, strict::privilege_escalation), (25, |pod| unless_windows(pod, strict::privilege_escalation))],
        "",
    ),
    restricted(
        "capabilities_restricted",
        &[(22, strict::capabilities), (25, |pod| unless_windows(pod, strict::capabilities))],
        "capabilities_baseline",
    ),
    restricted("procMount_restricted", &[(35, base::proc_mount)], "procMount"),
    restricted("restrictedVolumes", &[(0, strict::volumes)], "hostPathVolumes"),
    restricted(
        "runAsNonRoot",
        &[(0, strict::run_as_non_root), (35, |pod| unless_own_users(pod, strict::run_as_non_root))],
        "",
    ),
    restricted("runAsUser", &[(23, strict::run_as_user), (35, |pod| unless_own_users(pod, strict::run_as_user))], ""),
    restricted(
        "seccompProfile_restricted",
        &[(19, strict::seccomp_profile), (25, |pod| unless_windows(pod, strict::seccomp_profile))],
        "seccompProfile_baseline",
    ),
];

/// What does not exist on Windows is not asked of its pods.
fn unless_windows(pod: &Pod<'_>, rule: Rule) -> Option<Violation> {
    if pod.spec.text_at(&["os", "name"]) == "windows" { None } else { rule(pod) }
}

/// Root in a user namespace of its own is nobody outside of it.
fn unless_own_users(pod: &Pod<'_>, rule: Rule) -> Option<Violation> {
    if pod.spec.flag("hostUsers") == Some(false) { None } else { rule(pod) }
}

impl Check {
    fn rule(&self, version: u32) -> Option<Rule> {
        self.rules.iter().rev().find(|(from, _)| *from <= version).map(|(_, rule)| *rule)
    }
}

/// Everything in a pod that a standard forbids.
pub fn violations(standard: Standard, pod: &Pod<'_>) -> Vec<Violation> {
    let version = match standard.version {
        Version::Minor(minor) => minor.min(NEWEST),
        Version::Latest => NEWEST,
    };
    let applies = |check: &&Check| {
        let contained = |other: &Check| other.instead_of == check.id && other.rule(version).is_some();
        check.level <= standard.level && !(standard.level == Level::Restricted && CHECKS.iter().any(contained))
    };
    let rules = CHECKS.iter().filter(applies).filter_map(|check| check.rule(version));
    rules.filter_map(|rule| rule(pod)).collect()
}

/// The reasons alone, as they are told of many pods.
pub fn reasons(violations: &[Violation]) -> String {
    violations.iter().map(|v| v.reason.as_str()).collect::<Vec<_>>().join(", ")
}

/// All that is wrong with one pod.
pub fn details(violations: &[Violation]) -> String {
    let one = |v: &Violation| match v.detail.as_str() {
        "" => v.reason.clone(),
        detail => format!("{} ({detail})", v.reason),
    };
    violations.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl<'a> Pod<'a> {
    /// A pod or a template: metadata beside a specification.
    pub fn of(object: &'a Value) -> Self {
        Self { annotations: Meta::of(object).annotations(), spec: object.field("spec").unwrap_or(&Value::Null) }
    }

    pub fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        CONTAINERS.into_iter().flat_map(move |(list, _)| spec.items(list))
    }

    /// The names of the containers of which this holds.
    pub fn named(&self, holds: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(holds).map(|container| container.text("name")).collect()
    }

    /// A setting in the security context of the whole pod.
    pub fn context(&self, path: &[&str]) -> Option<&'a Value> {
        in_context(self.spec, path)
    }
}

/// A setting in the security context of a pod or of a container.
pub fn in_context<'a>(owner: &'a Value, path: &[&str]) -> Option<&'a Value> {
    owner.field("securityContext")?.at(path).filter(|value| !value.is_null())
}

pub fn violation(reason: impl Into<String>, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation { reason: reason.into(), detail: detail.into() })
}

/// `"a", "b"`
pub fn quoted<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The word, in the plural unless there is one.
pub fn plural(word: &str, count: usize) -> String {
    if count == 1 { word.to_owned() } else { format!("{word}s") }
}

/// `container "a"` or `containers "a", "b"`
pub fn containers_named(names: &[&str]) -> String {
    format!("{} {}", plural("container", names.len()), quoted(names))
}

/// Who set something: the pod, some containers, or both. `None` if nobody did.
pub fn setters(pod: bool, containers: &[&str]) -> Option<String> {
    match (pod, containers) {
        (false, []) => None,
        (true, []) => Some("pod".to_owned()),
        (false, names) => Some(containers_named(names)),
        (true, names) => Some(format!("pod and {}", containers_named(names))),
    }
}
