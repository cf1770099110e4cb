//! What a pod must not say when it names its operating system.

use super::each_container;
use crate::validation::Field;

pub fn os(spec: &Field) {
    let os = spec.at("os");
    if !os.is_set() {
        return;
    }
    match os.at("name").text() {
        "" => os.at("name").missing(""),
        "linux" => linux(spec),
        "windows" => windows(spec),
        _ => os.with(os.at("name").value()).not_supported(&["linux", "windows"]),
    }
}

fn linux(spec: &Field) {
    let forbid = |owner: &Field| {
        let context = owner.at("securityContext");
        if context.at("windowsOptions").is_set() {
            context.at("windowsOptions").forbidden("windows options cannot be set for a linux pod");
        }
    };
    forbid(spec);
    each_container(spec, forbid);
}

fn windows(spec: &Field) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let forbid = |field: Field| {
        if field.is_set() && field.flag() != Some(false) {
            field.forbidden(DETAIL);
        }
    };
    let forbid_pointer = |field: Field| {
        if field.is_set() {
            field.forbidden(DETAIL);
        }
    };
    let context = spec.at("securityContext");
    forbid_pointer(context.at("appArmorProfile"));
    forbid_pointer(context.at("seLinuxOptions"));
    forbid_pointer(spec.at("hostUsers"));
    forbid(spec.at("hostPID"));
    forbid(spec.at("hostIPC"));
    for name in ["seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls"] {
        forbid_pointer(context.at(name));
    }
    forbid_pointer(spec.at("shareProcessNamespace"));
    for name in ["runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"] {
        forbid_pointer(context.at(name));
    }
    each_container(spec, |container| {
        let context = container.at("securityContext");
        for name in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            if context.at(name).is_set() {
                context.at(name).forbidden(DETAIL);
            }
        }
    });
}

/// Windows containers that are processes of the host: all or none, and on the host's network.
pub fn host_process_pod(spec: &Field) {
    let of = |owner: &Field| {
        let context = owner.at("securityContext");
        context.at("windowsOptions").at("hostProcess").flag()
    };
    let pod = of(spec);
    let (mut containers, mut host_processes) = (0, 0);
    each_container(spec, |container| {
        containers += 1;
        let own = of(container);
        if let (Some(pod), Some(own)) = (pod, own)
            && pod != own
        {
            let context = container.at("securityContext");
            context
                .at("windowsOptions")
                .at("hostProcess")
                .invalid(format!("pod hostProcess value must be identical if both are specified, was {pod}"));
        }
        if own.or(pod) == Some(true) {
            host_processes += 1;
        }
    });
    if host_processes == 0 {
        return;
    }
    if host_processes != containers {
        spec.invalid_value(
            "",
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        );
    }
    if !spec.at("hostNetwork").is_true() {
        spec.at("hostNetwork")
            .invalid_value(false, "hostNetwork must be true if pod contains any hostProcess containers");
    }
}
